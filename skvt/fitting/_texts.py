"""Descriptions of parameters and attributes that several estimators share.

A line ``.. shared: n_init, n_jobs`` in the docstring of a class stands for the entries of these
names below; indented lines after it continue the last of these entries. Defaults are taken from the
signature. If a name has several texts, all but one are marked "(memoized)", "(topics)" or
"(factors)". A line names such a text with its mark, as in ``.. shared: moves (memoized)``, and the
docstring gets the name without the mark. Names that share one text are joined by "&".

Parameters
----------
batch_size : int
    Number of rows in a minibatch.
components_init : array-like of shape (n_components, n_features) or None
    Initial topics, instead of random ones, such as ``components_`` of another fit. Each row is
    divided by its sum to give the probabilities of words. Zeros are allowed, since the prior
    makes each word possible. Each topic begins with an equal part of the tokens.
    ``temperature="annealed"`` is then T = 1 throughout, since annealing would destroy the
    initial topics; other temperatures are used as given. If two topics become the same, moves
    may replace one of them by another topic; ``moves=()`` keeps each topic in its place.
evaluate_every : int
    Number of passes between evaluations of the bound on all data; 0 or a negative number means
    never. Memoized inference knows the bound after each pass. With "online", convergence is
    judged at these evaluations only.
init_params : {"k-means++", "random", "random_from_data"}
    How the initial components are found: from rows as seeds, drawn with probabilities that grow
    with how badly the earlier seeds explain a row; from random responsibilities; or from rows
    as seeds, drawn uniformly.
labels : {"components", "clusters"}
    What ``labels_``, ``fit_predict``, ``predict`` and ``predict_proba`` number unless asked for
    something else: the components, or the ``n_clusters_`` clusters that they are joined to. After
    ``partial_fit`` it is the components, because this method joins none.
labels_init : array-like of shape (n_samples,) or None
    Initial component of each row of ``fit``, instead of those found by ``init_params``: there
    are as many components as distinct labels, regardless of ``n_components``. -1 means unknown:
    such a row starts in the component that explains it best. Give labels of rows of positive
    weight only.
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
    Down-weights early steps; at least 1.
max_components : int or None
    Maximum number of components that births may reach. None is 200, or 400 in topic models,
    or twice ``n_components`` if that is more. With None, a ConvergenceWarning says if births would
    go on.
max_doc_update_iter : int
    Maximum number of sweeps in a document's local step.
max_iter : int
    Maximum number of passes over the data.
mean_change_tol : float
    A document's local step has converged when its topic weights (in tokens) change by less than
    this on average.
moves : tuple of {"split-merge"}
    Moves that may be made; ``()`` is none. After a pass of ``fit`` at T = 1, a topic that mixes two
    themes is split, and two topics that share one are merged to make room, where this raises the
    bound on a sample of the documents. Moves begin after half of the passes or after the tenth
    pass, whichever comes first. They are not made after the last pass.
moves (memoized) : tuple of {"birth", "merge", "delete"}
    Moves that may be made; ``()`` is none. They are made at the end of each pass; without them,
    ``n_components`` stays fixed.
n_batches & batch_size : int or None
    Number of batches of consecutive rows into which ``fit`` divides the data, or number of rows
    per batch; give at most one of them. None is about 10 batches of 1,000 to 50,000 rows.
n_burn_in : int
    Number of sweeps of the sampler over a row before any is kept.
n_components : int
    Number of components K.
n_components (memoized) : int
    Initial number of components; without moves it does not change.
n_init : int
    Number of starts of ``fit``; the one with the highest bound is kept.
n_jobs : int or None
    Number of threads. The result does not depend on it, to the last bit.
n_parallel_batches : int or None
    Number of batches that are visited at once, with the same global parameters. Minibatches that
    are visited at once make one step, on all of their rows. It changes the result; ``n_jobs`` and
    the number of workers of a cluster do not. None is 1. For rows of Dask, None is the number of
    chunks, at most 8, with a minibatch of each.
n_parallel_batches (memoized) : int or None
    Number of batches that are visited at once, with the same global parameters. It changes the
    result; ``n_jobs`` and the number of workers of a cluster do not. None is 1. For rows of Dask,
    None is a tenth of the batches and, with "online", the number of chunks, at most 8, with a
    minibatch of each.
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
    row. Convergence is not judged while T > 1 or a move has something left to try. If
    ``max_iter`` passes do not suffice, there is a
    :class:`~sklearn.exceptions.ConvergenceWarning`.
tol (topics) : float or None
    Converged when the bound gains less than this from one evaluation to the next, in nats per
    word; if given, it is used instead of ``perp_tol``.
total_samples : float or None
    Assumed number of rows of the whole stream in ``partial_fit``. If given, the temperature of a
    stream reaches 1 after at most half of these rows. None is a million for a stream started by
    ``partial_fit``, and after ``fit`` the number of its rows plus those seen since.
total_samples (memoized) : float or None
    Assumed number of rows of the whole stream in ``partial_fit``. If given, the temperature of a
    stream reaches 1 after at most half of these rows. None is, with "memoized" and "batch", the
    number of rows seen; otherwise a million for a stream started by ``partial_fit``, and after
    ``fit`` the number of its rows plus those seen since.
use_labels : bool
    Whether ``y`` of ``fit`` and ``partial_fit`` are classes of rows, -1 where unknown (in arrays of
    objects also None and NaN). The fit begins with a component for each class, so that
    ``n_components`` is at most their number. Rows of a known class belong to components of that
    class alone; other rows may belong to any component. A component that births find among rows
    without a label has the class -1, see ``component_classes_``. The bound ``elbo_`` is exact:
    ``log p(y_n | z_n = k)`` is 0 if component k may have the class of row n, and minus infinity
    otherwise. A class that appears in a later call or in a warm start gets a component. If False,
    ``y`` is ignored. It cannot be combined with ``resume``, rows in chunks, and other parameters
    for the start.
verbose : int
    If positive, print the choices made before the first pass, a line per pass of ``fit`` or call of
    ``partial_fit``, and what the fit is doing if there was no line for ten seconds.
verbose_interval : int
    Number of passes or calls from one printed line to the next.
warm_start : bool
    Whether another call of ``fit`` continues from the posterior, step number and temperature of
    the last one.

Attributes
----------
block_relevance_ : ndarray of shape (K, n_blocks)
    Evidence that the rows of a component and all other rows have different parameters in a
    block: the log Bayes factor against equal parameters in nats, divided by the component's
    number of rows. If positive, the block distinguishes the component from the rest. Components
    of less than one row count as one row.
bound_ : float
    Perplexity of the training data by the bound, ``exp(-elbo_ / words)``, as in scikit-learn.
    That of held-out words is ``perplexity(X)``.
clusterings_ : DataFrame of shape (K, 12) or dict of list
    A row for each number of clusters from 1 to K, "n_clusters". The other columns are:

    - "how" the clusters are made: they are "joined", or the "components" themselves.
    - "loss": what the join from this number to the next lower one loses, in nats per row. It is NaN
      for one cluster, as "valley" and "valley_test" are.
    - "criterion" of this join: "valley", "entropy" or "evidence", see ``hierarchy_``.
    - "valley": by how many nats the log density of rows between the two clusters is lower than
      within either. It is infinite if no row is between them, and NaN for components without rows
      and for several blocks of columns.
    - "valley_test": the larger of two tests, in standard errors: by how much rows between the two
      are fewer than in a flat stretch, and by how much the lower peak is above the density that
      connects the two. It is infinite if the two do not touch, and NaN for more than three columns
      and without Gaussians.
    - "bound": that of the mixture whose components are the clusters, in nats, with the joined
      responsibilities. It is an estimate if the hierarchy was built from a sample of the rows, and
      NaN for "structured" inference, for known weights, and after ``partial_fit``.
    - "refitted_bound": the bound after a few passes without moves from there. NaN if rows have
      classes.
    - "agreement": the mean adjusted Rand index with other fits.
    - "suggested_by": the share of the fits that suggest the number. The columns "refitted_bound",
      "agreement" and "suggested_by" are NaN until ``compare_clusterings`` is called.
    - "suggested": whether the number is suggested, and the "reason" in a sentence.

    It is a dict of lists if pandas cannot be imported.
column_relevance_ : ndarray of shape (K, n_columns)
    The evidence of ``block_relevance_``, for each column. The values of independent columns add
    up to that of their block; with full covariances, and for counts of tokens, the value is that
    of the column by itself; columns of a spherical block have equal shares of the block's value.
component_classes_ : ndarray of shape (K,)
    With ``use_labels=True`` the class of each component: that of its rows with a label, -1 if no
    row has one. ``component_classes_[predict(X)]`` are the classes of new rows. An array of
    numbers, or of objects if classes are strings.
components_ : ndarray of shape (n_components, n_features)
    Variational parameters lam of the topics: pseudo-counts, prior included.
converged_ : bool
    Whether the fit stopped on convergence.
covariate_coef_ : {ndarray, DataFrame} of shape (n_components, n_terms)
    Effects of covariates on ``log(alpha)``, the intercept first. A data frame has the names of the
    terms; it is used if the covariates of ``fit`` were a data frame. Fits without covariates do not
    have the attribute.
doc_topic_prior_ & topic_word_prior_ : float or ndarray
    The priors as used or learned.
elbo_ & lower_bound_ : float
    Evidence lower bound of the training data in nats, every constant included. Not available
    after ``partial_fit``, see ``elbo``.
exp_dirichlet_component_ : ndarray of shape (n_components, n_features)
    ``exp(E[log beta])``.
feature_names_in_ : ndarray of shape (`n_features_in_`,)
    Column names, where X had any.
hierarchy_ : ndarray of shape (K - 1, 4)
    Linkage matrix of components successively joined into clusters, as
    :func:`scipy.cluster.hierarchy.dendrogram` takes it. In up to three columns, the first joins are
    of components that no valley separates, and otherwise of those between which the assignments of
    rows are least certain. The next joins are of clusters that lose least evidence as one
    component, weighted by how certain rows are and how deep a valley is between the two. Its
    heights are what has been lost so far, in nats per row: entropy of the assignments of the rows
    of ``fit``, then evidence. Not available after ``partial_fit``, see ``join_components``.
hierarchy_criteria_ : ndarray of str, shape (K - 1,)
    Criterion by which each pair was chosen, "valley", "entropy" or "evidence".
history_ : dict of lists
    One entry per pass of ``fit``, including those of earlier warm starts, and one per call of
    ``partial_fit``, without bounds (NaN): "n_iter", "elbo", "objective", "temperature",
    "learning_rate", "n_components", "seconds".
history_ (memoized) : dict of lists
    One entry per pass of ``fit``, including those of earlier warm starts, and one per call of
    ``partial_fit``, without bounds (NaN): "n_iter", "elbo", "objective", "temperature",
    "learning_rate", "n_components", "seconds". With "online", the bounds are estimates from the
    minibatches of the pass, except where ``evaluate_every`` requests exact ones.
labels_ : ndarray of int, shape (n_samples,)
    Most probable component of each row of the last call of ``fit`` or ``partial_fit``. With
    ``labels="clusters"``, which some mixtures have, it is the most probable cluster. It does not
    exist after calls with chunks of Dask: use ``predict``.
lower_bounds_ : list of float
    ``history_["elbo"]``.
move_log_ : dict of lists
    One entry for each proposal, printed as a table; ``move_log_.to_frame()`` is a data frame: the
    pass "n_iter", the "move", the components "target" by their numbers at the time, what was
    "tried", the number of components added, merged or deleted ("accepted"), the "gain" in nats, NaN
    if it was not computed, and the "reason" as a sentence. If "proposed" exceeds 1, the entry
    stands for several births that were accepted together, or for several rejected merges, of which
    it shows the best.
n_active_components_ : int
    Number of components to which at least a thousandth of the data is expected to belong.
n_batch_iter_ : int
    Number of global updates so far.
n_clusters_ : int
    Number of clusters suggested. Pairs are joined that lose at least a tenth of the entropy
    that they could lose. If the entropy has an elbow, pairs before it are joined that lose at
    least a hundredth. The user guide tells what happens with too few rows, and with classes that
    overlap. ``predict(X, n_clusters="auto")`` gives these clusters.
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
    Temperature T of the last step. A stream that ends above 1 has not cooled: its components are
    blurred, and more rows, or fewer ``total_samples``, would bring it to 1.
topic_labels_ : list of str or None
    Names of topics, which you may set as a list of all or as a dict of some. The other topics
    are named by their first three words. ``get_feature_names_out`` and
    :func:`skvt.topic_table` show them, and files keep them.
weight_concentration_ : ndarray of shape (2, K) or (K,)
    Parameters (a, b) of q(v_k) = Beta. With "dirichlet_distribution", the concentration of q(w)
    = Dirichlet, (K,).
weight_concentration_prior_ : float
    Concentration of the prior of the weights, as given, by default or learned.
weights_ : ndarray of shape (K,)
    Expected weights, normalised without the mass of components that have no rows yet.
words_ : ndarray of shape (`n_features_in_`,)
    The words given to ``set_words``, else the column names of X, if it had any.
"""

import inspect
import re

# An entry of the docstring above: its label, its type, and its indented text. The text may have
# blank lines, which separate paragraphs.
_ENTRY = re.compile(r"^(\S.*?) : (.*)\n((?:    .*\n|\n(?=    ))+)", re.MULTILINE)
# A line of another docstring that stands for entries: their labels, separated by commas.
_LINE = re.compile(r"^ *\.\. shared: (.*)$", re.MULTILINE)
# The type and the text of each entry by its label, such as "moves (memoized)".
_ENTRIES = {label: (kind, text) for label, kind, text in _ENTRY.findall(__doc__ or "")}


def with_shared_texts(cls):
    """Replace the lines ``.. shared:`` in the docstring of a class by entries; return the class."""
    # Under python -OO, classes have no docstrings.
    if not cls.__doc__:
        return cls
    parameters = inspect.signature(cls).parameters

    def make_entry(label):
        """Return the entry of a label, with the default if it describes a parameter."""
        kind, text = _ENTRIES[label]
        # Remove the mark "(memoized)", "(topics)" or "(factors)".
        names = re.sub(r" \(\w+\)$", "", label).replace(" & ", ", ")
        first_name = names.partition(",")[0]
        if first_name in parameters:
            # Write "auto" and 1e-3 as the docstrings of other parameters do.
            default = repr(parameters[first_name].default).replace("'", '"').replace("e-0", "e-")
            kind = f"{kind}, default={default}"
        return f"{names} : {kind}\n{text}"

    def make_entries(line):
        """Return the entries of the labels of a matched line."""
        return "\n".join(map(make_entry, line[1].split(", "))).rstrip()

    cls.__doc__ = _LINE.sub(make_entries, inspect.cleandoc(cls.__doc__)) + "\n"
    return cls
