"""Descriptions of parameters and attributes that several estimators share.

A line ``.. shared: n_init, n_jobs`` in the docstring of a class stands for the entries of these
names below. Indented lines after the line ``.. shared:`` continue the last of these entries.
Defaults are taken from the signature. Names that share one text are joined by "&". These texts are
part of the documentation of users, to whom "you" is addressed.

If a name has several texts, all but one have a mark: "(memoized)", "(topics)" or "(factors)". A
line names such a text with its mark, as in ``.. shared: moves (memoized)``, and the docstring gets
the name without the mark.

Parameters
----------
batch_size : int
    Number of rows in a minibatch.
components_init : array-like of shape (n_components, n_features) or None
    Initial topics, instead of random ones, such as ``components_`` of another fit. Each row is
    divided by its sum to give the probabilities of words. Zeros are allowed, since the prior
    makes each word possible. Each topic begins with an equal part of the tokens. With initial
    topics, ``temperature="annealed"`` is T = 1 throughout, since annealing would destroy these
    topics; other temperatures are used as given. If two topics become the same, moves may replace
    one of them by another topic; with ``moves=()``, each topic keeps its place.
evaluate_every : int
    Number of passes between evaluations of the bound on all data; 0 or a negative number means
    never. Memoized inference knows the bound after each pass. With "online", convergence is
    judged at these evaluations only.
init_params : {"k-means++", "random", "random_from_data"}
    How the initial components are found. "k-means++": each component begins with a row, its seed;
    rows that earlier seeds explain badly are more likely to become seeds. "random": from random
    responsibilities. "random_from_data": each component begins with a row that is drawn uniformly.
labels : {"components", "clusters"}
    What the labels in ``labels_``, ``fit_predict``, ``predict`` and ``predict_proba`` refer to by
    default: the components, or the ``n_clusters_`` clusters that components are joined to. After
    ``partial_fit``, labels refer to the components, because this method joins none.
labels_init : array-like of shape (n_samples,) or None
    Initial component of each row of ``fit``, instead of those found by ``init_params``. The fit
    begins with as many components as there are distinct labels, regardless of ``n_components``.
    A row of the label -1, whose component is unknown, starts in the component that explains it
    best. Give labels of rows of positive weight only.
learning_decay : float
    How fast step sizes decrease. With "online", step number t has size ``(learning_offset + t)
    ** -learning_decay``.
learning_decay (factors) : float
    How fast step sizes decrease. With "online" and in ``partial_fit``, step number t has size
    ``(learning_offset + t) ** -learning_decay``.
learning_decay (topics) : float
    How fast step sizes decrease. If ``learning_offset`` is given, step number t has size
    ``(learning_offset + t) ** -learning_decay``.
learning_method : {"memoized", "online", "batch"}
    How the posterior q is found. "memoized": memoized inference. "online": stochastic inference
    on shuffled minibatches, without moves. "batch": memoized inference with one batch, which is
    coordinate ascent.
learning_offset : float
    A larger offset makes early steps smaller; at least 1.
max_components : int or None
    Maximum number of components that births may reach. None is 200, or 400 in topic models,
    or twice ``n_components`` if that is more. If births reach this default maximum, there is a
    ConvergenceWarning.
max_doc_update_iter : int
    Maximum number of sweeps in a document's local step.
max_iter : int
    Maximum number of passes over the data.
mean_change_tol : float
    A document's local step has converged when the expected number of tokens per topic changes by
    less than this, on average over the topics.
moves : tuple of {"split-merge"}
    Moves that may be made; ``()`` is none. A move splits a topic that mixes two themes, and
    merges two topics that share a theme, so that the number of topics stays the same. It is made
    after a pass of ``fit`` at T = 1 if it raises the bound on a sample of the documents. Moves
    begin after half of the passes or after the tenth pass, whichever comes first. They are not
    made after the last pass. If topics are summed out, moves are made after 30, 40 and 50 % of the
    passes, until none is accepted.
moves (memoized) : tuple of {"birth", "merge", "delete"}
    Moves that may be made; ``()`` is none. They are made at the end of each pass. Without moves,
    the number of components does not change.
n_batches & batch_size : int or None
    Number of batches of consecutive rows into which ``fit`` divides the data, or number of rows
    per batch; give at most one of them. If both are None, there are about 10 batches of 1,000
    to 50,000 rows.
n_burn_in : int
    Number of sweeps of the sampler over a row before the first sweep that is kept.
n_components : int
    Number of components K.
n_components (memoized) : int
    Initial number of components; without moves it does not change.
n_init : int
    Number of starts of ``fit``; the result is the start with the highest bound.
n_jobs : int or None
    Number of threads. The result does not depend on this number, not even in its last bit.
n_parallel_batches : int or None
    Number of batches whose local steps are made with the same global parameters. Minibatches that
    are processed together make one step, on all of their rows. The number changes the result;
    ``n_jobs`` and the number of workers of a cluster do not. None is 1. For rows of Dask, None is
    the number of chunks, but at most 8; each of these minibatches is from another chunk.
n_parallel_batches (memoized) : int or None
    Number of batches whose local steps are made with the same global parameters. The number changes
    the result; ``n_jobs`` and the number of workers of a cluster do not. None is 1. For rows of
    Dask, None is a tenth of the batches; with "online" it is the number of chunks, but at most 8,
    and each of these minibatches is from another chunk.
n_samples : int
    Number of sweeps that are kept.
random_state : int, RandomState instance or None
    Source of randomness. It determines the start, the order in which rows are visited, and all
    random draws.
temperature : None, str or policy
    None is T = 1 throughout; otherwise a policy of :mod:`skvt.temperature`, or its name.
    Policies that learn the temperature are refused. Moves are made only at T = 1.
tol : float
    Converged when the bound gains less than this from one evaluation to the next, in nats per
    row. Convergence is not judged while T > 1 or while a move has something left to try. If the
    fit has not converged after ``max_iter`` passes, there is a
    :class:`~sklearn.exceptions.ConvergenceWarning`.
tol (topics) : float or None
    Converged when the bound gains less than this from one evaluation to the next, in nats per
    word; if given, it is used instead of ``perp_tol``.
total_samples : float or None
    Assumed number of rows of the whole stream in ``partial_fit``. If given, the temperature of a
    stream reaches 1 after at most half of these rows. None is a million rows for a stream that
    ``partial_fit`` begins. For a stream after ``fit``, it is the number of rows of ``fit`` and of
    all calls since.
total_samples (memoized) : float or None
    Assumed number of rows of the whole stream in ``partial_fit``. If given, the temperature of a
    stream reaches 1 after at most half of these rows. None is the number of rows seen, with one
    exception: with "online", a stream that ``partial_fit`` begins is assumed to have a million
    rows.
use_labels : bool
    Whether ``y`` of ``fit`` and ``partial_fit`` has the class of each row. If False, ``y`` is
    ignored. The class -1 is unknown; in arrays of objects, None and NaN are unknown, too. The fit
    begins with a component for each class, so that ``n_components`` is at most the number of
    classes, or at least this number if the number of components is fixed. Rows of a known class
    belong to components of that class alone; other rows may belong to any component. A component
    that births find among rows without a label has the class -1, see ``component_classes_``. The
    bound ``elbo_`` is exact: ``log p(y_n | z_n = k)`` is 0 if component k may have the class of
    row n, and minus infinity otherwise. A class that appears in a later call or in a warm start
    gets a component. True cannot be combined with ``resume``, with rows in chunks, and with other
    parameters for the start.
verbose : int
    If positive, print the choices made before the first pass, and lines about passes of ``fit``
    and calls of ``partial_fit``. After ten seconds without a line, print what the fit is doing.
verbose_interval : int or None
    Number of passes or calls from one printed line to the next. None prints a line for each of the
    first ten passes, every tenth pass, passes whose perplexity is evaluated, the pass after which
    the fit has converged, and each call.
warm_start : bool
    Whether another call of ``fit`` continues from the posterior, the step number and the
    temperature of the last call.

Attributes
----------
block_relevance_ : ndarray of shape (K, n_blocks)
    Evidence that the rows of a component and all other rows have different parameters in a
    block: the log Bayes factor against equal parameters in nats, divided by the component's
    number of rows, but by 1 if the component has less than one row. If positive, the block
    distinguishes the rows of the component from the other rows.
bound_ : float
    Perplexity of the training data by the bound, ``exp(-elbo_ / words)``, as in scikit-learn.
    The perplexity of held-out words is ``perplexity(X)``.
cluster_labels_ : list of str or None
    Names of the ``n_clusters_`` suggested clusters, which you may set as a list of all or as a dict
    of some. Descriptions, reports, displays and tables of effects show them, and files keep them.
clusterings_ : DataFrame of shape (K, 12) or dict of list
    A row for each number of clusters from 1 to K, "n_clusters". A join makes one cluster of two,
    so that the next lower number of clusters is left. The other columns are:

    - "how" the clusters are made: they are "joined", or the "components" themselves.
    - "loss": what the join of two of these clusters loses, in nats per row. "loss", "valley" and
      "valley_test" are NaN for one cluster.
    - "criterion" of this join: "valley", "entropy" or "evidence", see ``hierarchy_``.
    - "valley": by how many nats the log density of rows between the two clusters is lower than
      within either cluster. It is infinite if no row is between them, and NaN for components
      without rows and for several blocks of columns.
    - "valley_test": the larger of the statistics of two tests, in standard errors. The first test
      compares the number of rows between the two clusters with the number in a flat stretch. The
      second test compares the lower of the two peaks with the density that connects the clusters.
      The value is infinite if the clusters do not touch, and NaN for more than three columns and
      without Gaussians.
    - "bound": the bound of the mixture whose components are the clusters, in nats, with the joined
      responsibilities. It is an estimate if the hierarchy was built from a sample of the rows, and
      NaN for "structured" inference, for known weights, and after ``partial_fit``.
    - "refitted_bound": the bound after a few further passes of this mixture, without moves. It is
      NaN if rows have classes.
    - "agreement": the mean adjusted Rand index with other fits.
    - "suggested_by": the share of the fits that suggest the number. The columns "refitted_bound",
      "agreement" and "suggested_by" are NaN until ``compare_clusterings`` is called.
    - "suggested": whether the number is suggested.
    - "reason": why, as a sentence.

    It is a dict of lists if pandas cannot be imported.
column_relevance_ : ndarray of shape (K, n_columns)
    The evidence of ``block_relevance_``, for each column. The values of independent columns add
    up to the value of their block. With full covariances, and for counts of tokens, the value of
    a column is its evidence if there were no other columns. The columns of a spherical block have
    equal shares of the block's value.
component_classes_ : ndarray of shape (K,)
    With ``use_labels=True``, the class of each component. It is the class of the component's rows
    with a label, or -1 if no row of the component has a label. ``component_classes_[predict(X)]``
    are the classes of new rows. The array has numbers, or objects if classes are strings.
components_ : ndarray of shape (n_components, n_features)
    Variational Dirichlet parameters lam of the topics: expected counts of words plus the prior.
converged_ : bool
    Whether the fit stopped on convergence.
covariate_coef_ : {ndarray, DataFrame} of shape (n_components, n_terms)
    Effects of covariates on ``log(alpha)``, the intercept first. If the covariates of ``fit`` were
    a data frame, this is a data frame with the names of the terms. Fits without covariates do not
    have the attribute.
doc_topic_prior_ & topic_word_prior_ : float or ndarray
    The priors as used or learned.
elbo_ & lower_bound_ : float
    Evidence lower bound of the training data in nats, every constant included. It is not available
    after ``partial_fit``, see ``elbo``.
exp_dirichlet_component_ : ndarray of shape (n_components, n_features)
    ``exp(E[log beta])``.
feature_names_in_ : ndarray of shape (`n_features_in_`,)
    Column names, if X had any.
hierarchy_ : ndarray of shape (K - 1, 4)
    Linkage matrix of components successively joined into clusters, as
    :func:`scipy.cluster.hierarchy.dendrogram` takes it. Gaussians in up to three columns are joined
    first if no valley of the density separates them. Other components are joined first if the
    assignments of rows between them are least certain. The later joins are joins of clusters that
    lose least evidence if they become one component; the loss is weighted by how certain the
    assignments of rows are and how deep a valley is between the two clusters. The heights are the
    sums of the losses so far in nats per row: losses of the entropy of the assignments of the rows
    of ``fit``, and then losses of evidence. The matrix is not available after ``partial_fit``, see
    ``join_components``.
hierarchy_criteria_ : ndarray of str, shape (K - 1,)
    Criterion by which each pair was chosen, "valley", "entropy" or "evidence".
history_ : dict of lists
    Lists of the same length by name: "n_iter", "elbo", "objective", "temperature", "learning_rate",
    "n_components", "seconds". Each list has an entry for each pass of ``fit``, including the passes
    before a warm start, and for each call of ``partial_fit``, whose bounds are NaN.
history_ (memoized) : dict of lists
    Lists of the same length by name: "n_iter", "elbo", "objective", "temperature", "learning_rate",
    "n_components", "seconds". Each list has an entry for each pass of ``fit``, including the passes
    before a warm start, and for each call of ``partial_fit``, whose bounds are NaN. With "online",
    the bounds are estimates from the minibatches of the pass, except where ``evaluate_every``
    requests exact ones.
labels_ : ndarray of int, shape (n_samples,)
    Most probable component of each row of the last call of ``fit`` or ``partial_fit``. With
    ``labels="clusters"``, which some mixtures have, it is the most probable cluster. It does not
    exist after calls with chunks of Dask: use ``predict``.
lower_bounds_ : list of float
    ``history_["elbo"]``.
move_log_ : dict of lists
    The proposals of moves, printed as a table; ``move_log_.to_frame()`` is a data frame. The
    columns are the pass "n_iter", the "move", the components "target" by their numbers at the time,
    what was "tried", the number of proposals "proposed", the number of components added, merged or
    deleted ("accepted"), the "gain" in nats, NaN if it was not computed, and the "reason" as a
    sentence. If "proposed" exceeds 1, the entry stands for several births that were accepted
    together, or for several rejected merges, of which it shows the best.
n_active_components_ : int
    Number of components to which at least a thousandth of the data is expected to belong.
n_batch_iter_ : int
    Number of global updates so far.
n_clusters_ : int
    Number of clusters suggested. Two clusters that overlap lose much of the entropy of the
    assignments when they are joined. Pairs are joined that lose at least a tenth of the entropy
    that they could lose. If the entropy has an elbow, pairs before the elbow are joined if they
    lose at least a hundredth. The user guide tells what happens with too few rows, and with classes
    that overlap. ``predict(X, n_clusters="auto")`` gives these clusters.
n_clusters_reason_ : str
    Why this number is suggested.
n_components_ (memoized) : int
    Number of components K.
n_features_in_ : int
    Number of columns of X.
n_iter_ : int
    Number of passes of ``fit`` and calls of ``partial_fit`` so far, the length of ``history_``.
posterior_ : Posterior
    The posterior q: ``sample``, ``log_prob``, ``mean``, ``var``, ``entropy``.
restart_elbos_ : ndarray of shape (n_init,)
    ELBO of each start.
temperature_ : float
    Temperature T of the last step. If a stream ends at T > 1, its components are less distinct
    than at T = 1. More rows, or fewer ``total_samples``, would bring T to 1.
topic_labels_ : list of str or None
    Names of topics, which you may set as a list of all or as a dict of some. The other topics
    are named by their first three words. ``get_feature_names_out`` and
    :func:`skvt.topic_table` show the names, and files keep them. Names stay at their indices in a
    warm start, in which moves may exchange topics unless ``moves=()``.
weight_concentration_ : ndarray of shape (2, K) or (K,)
    Parameters (a, b) of q(v_k) = Beta. With "dirichlet_distribution", the parameters of the
    Dirichlet posterior q(w) of the weights, (K,).
weight_concentration_prior_ : float
    Concentration of the prior of the weights: the given value, the default value or the learned
    value.
weights_ : ndarray of shape (K,)
    Expected weights, divided by their sum. The sum is less than 1 if the prior leaves some weight
    to components that have no rows yet.
words_ : ndarray of shape (`n_features_in_`,)
    Names of the columns: those given to ``set_words``, otherwise the column names of X, if X had
    any.
"""

import inspect
import re

# The groups of a match are the label, the type, and the indented text of an entry of the docstring
# above. The text may have blank lines, which separate paragraphs.
_ENTRY = re.compile(r"^(\S.*?) : (.*)\n((?:    .*\n|\n(?=    ))+)", re.MULTILINE)
# The group of a match is the list of labels, separated by commas, in a line of another docstring.
_LINE = re.compile(r"^ *\.\. shared: (.*)$", re.MULTILINE)
# The type and the text of each entry by its label, such as "moves (memoized)".
_ENTRIES = {label: (type_, text) for label, type_, text in _ENTRY.findall(__doc__ or "")}


def with_shared_texts(cls):
    """Replace the lines ``.. shared:`` in the docstring of a class by entries; return the class."""
    # Under python -OO, classes have no docstrings.
    if not cls.__doc__:
        return cls
    parameters = inspect.signature(cls).parameters

    def make_entry(label):
        """Return the entry of a label, with the default value if the entry is of a parameter."""
        type_, text = _ENTRIES[label]
        # Remove the mark "(memoized)", "(topics)" or "(factors)".
        names = re.sub(r" \(\w+\)$", "", label).replace(" & ", ", ")
        first_name = names.partition(",")[0]
        if first_name in parameters:
            # Write "auto" and 1e-3 as the docstrings of other parameters do.
            default = repr(parameters[first_name].default).replace("'", '"').replace("e-0", "e-")
            type_ = f"{type_}, default={default}"
        return f"{names} : {type_}\n{text}"

    def make_entries(line):
        """Return the entries of the labels of a line, which is a match of _LINE."""
        return "\n".join(map(make_entry, line[1].split(", "))).rstrip()

    cls.__doc__ = _LINE.sub(make_entries, inspect.cleandoc(cls.__doc__)) + "\n"
    return cls
