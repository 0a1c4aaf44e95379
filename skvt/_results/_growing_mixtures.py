"""Parameters and results of mixtures whose number of components changes.

The mixin describes components and clusters by their columns, fills in missing values, and gives
weights and classes of components. K is the number of components, or the number of clusters where
clusters are described. P is the number of features that a component computes from a row. The
columns of a table are divided into blocks. A component is a product of independent distributions,
one for each block. Lam are the natural parameters of the posterior q of the K components.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import scipy.sparse as sp

from skvt._results._display import make_clusters_table
from skvt._results._mixtures import compute_assignments
from skvt._results.profiles import (
    explain_columns,
    find_parts_that_differ,
    make_profiles,
    make_unique_names,
    make_wide_table,
    write_sentences,
)
from skvt._results.topic_tables import make_frame
from skvt.components import Gaussian
from skvt.expfam import Beta
from skvt.fitting import (
    AT_LEAST_ONE,
    MoveLogMixin,
    Temperature,
    fitted_property,
    hash_all_rows,
    model_property,
)
from skvt.inference import Workers
from skvt.models import count_active
from skvt.models.mixture import (
    Block,
    Product,
    have_large_shares,
    indicate_clusters,
    relevance,
)
from skvt.readers import Table, TableBlock
from skvt.readers.chunks import require_rows_in_memory
from skvt.readers.validation import (
    check_choice,
    check_probability,
    require_column_names,
    require_positive_int,
)
from skvt.ties import stable_argmax


@dataclass(eq=False, repr=False, kw_only=True)
class GrowingMixin(MoveLogMixin):
    """Mixin of mixtures that add, merge and delete components by moves."""

    init_params: str = "k-means++"
    labels: str = "components"
    moves: tuple[str, ...] = ("birth", "merge", "delete")
    n_batches: int | None = None
    batch_size: Annotated[int | None, None, AT_LEAST_ONE] = None
    n_parallel_batches: int | None = None
    temperature: Temperature = None
    learning_decay: float = 0.7
    learning_offset: float = 10.0
    total_samples: float | None = None
    tol: float = 1e-5
    evaluate_every: int = -1

    # Value of the parameter ``max_components`` if it is None.
    _default_max_components = 200
    weight_concentration_prior_ = model_property(
        "weights.concentration",
        "Concentration of the prior of the weights: the given or default one, or the learned one.",
    )

    # ------------------------------------------------------------------------------- columns
    @property
    def _columns(self):
        """The :class:`Table` that describes the columns of X, with the names of ``set_words``.

        An estimator that does not read tables gets a new one, with a single block of real columns.
        """
        if "_table" in vars(self):
            words = self._fitted.words
            return self._table if words is None else self._table.renamed(words.tolist())
        names = require_column_names(self, None, self.n_features_in_).tolist()
        block = TableBlock("columns", Gaussian(), np.arange(len(names)))
        return Table((block,), tuple(names), "error")

    # Displays of the estimator in notebooks call this method.
    _result_for_display = make_clusters_table

    def describe(self, level=0.95, n_clusters=None, *, form="long"):
        """Return the parameters of components or clusters in each column as a table.

        The long form has a row for each component and parameter. Its rows are sorted by component,
        and then by column in the order of ``column_relevance_``. A cluster is described as a single
        component to which all rows of the cluster belong: its statistics are the sums over its
        components, and its prior is the prior of a component.

        Parameters
        ----------
        level : float, default=0.95
            Posterior probability of the credible intervals, with equal tails.
        n_clusters : int, "auto" or None, default=None
            None describes components. A number describes the clusters into which ``hierarchy_``
            joins them, and "auto" the suggested ``n_clusters_`` clusters.
        form : {"long", "wide", "text"}, default="long"
            "long" has a row for each component and parameter. "wide" has a row for each component
            and a column for each column of the data. Its values are means, medians, rates,
            probabilities of a one, or the most probable categories. If a column has a point mass,
            its mean or rate is that of the other values, whose share has a column of its own, such
            as "cost: share not 0". "text" is a string with a line for each component: its share of
            the rows, and the columns that distinguish it most. Each of these columns has its value
            in the component and, in parentheses, its value in all rows. A standard deviation is
            followed by its average over components. If the share is small, the expected number of
            rows, or the sum of their weights, is shown beside it. A component is small if it has
            less than 5 % of the rows, or less than half of the mean share if that is less. A small
            component of fewer than 20 rows is marked: it may consist of unusual rows, and its
            values are closer to those of all rows than its rows are. Further lines count components
            without rows, and say at which values of given columns means are taken.

        Returns
        -------
        pandas.DataFrame, dict of lists or str
            The result is a string with ``form="text"``. Otherwise it is a data frame, or a dict of
            its columns as lists if pandas cannot be imported. The columns of the long form are:

            - "component" or, with ``n_clusters``, "cluster": number of the component as in
              ``weights_``, or of the cluster as in ``predict``.
            - "label": name of the cluster, if ``cluster_labels_`` names the suggested clusters and
              these are described.
            - "weight": expected share of the component or cluster in the rows.
            - "block", "column": names of the block and the column. A column without a name has its
              position.
            - "quantity": name of the parameter. Real columns have "mean" and "standard deviation".
              Columns in logarithms have "median" and "standard deviation of logarithm".
              "probability" is the probability of a one, of a category, or of a column of counts of
              tokens. Counts have "rate" for an exposure of 1, and negative binomials also have
              "dispersion". The rate of a :class:`~skvt.components.Hurdle` is that of the count
              minus the point mass minus 1. Columns with a point mass at 0 have "share not 0", and
              columns with informative missing values have "share observed". With given columns, a
              mean is the expected value at the means of the given columns, a standard deviation is
              that of the residuals, "slope of" a number or a level is its coefficient, and other
              parameters are averages over the rows of ``fit``.
            - "category": the value whose probability the row shows; otherwise missing (None).
            - "estimate": posterior mean, or posterior median of a standard deviation, in the units
              of the data.
            - "low", "high": ends of the credible interval, which is computed from the exact
              marginals of the posterior q. For covariances of low rank, it is computed from a
              normal-gamma for each column, which allows for the factors of the rows, whereas draws
              of ``posterior_`` do not allow for them. The interval of a cluster says how well its
              mean, probability or rate is known. The standard deviation of the cluster shows how
              far its components are apart; the interval does not.
            - "relevance": relevance of the column for the component, see ``column_relevance_``, or
              for the cluster, see ``column_relevance``.
            - "differs_in": "centre" or "spread", for columns that have both. The value names the
              larger part of the divergence between the normal of the component and the normal of
              the average component. It is missing (None) for other columns.
        """
        self._require_fitted()
        check_probability("level", level)
        check_choice("form", form, ("long", "wide", "text"))
        table, n_rows = self._describe_as_table(n_clusters, level)
        if form == "long":
            return make_frame(table)
        profiles = make_profiles(table)
        if form == "text":
            sentences = write_sentences(profiles, n_rows)
            return "\n".join(sentences + explain_columns(self._columns))
        return make_frame(make_wide_table(profiles))

    def _describe_as_table(self, n_clusters, level=0.95):
        """Return the long form of ``describe``, a dict of lists, and the expected rows (K,)."""
        fitted = self._require_fitted()
        kind = "component" if n_clusters is None else "cluster"
        indicators = self._get_cluster_indicators(n_clusters)
        rows = self._describe_rows(fitted, level, indicators)
        names = ("weight", "block", "column", "quantity", "category", "estimate", "low", "high",
                 "relevance", "differs_in")  # fmt: skip
        numbers, *columns = map(list, zip(*rows, strict=True))
        table = {kind: numbers} | self._make_label_column(n_clusters, numbers)
        table |= zip(names, columns, strict=True)
        _, n_rows = self._get_sums_and_counts(fitted, indicators)
        return table, n_rows

    def _describe_rows(self, fitted, level, indicators):
        """Return the rows of the long form of ``describe`` as tuples, in order.

        ``indicators`` (n_clusters, n_components) say which components belong to each cluster. They
        are None if components are described.
        """
        product = self._get_product(fitted)
        sums, _ = self._get_sums_and_counts(fitted, indicators)
        weights = (self.weights_ if indicators is None else indicators @ self.weights_).tolist()
        relevances = self._compute_relevance(fitted, product.column_evidence, indicators)
        # If components share parameters, such as a tied covariance, each component gets natural
        # parameters of its marginal distribution.
        lam = product.with_shared_globals(product.natural_parameters(sums))
        table = self._columns
        # The rows by the key that sorts them: component, column, quantity, and parameter.
        rows_by_key = {}
        # Number of columns in the blocks before this block.
        first_column = 0
        for block, marginals in zip(table.blocks, product.marginals(lam), strict=True):
            differs_in = find_parts_that_differ(marginals, np.array(weights))
            # A marginal has the posteriors of all parameters of one quantity, such as "mean".
            for quantity, marginal in enumerate(marginals):
                low, high = (marginal.quantile(0.5 * (1.0 + sign * level)) for sign in (-1.0, 1.0))
                # Parameter p of the quantity belongs to the column at ``position`` in the block.
                for p, position in enumerate(marginal.columns.tolist()):
                    column = block.columns[position]
                    category = None
                    if marginal.categories is not None:
                        category = table.labels(column).tolist()[marginal.categories[p]]
                    texts = (block.name, table.names[column], marginal.quantity, category)
                    for k, weight in enumerate(weights):
                        estimates = (marginal.estimate[k, p], low[k, p], high[k, p],
                                   relevances[k, first_column + position])  # fmt: skip
                        row = (k, weight, *texts, *map(float, estimates), differs_in[k, position])
                        rows_by_key[k, first_column + position, quantity, p] = row
            first_column += block.columns.size
        return [rows_by_key[key] for key in sorted(rows_by_key)]

    @fitted_property
    def block_relevance_(self, fitted):
        """Evidence that a block distinguishes a component from all other rows, nats per row."""
        # If components share parameters, such as a tied covariance, the evidence is computed as if
        # each component had parameters of its own.
        evidence = self._get_product(fitted).without_shared_globals.block_evidence
        return self._compute_relevance(fitted, evidence)

    @fitted_property
    def column_relevance_(self, fitted):
        """Evidence that a column distinguishes a component from all other rows, nats per row."""
        return self._compute_relevance(fitted, self._get_product(fitted).column_evidence)

    def column_relevance(self, n_clusters="auto"):
        """Return the evidence that columns distinguish clusters from other rows, nats per row.

        Parameters
        ----------
        n_clusters : int, "auto" or None, default="auto"
            As in ``describe``; with None the result is ``column_relevance_``.

        Returns
        -------
        {ndarray, pandas.DataFrame} of shape (n_clusters, n_columns)
            The log Bayes factor of separate parameters against parameters shared with all other
            rows, divided by the cluster's number of rows. A component is small if it has less than
            5 % of the rows, or less than half of the mean share if that is less. Small components
            may consist of errors. A small component is therefore left out if its cluster also has
            larger components. The result is a data frame with the names of the columns if the
            columns have names, see ``words_``, and pandas can be imported.
        """
        fitted = self._require_fitted()
        indicators = self._get_cluster_indicators(n_clusters)
        evidence = self._get_product(fitted).column_evidence
        values = self._compute_relevance(fitted, evidence, indicators)
        if not hasattr(self, "words_"):
            return values
        table = self._columns
        columns = [(block.name, table.names[j]) for block in table.blocks for j in block.columns]
        frame = make_frame(dict(zip(make_unique_names(columns), values.T, strict=True)))
        return values if isinstance(frame, dict) else frame

    def _compute_relevance(self, fitted, evidence, indicators=None):
        """Return the relevance of B blocks or columns for components or for clusters, (K, B).

        ``evidence`` is the function from sums of features to the log evidence (K, B) of the blocks
        or columns. ``indicators`` (n_clusters, n_components) say which components belong to each
        cluster; None stands for components. A cluster leaves out its components with few rows,
        which may be errors, if it also has components with many rows.
        """
        if indicators is not None:
            _, counts = self._get_sums_and_counts(fitted)
            large_indicators = indicators * have_large_shares(counts)
            has_large_component = large_indicators.any(axis=1, keepdims=True)
            indicators = np.where(has_large_component, large_indicators, indicators)
        return relevance(evidence, *self._get_sums_and_counts(fitted, indicators))

    def _get_cluster_indicators(self, n_clusters):
        """Return indicators (n_clusters, n_components) of the components in each cluster.

        Return None if ``n_clusters`` is None, which stands for components.
        """
        clusters = self._get_component_clusters(n_clusters)
        return None if clusters is None else indicate_clusters(clusters)

    def _get_product(self, fitted):
        """Return the model's component as a product of blocks.

        If the estimator does not read tables, the product has a single block of all columns.
        """
        component = fitted.model.component
        if "_table" in vars(self):
            return component
        block = Block("columns", component, np.arange(component.n_features))
        return Product((block,), component.n_features, component.dtype)

    def _get_sums_and_counts(self, fitted, indicators=None):
        """Return sums of features (K, P) and expected numbers of rows (K,).

        They are sums over the rows of each cluster if there are ``indicators`` of clusters, and
        otherwise over the rows of each component.
        """
        stats = fitted.stats.as_stats()
        _, sums = stats.arrays
        counts = fitted.model.component_masses(stats)
        return (sums, counts) if indicators is None else (indicators @ sums, indicators @ counts)

    def impute(self, X, n_draws=None, random_state=None):
        """Fill in the missing values of rows.

        Values follow the posterior predictive distribution given the observed values. Without
        ``n_draws``, parameters are integrated out, and new components are included, as in
        ``score_samples``.

        With ``n_draws``, the parameters are drawn once for each imputation from the posterior q,
        and the missing values of all rows are drawn from the components in use, as in ``sample``.
        Estimates from several imputations can therefore be combined by Rubin's rules. Given the
        components of rows, q is exact if the fit leaves missing values out, as it does for "diag"
        and "spherical" Gaussians, categories and counts. Full covariances count missing values as
        if they had been observed, which makes q too narrow. If X are the rows of ``fit``, and
        ``fit`` had no ``sample_weight``, parameters and values are therefore drawn in turn until
        the variance of a column is right to some hundredths [1]_. For other rows, parameters are
        drawn from q. For covariances of low rank, q is too narrow in both cases.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, with missing values.
        n_draws : int or None, default=None
            None fills in the predictive mean of numbers and counts, and the most probable value of
            binary and ordinal columns and categories. For columns in logarithms, also within a
            :class:`~skvt.components.Hurdle`, the mean given a component is the geometric mean. An
            integer makes that many imputations. In each imputation, all missing values are drawn
            jointly, as multiple imputation requires.
        random_state : int, RandomState instance or None, default=None
            Source of the draws; None uses the ``random_state`` of the estimator.

        Returns
        -------
        X or list of X
            Completed rows in a container like that of X, or a list of ``n_draws`` such containers.
            Columns of data frames keep their types, except that integers become floats if other
            numbers, such as means, are filled in.

        References
        ----------
        .. [1] Tanner and Wong (1987), The calculation of posterior distributions by data
           augmentation.
        """
        fitted = self._require_fitted()
        require_rows_in_memory(X, "impute")
        encoded = self._read(X)
        model = fitted.model
        # ``fit_hash`` is None, or begins with the hash of the rows of `fit` and their weights. X
        # are the rows of a fit without ``sample_weight`` if the hash of X with weights of 1 is
        # equal.
        fit_hash, weights = fitted.seen, np.ones(encoded.shape[0])
        are_fit_rows = fit_hash is not None and fit_hash[0] == hash_all_rows(encoded, weights)
        if sp.issparse(encoded):
            encoded = encoded.toarray()
        encoded = self._columns.mark_unseen_as_missing(encoded)
        if n_draws is None:
            with Workers(self.n_jobs) as workers:
                filled = model.imputed(encoded, fitted.stats, workers.run)
            return self._restore_container(X, encoded, filled)
        n_draws = require_positive_int("n_draws", n_draws)
        rng = self._make_draw_rng(random_state)
        draws = (
            model.draw_missing(encoded, fitted.stats, rng, are_fit_rows=are_fit_rows)
            for _ in range(n_draws)
        )
        return [self._restore_container(X, encoded, filled) for filled in draws]

    def _restore_container(self, X, encoded, filled):
        """Return the completed rows ``filled`` in a container like that of X."""
        if sp.issparse(X):
            return type(X)(filled.astype(self._fitted.model.dtype))
        return self._columns.fill_missing(X, encoded, filled)

    # ------------------------------------------------------------------------------- weights
    @fitted_property
    def n_active_components_(self, fitted):
        """Number of components to which at least a thousandth of the rows is expected to belong."""
        return count_active(
            fitted.model.component_masses(fitted.stats.as_stats()), fitted.model.dtype
        )

    @fitted_property
    def weight_concentration_(self, fitted):
        """Parameters of the posterior of the weights.

        If the weights are made by stick-breaking, they are the parameters (2, K) of the beta
        distribution of each stick, otherwise the parameters (K,) of a Dirichlet distribution.
        """
        # (K, 2) for sticks, or (1, K) for a Dirichlet.
        parameters, _ = fitted.lam()
        return parameters.T if fitted.model.weights.family is Beta else parameters[0]

    def sample_mixtures(self, n_samples=1, random_state=None):
        """Draw mixtures, that is, weights and components, from the posterior.

        Parameters
        ----------
        n_samples : int, default=1
            Number of mixtures to draw.
        random_state : int, RandomState instance or None, default=None
            Source of the draws; None uses the ``random_state`` of the estimator.

        Returns
        -------
        dict
            "weights" are the weights, (n_samples, K). The weights of a draw sum to less than 1,
            because components to which no row belongs have the rest of the mass. "components" are
            the parameters of each component as ``posterior_.components`` draws them, such as means
            and precisions of Gaussians.
        """
        fitted = self._require_fitted()
        seed = self.random_state if random_state is None else random_state
        draws = self.posterior_.sample(n_samples, seed)
        # The posterior of the weights may be a posterior of sticks, which become weights here.
        return draws | {"weights": fitted.model.weights.weights_of(draws["weights"])}

    # -------------------------------------------------------------------------------- labels
    @fitted_property
    def component_classes_(self, fitted):
        """Class of each component, shape (K,); -1 for a component without rows of a known class."""
        if fitted.component_classes is None:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute 'component_classes_' after a "
                "fit without labels of rows. Mixtures that have the parameter use_labels take "
                "such labels."
            )
        classes = fitted.component_classes
        are_numeric = all(isinstance(name, int | float) for name in classes)
        return np.array(classes, None if are_numeric else object)

    def _row_results(self, rows, workers):
        """Return the results of a fit for its rows, a dict by name.

        Each row of a known class gets a component of this class as its label.
        """
        results = super()._row_results(rows, workers)
        row_labels = rows.labels
        if row_labels is None:
            return results
        components = results["labels"]
        component_classes = self.component_classes_
        # The code of a class is its position in ``row_labels.classes``; -1 is an unknown class.
        codes = row_labels.codes
        known = np.flatnonzero(codes >= 0)
        # Rows of a known class whose most probable component has another class.
        wrong = known[component_classes[components[known]] != row_labels.classes[codes[known]]]
        if wrong.size:
            wrong_rows = self._read_every_row(rows)[wrong]
            probabilities = compute_assignments(self._fitted, wrong_rows, workers)
            has_class = component_classes == row_labels.classes[codes[wrong], None]
            # -1 is less than each probability, so that only components of the class are chosen.
            components[wrong] = stable_argmax(np.where(has_class, probabilities, -1.0))
        return results
