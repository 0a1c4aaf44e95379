"""Dirichlet process mixtures of rows of any columns: real, categorical, binary and counts."""

from skvt.components.specs import BY_NAME, built, learner_of
from skvt.estimators._description import DescriptionMixin
from skvt.estimators._imputation import ColumnMixin, ImputeMixin
from skvt.estimators._mixtures import MixtureEstimator, learned_values
from skvt.estimators._moves_mixin import (
    MovesMixin,
    begun_with_labels,
    sticks,
)
from skvt.estimators._parameters import AUTO, MEMOIZED_CONSTRAINTS
from skvt.models.mixture import Block, Product, ProductLearner, as_slice, of_block
from skvt.posterior import JointPosterior, Posterior
from skvt.readers import TableReader, levels
from skvt.sklearn_private import StrOptions

MOVES = ("birth", "merge", "delete")


class MemoizedDPMixture(ColumnMixin, DescriptionMixin, ImputeMixin, MovesMixin, MixtureEstimator):
    """Dirichlet process mixture of rows of any columns that finds its number of components.

    Tables may have real, ordinal, categorical, binary and count columns, and missing values, which
    are integrated out. Blocks of columns are conditionally independent given the component of a
    row, and each block has its own likelihood. Components are born, merged and deleted during the
    fit as the data support them, by memoized inference [HS13]_, as in
    :class:`~skvt.MemoizedDPGMM`.

    Parameters
    ----------
    n_components : int, default=1
        Initial number of components; without moves it does not change.

    components : "auto" or list of tuple, default="auto"
        What the columns are: ``(name, component, columns)`` for each block, as in scikit-learn's
        :class:`~sklearn.compose.ColumnTransformer`. A component is an object of
        :mod:`skvt.components`, or the name of one: "gaussian", "categorical", "bernoulli",
        "poisson", "multinomial". Columns are names, positions, slices, boolean masks, or a callable
        such as :func:`~sklearn.compose.make_column_selector`; those not listed are left out. "auto"
        takes columns by their types: booleans for Bernoulli ("flags"), strings, objects and
        categories for Categorical ("categories"), other numbers for Gaussian("diag") ("numbers"),
        those with a point mass for Hurdle(Gaussian("diag")) ("hurdles"); a sparse matrix for
        Multinomial ("counts"). A point mass is zero, the smallest or the largest value of a column
        if more than a tenth of its values are this one, and the others more than ten different
        ones, or as many as half of their number. Nested parameters are
        ``components__<name>__<parameter>``.

    handle_unknown : {"error", "missing"}, default="error"
        Whether categories that did not occur in ``fit`` are an error, or treated as missing values.

    max_components : int, default=200
        Maximum number of components that births may reach.

    weight_concentration_prior : float, "auto" or None, default=None
        Concentration alpha of the weights; None is 1. The larger, the more components. "auto"
        starts with 1 and learns it, between 0.001 and 1,000, at the maximum of the bound. Priors of
        :mod:`skvt.components` that are "auto" are learned likewise.

    init_params : {"k-means++", "random", "random_from_data"}, default="k-means++"
        How the initial components are found: from rows as seeds, drawn with probabilities that grow
        with how badly the earlier seeds explain a row; from random responsibilities; or from rows
        as seeds, drawn uniformly.

    labels_init : array-like of shape (n_samples,) or None, default=None
        Initial component of each row of ``fit``, instead of those found by ``init_params``: there
        are as many components as distinct labels, regardless of ``n_components``. -1 means unknown:
        such a row starts in the component that explains it best. Give labels of rows of positive
        weight only.

    learning_method : {"memoized", "online", "batch"}, default="memoized"
        How the posterior q is found. "memoized": memoized inference. "online": stochastic inference
        on shuffled minibatches, without moves. "batch": memoized inference with one batch, which is
        coordinate ascent.

    moves : tuple of {"birth", "merge", "delete"}, default=("birth", "merge", "delete")
        Moves that may be made; ``()`` is none. They are made at the end of each pass; without them,
        ``n_components`` stays fixed.

    n_batches, batch_size : int or None, default=None
        Number of batches of consecutive rows into which ``fit`` divides the data, or number of rows
        per batch; give at most one of them. None is about 10 batches of 1,000 to 50,000 rows.

    n_parallel_batches : int or None, default=None
        Number of batches that are visited at once, with the same globals. It changes the result;
        ``n_jobs`` and the number of workers of a cluster do not. None is 1, and for rows of Dask a
        tenth of the batches, or one minibatch of each of up to 8 chunks.

    temperature : None, str or policy, default=None
        None is T = 1 throughout; otherwise a policy of :mod:`skvt.temperature`, or its name.
        Policies that learn the temperature are refused. Moves are made only at T = 1.

    learning_decay : float, default=0.7
        How fast step sizes decrease. With "online", step number t has size ``(learning_offset + t)
        ** -learning_decay``.

    learning_offset : float, default=10.0
        Down-weights early steps; at least 1.

    total_samples : float or None, default=None
        Assumed number of rows of the whole stream in ``partial_fit``. None is, with "memoized" and
        "batch", the number of rows seen; otherwise a million for a stream started by
        ``partial_fit``, and after ``fit`` the number of its rows plus those seen since.

    max_iter : int, default=100
        Maximum number of passes over the data.

    tol : float, default=1e-5
        Converged when the bound gains less than this from one evaluation to the next, in nats per
        row. Convergence is not judged while T > 1 or a move has something left to try. If
        ``max_iter`` passes do not suffice, there is a
        :class:`~sklearn.exceptions.ConvergenceWarning`.

    evaluate_every : int, default=-1
        Number of passes between evaluations of the bound on all data; 0 or a negative number means
        never. Memoized inference knows it anyway. With "online", convergence is judged at these
        evaluations only.

    n_init : int, default=1
        Number of starts of ``fit``; the one with the highest bound is kept.

    warm_start : bool, default=False
        Whether another call of ``fit`` continues from the posterior, step number and temperature of
        the last one.

    n_jobs : int or None, default=None
        Number of threads. The result does not depend on it, to the last bit.

    verbose : int, default=0
        Print one line per pass if positive.

    random_state : int, RandomState instance or None, default=None
        Source of randomness. It determines the initial components, the order of the batches, and
        the rows on which births are fitted.

    Attributes
    ----------
    n_components_ : int
        Number of components K. It is found by the fit.

    n_active_components_ : int
        Number of components to which at least a thousandth of the data is expected to belong. Data
        are rows.

    weights_ : ndarray of shape (K,)
        Expected weights, normalised: the mass of components not yet seen is left out.

    labels_ : ndarray of int, shape (n_samples,)
        Most probable component of each row of ``fit``. There is none after ``partial_fit`` and of
        chunks of Dask: ``predict``.

    blocks_ : list of tuple
        ``(name, component, columns)`` of each block as fitted: an object of :mod:`skvt.components`,
        and the columns' names (positions without names).

    categories_ : dict
        The categories of each column, in the order of their codes, by the name of the block: arrays
        of their type, or of objects where they have several.

    priors_ : dict of dict
        Parameters of the priors as used or learned, by the block's name.

    block_relevance_ : ndarray of shape (K, n_blocks)
        Evidence that the rows of a component have parameters of their own in a block, rather than
        those of all other rows: the log Bayes factor of the two hypotheses in nats, divided by the
        component's number of rows. If positive, the block distinguishes the component from the
        rest. Components of less than one row count as one row.

    column_relevance_ : ndarray of shape (K, n_columns)
        The same for each column. The values of independent columns add up to that of their block;
        with full covariances, and for counts of tokens, the value is that of the column by itself;
        columns of a spherical block have equal shares of the block's value.

    weight_concentration_ : ndarray of shape (2, K)
        Parameters (a, b) of q(v_k) = Beta.

    hierarchy_ : ndarray of shape (K - 1, 4)
        Linkage matrix of components successively joined into clusters, first those between which
        the assignments of rows are least certain, then those that lose least evidence as one
        component, as :func:`scipy.cluster.hierarchy.dendrogram` takes it. Its heights are what has
        been lost so far, in nats per row: entropy of the assignments of the rows of
        ``fit``, then evidence. Not available after ``partial_fit``, see ``join_components``.

    hierarchy_criteria_ : ndarray of str, shape (K - 1,)
        What chose each pair, "entropy" or "evidence".

    n_clusters_ : int
        Number of clusters suggested. Pairs are joined that lose at least a tenth of the entropy
        that they could lose; and where the entropy has an elbow, also pairs before it that lose at
        least a hundredth. See the user guide for rows that are too few for that, and for classes
        that overlap. ``predict(X, n_clusters="auto")`` gives these clusters.

    n_clusters_reason_ : str
        Why this number is suggested.

    elbo_, lower_bound_ : float
        Evidence lower bound of the training data in nats, every constant included. Not available
        after ``partial_fit``, see ``elbo``.

    history_ : dict of lists
        One entry per pass of ``fit``, including those of earlier warm starts, and one per call of
        ``partial_fit``, without bounds (NaN): "n_iter", "elbo", "objective", "temperature",
        "learning_rate", "n_components", "seconds". With "online", the bounds are estimates from the
        minibatches of the pass, except where ``evaluate_every`` requests exact ones.

    lower_bounds_ : list of float
        ``history_["elbo"]``.

    move_log_ : dict of lists
        One entry for each kind of move due in a pass: "n_iter", "move", "proposed", "accepted",
        "gain" (nats), "reason". The gain of births is that of the components adopted in the pass.
        If a birth does not raise the bound, it is undone together with the other moves of the same
        pass. The reason is why births came to nothing: for each, the rows that were to be divided,
        and by how many nats the best proposal fell short.

    weight_concentration_prior_ : float
        Concentration of the weights as used.

    restart_elbos_ : ndarray of shape (n_init,)
        ELBO of each start.

    n_batch_iter_ : int
        Number of global updates so far.

    converged_ : bool
        Whether the fit stopped on convergence.

    n_iter_ : int
        Number of passes of ``fit`` and calls of ``partial_fit`` so far, the length of ``history_``.

    posterior_ : JointPosterior
        The posterior q: ``sample``, ``log_prob``, ``mean``, ``var``, ``entropy``. Its blocks are
        the "weights" (sticks) and "components", again a joint posterior with a block for each of
        ``blocks_``.

    n_features_in_ : int
        Number of columns of X.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names, where X had any.

    See Also
    --------
    skvt.MemoizedDPGMM : The same for real columns with a joint covariance matrix.
    skvt.StructuredBernoulliMixture : Binary rows, by structured inference.

    Notes
    -----
    Memory: the memo of a batch holds ``K (P + K)`` numbers of 8 bytes, P the features of all
    blocks: ``d (d + 3) / 2 + 1`` of a "full", "tied" or latent Gaussian block of d columns, ``3 d``
    of a "diag" one, ``2 d + 2`` of a "spherical" one, the number of categories of categorical
    columns, ``2 d`` of binary columns, ``2 d + 1`` of Poisson columns, d of a multinomial block.

    References
    ----------
    .. [HS13] M. C. Hughes and E. B. Sudderth, "Memoized Online Variational Inference for Dirichlet
       Process Mixture Models", NeurIPS 2013.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from skvt import MemoizedDPMixture
    >>> rng = np.random.default_rng(0)
    >>> kind = rng.integers(3, size=600)
    >>> table = pd.DataFrame(
    ...     {
    ...         "length": rng.normal([0.0, 4.0, 8.0], 1.0, size=(600, 3))[np.arange(600), kind],
    ...         "colour": np.array(["red", "blue", "red"])[kind],
    ...         "striped": rng.random(600) < np.array([0.1, 0.5, 0.9])[kind],
    ...     }
    ... )
    >>> table.loc[::7, "length"] = np.nan
    >>> mixture = MemoizedDPMixture(random_state=0).fit(table)
    >>> mixture.n_components_
    3
    """

    _parameter_constraints = MEMOIZED_CONSTRAINTS | {
        "components": [AUTO, list, tuple],
        "handle_unknown": [StrOptions({"error", "missing"})],
    }

    _fixed_parameters = ("n_components", "components", "weight_concentration_prior")
    _reads = TableReader

    def __init__(
        self,
        n_components=1,
        *,
        components="auto",
        handle_unknown="error",
        max_components=200,
        weight_concentration_prior=None,
        init_params="k-means++",
        labels_init=None,
        learning_method="memoized",
        moves=MOVES,
        n_batches=None,
        batch_size=None,
        n_parallel_batches=None,
        temperature=None,
        learning_decay=0.7,
        learning_offset=10.0,
        total_samples=None,
        max_iter=100,
        tol=1e-5,
        evaluate_every=-1,
        n_init=1,
        warm_start=False,
        n_jobs=None,
        verbose=0,
        random_state=None,
    ):
        self.n_components = n_components
        self.components = components
        self.handle_unknown = handle_unknown
        self.max_components = max_components
        self.weight_concentration_prior = weight_concentration_prior
        self.init_params = init_params
        self.labels_init = labels_init
        self.learning_method = learning_method
        self.moves = moves
        self.n_batches = n_batches
        self.batch_size = batch_size
        self.n_parallel_batches = n_parallel_batches
        self.temperature = temperature
        self.learning_decay = learning_decay
        self.learning_offset = learning_offset
        self.total_samples = total_samples
        self.max_iter = max_iter
        self.tol = tol
        self.evaluate_every = evaluate_every
        self.n_init = n_init
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    # --------------------------------------------------------------------------- parameters
    def get_params(self, deep=True):
        """Parameters by name.

        Parameters
        ----------
        deep : bool, default=True
            Whether to include those of the components, as ``components__<name>`` and
            ``components__<name>__<parameter>``.

        Returns
        -------
        dict
            Values by name.
        """
        params = super().get_params(deep=deep)
        if deep:
            for name, component, _ in _triples(self.components):
                params[f"components__{name}"] = component
                if not isinstance(component, str):
                    own = component.get_params(deep=True)
                    params |= {f"components__{name}__{key}": own[key] for key in own}
        return params

    def set_params(self, **params):
        """Set parameters, including those of components.

        Parameters
        ----------
        **params : dict
            ``components__<name>`` replaces a component, ``components__<name>__<parameter>`` sets a
            parameter of it.

        Returns
        -------
        self : MemoizedDPMixture
            The estimator itself.
        """
        own = {name: params[name] for name in params if not name.startswith("components__")}
        super().set_params(**own)
        nested = {name: params[name] for name in params if name not in own}
        # components before their parameters
        for name in sorted(nested, key=lambda name: name.count("__")):
            self._set_component(name.removeprefix("components__"), nested[name])
        return self

    def _set_component(self, path, value):
        """Replace a component, or set a parameter of it; neither changes the list as given."""
        name, _, parameter = path.partition("__")
        blocks = _triples(self.components)
        places = [place for place, block in enumerate(blocks) if block[0] == name]
        if not places:
            known = [block[0] for block in blocks] or "'auto', which has no parameters to set"
            raise ValueError(
                f"Invalid parameter 'components__{path}' for estimator {type(self).__name__}: "
                f"components are {known}."
            )
        _, component, columns = blocks[places[0]]
        if parameter:
            component = BY_NAME[component]() if isinstance(component, str) else component
            component.set_params(**{parameter: value})
            value = component
        blocks[places[0]] = (name, value, columns)
        self.components = blocks

    # --------------------------------------------------------------------------------- model
    @property
    def _most_components(self):
        return self.max_components

    def _check_combinations(self):
        super()._check_combinations()
        if self.max_components < self.n_components:
            raise ValueError(
                f"The 'max_components' parameter must be in the range [n_components, inf) = "
                f"[{self.n_components}, inf). Got {self.max_components} instead."
            )

    def _build_model(self, X, weights):
        model = super()._build_model(X, weights)
        return begun_with_labels(model, self.labels_init, X, weights, self.max_components)

    def _build_weights(self):
        return sticks(self.weight_concentration_prior)

    def _build_component(self, X, weights):
        blocks, self.priors_ = [], {}
        for block in self._table.blocks:
            values = X[:, as_slice(block.columns)]
            with of_block(block.name):
                component, priors = built(block.spec, values, weights, block.sizes)
            self.priors_[block.name] = priors
            blocks.append(Block(block.name, component, block.columns))
        return Product(tuple(blocks), X.shape[1], X.dtype)

    def _build_learner(self, component):
        learners = tuple(
            learner_of(own.spec, block.component)
            for own, block in zip(self._table.blocks, component.blocks, strict=True)
        )
        return ProductLearner(learners) if any(learners) else None

    def _published(self, model):
        learned = learned_values(model)
        priors = {name: self.priors_[name] | learned.get(name, {}) for name in self.priors_}
        return super()._published(model) | {"priors_": priors}

    # --------------------------------------------------------------------------- attributes
    @property
    def blocks_(self):
        """``(name, component, columns)`` of each block as fitted."""
        self._of_fit("blocks_")
        names = self._table.names
        return [
            (block.name, block.spec, [names[j] for j in block.columns])
            for block in self._table.blocks
        ]

    @property
    def categories_(self):
        """Categories of the columns of each block that has some, by the block's name."""
        self._of_fit("categories_")
        blocks = self._table.blocks
        return {
            block.name: list(map(levels, block.categories))
            for block in blocks
            if block.categories is not None
        }

    @property
    def posterior_(self):
        """q of the sticks, and of the components by block, in the coordinates of the data."""
        fitted = self._of_fit("posterior_")
        sticks, components = fitted.lam()
        return JointPosterior(
            weights=Posterior(fitted.model.weights.family, sticks),
            components=_posterior_of(fitted.model.component, components),
        )

    # --------------------------------------------------------------------------- inference
    def sample(self, n_samples=1, random_state=None):
        """Draw rows from the posterior predictive of the components in use.

        Parameters
        ----------
        n_samples : int, default=1
            Rows to draw.
        random_state : int, RandomState instance or None, default=None
            None uses the estimator's own.

        Returns
        -------
        X : ndarray or data frame of shape (n_samples, n_features)
            The rows drawn, in a container like that of ``fit``. A data frame has the columns that
            belong to a component; an array has all columns, NaN in those that belong to none.
        y : ndarray of int, shape (n_samples,)
            Component of each row, in ascending order as in scikit-learn.
        """
        X, labels = super().sample(n_samples, random_state)
        return self._table.rows_of(X), labels

    def _blocks(self, model):
        return model.component

    def _name_of(self, column):
        return self._table.names[column]

    def _values_of(self, column):
        return self._table.labels(column).tolist()

    @property
    def _reading(self):
        return self._table

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def _posterior_of(component, lam):
    """q of a component in the coordinates of the data, of a product by block."""
    parts = component.parts(lam)
    if not parts:
        return Posterior(*component.uncentred(lam))
    return JointPosterior(**{name: _posterior_of(*part) for name, part in parts.items()})


def _triples(components):
    """``(name, component, columns)`` of a list of blocks; none of anything else."""
    blocks = list(components) if isinstance(components, list | tuple) else []
    return blocks if all(isinstance(block, tuple) and len(block) == 3 for block in blocks) else []
