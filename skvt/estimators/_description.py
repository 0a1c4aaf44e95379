"""Descriptions of components and clusters: parameters as a table, and the relevance of columns."""

from numbers import Real

import numpy as np

from skvt.estimators._clusters_mixin import membership
from skvt.models.mixture import Block, Product, relevance
from skvt.readers.validation import column_names


class DescriptionMixin:
    """``describe``, and the relevance of blocks and columns, of mixtures."""

    # The block that all columns are, where there is only one.
    _block_name = "columns"

    def describe(self, level=0.95, n_clusters=None):
        """Parameters of each component, or of each cluster, in each column, as a table.

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

        Returns
        -------
        pandas.DataFrame or dict of lists
            A data frame where pandas can be imported, otherwise its columns as lists:

            - "component" or, with ``n_clusters``, "cluster", and "weight": number of the component
              as in ``weights_``, or of the cluster as in ``predict``.
            - "block", "column": names, positions where columns have none.
            - "quantity": "mean" and "standard deviation" of real columns, "probability" of a one,
              of a category or, in counts of tokens, of the column, "rate" of counts (of a
              :class:`~skvt.components.Hurdle`, of those beyond the first), "share not 0" beside a
              point mass at 0, "share observed" where missing values are informative.
            - "category": the value whose probability it is; otherwise missing (None).
            - "estimate": posterior mean, of standard deviations the posterior median; in the units
              of the data.
            - "low", "high": ends of the interval, by the exact marginals of the posterior q. Of a
              cluster they say how well its mean (or its probability, its rate) is known, not how
              far its components are apart; that is in its standard deviation.
            - "relevance": that of the column for the component, see ``column_relevance_``, or for
              the cluster, see ``column_relevance``.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        ValueError
            For levels that are not between 0 and 1, and as of ``predict``.
        """
        self._require_fitted()
        if not isinstance(level, Real) or not 0.0 < level < 1.0:
            raise ValueError(
                f"The 'level' parameter must be a number in the range (0, 1). Got {level!r} "
                "instead."
            )
        member = self._member(n_clusters)
        product, sums, counts = self._blocks_of_fit("describe", member)
        weights = (self.weights_ if member is None else member @ self.weights_).tolist()
        relevances = relevance(product.column_evidence, sums, counts)
        lam = product.apart(product.natural_parameters(sums))
        parts = zip(product.blocks, product.marginals(lam), strict=True)
        entries, first = [], 0
        for block, marginals in parts:
            for order, own in enumerate(marginals):
                low, high = (own.quantile(0.5 * (1.0 + sign * level)) for sign in (-1.0, 1.0))
                for q, place in enumerate(own.columns.tolist()):
                    column = block.columns[place]
                    said = (block.name, self._name_of(column), own.quantity,
                            self._category_of(column, own.categories, q))  # fmt: skip
                    for k, weight in enumerate(weights):
                        numbers = (own.estimate[k, q], low[k, q], high[k, q],
                                   relevances[k, first + place])  # fmt: skip
                        row = (k, weight, *said, *map(float, numbers))
                        entries.append(((k, first + place, order), row))
            first += block.columns.size
        entries.sort(key=lambda entry: entry[0])
        names = ("component" if n_clusters is None else "cluster", "weight", "block", "column",
                 "quantity", "category", "estimate", "low", "high", "relevance")  # fmt: skip
        rows = [row for _, row in entries]
        return _as_frame({name: [row[i] for row in rows] for i, name in enumerate(names)})

    @property
    def block_relevance_(self):
        """Evidence that a block distinguishes a component from all other rows, nats per row."""
        product, sums, counts = self._blocks_of_fit("block_relevance_")
        return relevance(product.alone.block_evidence, sums, counts)

    @property
    def column_relevance_(self):
        """Evidence that a column distinguishes a component from all other rows, nats per row."""
        product, sums, counts = self._blocks_of_fit("column_relevance_")
        return relevance(product.column_evidence, sums, counts)

    def column_relevance(self, n_clusters="auto"):
        """Evidence that a column distinguishes a cluster from all other rows, nats per row.

        Parameters
        ----------
        n_clusters : int, "auto" or None, default="auto"
            As in ``describe``; with None the result is ``column_relevance_``.

        Returns
        -------
        ndarray of shape (n_clusters, n_columns)
            The log Bayes factor of parameters of its own against parameters shared with all other
            rows, divided by the cluster's number of rows.

        Raises
        ------
        ValueError
            As of ``predict``.
        """
        self._require_fitted()
        product, sums, counts = self._blocks_of_fit("column_relevance", self._member(n_clusters))
        return relevance(product.column_evidence, sums, counts)

    def _member(self, n_clusters):
        """1 where a component belongs to a cluster, (n_clusters, K); None without a number."""
        clusters = self._clusters_of_components(n_clusters)
        return None if clusters is None else membership(clusters)

    def _blocks_of_fit(self, name, member=None):
        """The columns' blocks, sums of features (K, P) and expected rows (K,).

        With ``member`` (n_clusters, K), those of clusters.
        """
        fitted = self._of_fit(name)
        model = fitted.model
        sums, counts = fitted.stats.value().arrays[1], model.counts(fitted.stats)
        if member is not None:
            sums, counts = member @ sums, member @ counts
        return self._blocks(model), sums, counts

    def _blocks(self, model):
        """The component as a product of blocks: here of one."""
        component = model.component
        block = Block(self._block_name, component, np.arange(component.n_features))
        return Product((block,), component.n_features, component.dtype)

    def _name_of(self, column):
        """Name of the column at a position."""
        return column_names(self, None, self.n_features_in_).tolist()[column]

    def _category_of(self, column, codes, q):
        """The value that a code stands for; None without codes."""
        return None if codes is None else self._values_of(column)[codes[q]]

    def _values_of(self, column):
        """Values of a binary column, or of a column of categories, in the order of their codes."""
        return [0, 1]


def _as_frame(columns):
    """A pandas data frame where there is pandas, otherwise the columns as they are."""
    try:
        import pandas
    except ImportError:
        return columns
    # (integers beside None would become floats)
    values = pandas.Series(columns["category"], dtype=object)
    return pandas.DataFrame(columns | {"category": values})
