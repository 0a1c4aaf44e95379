"""Mixtures whose number of components changes: weights, columns and missing values."""

from numbers import Real

import numpy as np
import scipy.sparse as sp

from skvt.components import Gaussian
from skvt.expfam import Beta
from skvt.fitting import MoveLogMixin, checksum, of_fit, of_model
from skvt.inference import Workers
from skvt.models import n_active
from skvt.models.mixture import (
    Block,
    Product,
    have_many_rows,
    relevance,
)
from skvt.readers import Table, TableBlock
from skvt.readers.chunks import require_rows_in_memory
from skvt.readers.validation import check_choice, column_names, positive_int
from skvt.results._clusters import membership
from skvt.results._display import clusters_for_display
from skvt.results._mixtures import assignments_of
from skvt.results.profiles import parts_that_differ, profiles_of, sentences, unique_names, wide
from skvt.results.topic_tables import as_frame
from skvt.ties import stable_argmax


class GrowingMixin(MoveLogMixin):
    """Mixtures with births, merges and deletes."""

    _usual_most = 200  # default maximum number of components
    weight_concentration_prior_ = of_model("weights.concentration", "Concentration as used.")

    # ------------------------------------------------------------------------------- columns
    @property
    def _columns(self):
        """The :class:`Table` of the columns; arrays of numbers have one block."""
        if "_table" in vars(self):
            return self._table
        names = column_names(self, None, self.n_features_in_).tolist()
        block = TableBlock("columns", Gaussian(), np.arange(len(names)))
        return Table((block,), tuple(names), "error")

    _result_for_display = clusters_for_display

    def describe(self, level=0.95, n_clusters=None, *, form="long"):
        """Return the parameters of components or clusters in each column as a table.

        One row per component and parameter: components in order, columns as in
        ``column_relevance_``. A cluster is described as one component of all its rows: the
        statistics of its components are summed up, under the same prior.

        Parameters
        ----------
        level : float, default=0.95
            Posterior probability of the credible intervals, with equal tails.
        n_clusters : int, "auto" or None, default=None
            None describes components; a number, the clusters into which ``hierarchy_`` joins them,
            and "auto", the ``n_clusters_`` suggested.
        form : {"long", "wide", "text"}, default="long"
            "long" has a row for each component and parameter. "wide" has a row for each component
            and a column for each column of the data: its mean, median or rate, the probability of a
            one, or the most probable category. "text" is a string with a line for each component:
            its share of the rows and the columns that set it apart most, each with the value in the
            component and, in parentheses, in all rows.

        Returns
        -------
        pandas.DataFrame, dict of lists or str
            With ``form="text"`` a string. Otherwise a data frame where pandas can be imported, else
            its columns as lists. In the long form these are:

            - "component" or, with ``n_clusters``, "cluster", and "weight": number of the component
              as in ``weights_``, or of the cluster as in ``predict``.
            - "block", "column": names, positions where columns have none.
            - "quantity": "mean" and "standard deviation" of real columns, of those in logarithms
              "median" and "standard deviation of logarithm", "probability" of a one, of a category
              or, in counts of tokens, of the column, "rate" of counts (of a
              :class:`~skvt.components.Hurdle`, of those beyond the first; for an exposure of 1) and
              "dispersion" of negative binomials, "share not 0" beside a point mass at 0, "share
              observed" where missing values are informative. With given columns, a mean is the
              expected value at the means of these columns, a standard deviation is that of the
              residuals, "slope of" a number or a level is its coefficient, and other parameters are
              averages over the rows of ``fit``.
            - "category": the value whose probability it is; otherwise missing (None).
            - "estimate": posterior mean, of standard deviations the posterior median; in the units
              of the data.
            - "low", "high": ends of the interval, by the exact marginals of the posterior q; of
              "low_rank" covariances by those of a normal-gamma of each column, which allows for
              the factors of the rows, as draws of ``posterior_`` do not. Of a cluster they say how
              well its mean (or its probability, its rate) is known, not how far its components are
              apart; that is in its standard deviation.
            - "relevance": that of the column for the component, see ``column_relevance_``, or for
              the cluster, see ``column_relevance``.
            - "differs_in": "centre" or "spread", whichever part of the divergence between normals
              of the component and of the average component is larger; otherwise missing (None).
        """
        fitted = self._require_fitted()
        if not isinstance(level, Real) or not 0.0 < level < 1.0:
            raise ValueError(
                f"The 'level' parameter must be a number in the range (0, 1). Got {level!r} "
                "instead."
            )
        check_choice("form", form, ("long", "wide", "text"))
        member = self._member(n_clusters)
        product, sums, _ = self._blocks_of(fitted, member)
        weights = (self.weights_ if member is None else member @ self.weights_).tolist()
        relevances = self._relevance_of(fitted, product.column_evidence, member)
        lam = product.apart(product.natural_parameters(sums))
        entries, first, table = [], 0, self._columns
        parts = zip(table.blocks, product.marginals(lam), strict=True)
        for block, marginals in parts:
            differs_in = parts_that_differ(marginals, np.array(weights))
            for order, part in enumerate(marginals):
                low, high = (part.quantile(0.5 * (1.0 + sign * level)) for sign in (-1.0, 1.0))
                for q, i in enumerate(part.columns.tolist()):
                    column = block.columns[i]
                    category = None if part.categories is None else (
                        table.labels(column).tolist()[part.categories[q]]
                    )  # fmt: skip
                    labels = (block.name, table.names[column], part.quantity, category)
                    for k, weight in enumerate(weights):
                        numbers = (part.estimate[k, q], low[k, q], high[k, q],
                                   relevances[k, first + i])  # fmt: skip
                        row = (k, weight, *labels, *map(float, numbers), differs_in[k, i])
                        entries.append(((k, first + i, order), row))
            first += block.columns.size
        entries.sort(key=lambda entry: entry[0])
        names = ("component" if n_clusters is None else "cluster", "weight", "block", "column",
                 "quantity", "category", "estimate", "low", "high", "relevance",
                 "differs_in")  # fmt: skip
        rows = [row for _, row in entries]
        table = {name: [row[i] for row in rows] for i, name in enumerate(names)}
        if form == "long":
            return as_frame(table)
        profiles = profiles_of(table)
        return "\n".join(sentences(profiles)) if form == "text" else as_frame(wide(profiles))

    @of_fit
    def block_relevance_(self, fitted):
        """Evidence that a block distinguishes a component from all other rows, nats per row."""
        product, _, _ = self._blocks_of(fitted)
        return self._relevance_of(fitted, product.alone.block_evidence)

    @of_fit
    def column_relevance_(self, fitted):
        """Evidence that a column distinguishes a component from all other rows, nats per row."""
        product, _, _ = self._blocks_of(fitted)
        return self._relevance_of(fitted, product.column_evidence)

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
            rows, divided by the cluster's number of rows. Components of less than 5 % of the rows,
            or of half of the mean share if that is less, are left out of larger clusters and of the
            other rows, since they may be errors. The result is a data frame with the names of the
            columns if the rows of the fit had names and pandas can be imported.
        """
        fitted, member = self._require_fitted(), self._member(n_clusters)
        product, _, _ = self._blocks_of(fitted)
        values = self._relevance_of(fitted, product.column_evidence, member)
        if not hasattr(self, "feature_names_in_"):
            return values
        table = self._columns
        columns = [(block.name, table.names[j]) for block in table.blocks for j in block.columns]
        frame = as_frame(dict(zip(unique_names(columns), values.T, strict=True)))
        return values if isinstance(frame, dict) else frame

    def _relevance_of(self, fitted, evidence, member=None):
        """Return the relevance of parts of the values for components or for clusters, (K, B).

        Clusters leave out components of a few rows, which may be errors, if they have others.
        """
        _, sums, counts = self._blocks_of(fitted)
        if member is not None:
            usual = member * have_many_rows(counts)
            member = np.where(usual.any(axis=1, keepdims=True), usual, member)
            sums, counts = member @ sums, member @ counts
        return relevance(evidence, sums, counts)

    def _member(self, n_clusters):
        """Return indicators (n_clusters, K) of components in clusters; None for components."""
        clusters = self._clusters_of_components(n_clusters)
        return None if clusters is None else membership(clusters)

    def _blocks_of(self, fitted, member=None):
        """Return blocks, sums of features (K, P) and numbers of rows (K,), or of clusters."""
        model, product = fitted.model, fitted.model.component
        if "_table" not in vars(self):
            block = Block("columns", product, np.arange(product.n_features))
            product = Product((block,), product.n_features, product.dtype)
        stats = fitted.stats.value()
        sums, counts = stats.arrays[1], model.component_masses(stats)
        if member is not None:
            sums, counts = member @ sums, member @ counts
        return product, sums, counts

    def impute(self, X, n_draws=None, random_state=None):
        """Fill in the missing values of rows.

        Values follow the posterior predictive distribution given the observed values, in which new
        components are included, as in ``score_samples``. Without ``n_draws``, parameters are
        integrated out.

        For each of ``n_draws`` imputations, parameters for all rows are drawn from the posterior q,
        so that estimates from several imputations can be combined by Rubin's rules. Given the
        components of rows, q is exact if missing values are left out, as in "diag" and "spherical"
        Gaussians, categories and counts. Full covariances count missing values as if they had been
        observed, which makes q too narrow. If X are the rows of ``fit``, without ``sample_weight``,
        parameters and values are therefore drawn in turn until the variance of a column is right to
        some hundredths [1]_; for other rows they are drawn from q. For "low_rank" covariances q is
        too narrow in both cases.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, with missing values.
        n_draws : int or None, default=None
            None fills in the predictive mean of numbers and counts, and the most probable value of
            binary and ordinal columns and categories; in columns in logarithms, also within a
            :class:`~skvt.components.Hurdle`, the mean given a component is the geometric mean. A
            number returns that many imputations, in each of which all missing values are drawn
            jointly, for multiple imputation.
        random_state : int, RandomState instance or None, default=None
            Source of the draws; None uses that of the estimator.

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
        model, seen = fitted.model, fitted.seen
        of_fit = seen is not None and seen[0] == checksum(encoded, np.ones(encoded.shape[0]))
        if sp.issparse(encoded):
            encoded = encoded.toarray()
        encoded = self._columns.to_complete(encoded)
        if n_draws is None:
            with Workers(self.n_jobs) as workers:
                return self._restored(X, encoded, model.imputed(encoded, fitted.stats, workers.run))
        n_draws = positive_int("n_draws", n_draws)
        rng = self._rng_of_draws(random_state)
        return [
            self._restored(X, encoded, model.completed(encoded, fitted.stats, rng, of_fit=of_fit))
            for _ in range(n_draws)
        ]

    def _restored(self, X, encoded, filled):
        """Return the completed rows in the container of X."""
        if sp.issparse(X):
            return type(X)(filled.astype(self._fitted.model.dtype))
        return self._columns.restored(X, encoded, filled)

    # ------------------------------------------------------------------------------- weights
    @of_fit
    def n_active_components_(self, fitted):
        """Number of components to which at least a thousandth of the rows is expected to belong."""
        return n_active(fitted.model.component_masses(fitted.stats.value()), fitted.model.dtype)

    @of_fit
    def weight_concentration_(self, fitted):
        """Parameters of q of the sticks, shape (2, K), or of the Dirichlet, (K,)."""
        weights = fitted.lam()[0]
        return weights.T if fitted.model.weights.family is Beta else weights[0]

    def sample_mixtures(self, n_samples=1, random_state=None):
        """Draw mixtures, that is, weights and components, from the posterior.

        Parameters
        ----------
        n_samples : int, default=1
            Number of mixtures to draw.
        random_state : int, RandomState instance or None, default=None
            None uses that of the estimator.

        Returns
        -------
        dict
            "weights", shape (n_samples, K), which sum to less than 1 by the mass of components not
            yet seen; and "components", the parameters of each component as
            ``posterior_.components`` draws them: means and precisions of Gaussians.
        """
        fitted = self._require_fitted()
        seed = self.random_state if random_state is None else random_state
        draws = self.posterior_.sample(n_samples, seed)
        return draws | {"weights": fitted.model.weights.weights_of(draws["weights"])}

    # -------------------------------------------------------------------------------- labels
    @of_fit
    def component_classes_(self, fitted):
        """Class of each component, -1 of those that rows without a label have, shape (K,)."""
        if fitted.component_classes is None:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute 'component_classes_' after a fit "
                "without labels of rows. Mixtures with the parameter use_labels take them."
            )
        classes = fitted.component_classes
        numbers = all(isinstance(one, int | float) for one in classes)
        return np.array(classes, None if numbers else object)

    def _row_results(self, rows):
        """Return the results of rows; rows of a known class get a component of that class."""
        results, labels = super()._row_results(rows), rows.labels
        if labels is None:
            return results
        components, classes = results["labels"], self.component_classes_
        # The numbers of rows of a known class whose most probable component has another class.
        wrong = np.flatnonzero(labels.codes >= 0)
        wrong = wrong[classes[components[wrong]] != labels.known[labels.codes[wrong]]]
        if wrong.size:
            X = rows.X if rows.X.shape[0] == labels.codes.size else self._read(rows.passed)
            with Workers(self.n_jobs) as workers:
                q = assignments_of(self._fitted, X[wrong], workers)
            legal = classes == labels.known[labels.codes[wrong], None]
            components[wrong] = stable_argmax(np.where(legal, q, -1.0))
        return results

    def _gathers(self, before=None):
        # Labels of rows are not gathered.
        return self.learning_method != "online" and "birth" in self.moves and not self.use_labels
