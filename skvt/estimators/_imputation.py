"""Predictions of missing values: imputation, and one column given the others."""

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from skvt.components.specs import Gaussian
from skvt.inference import Workers
from skvt.readers import Table, TableBlock
from skvt.readers.chunks import require_rows_in_memory
from skvt.readers.validation import positive_int


class ImputeMixin:
    """``impute`` of mixtures: by the posterior predictive given the observed values."""

    def impute(self, X, n_draws=None, random_state=None):
        """Rows with their missing values filled in.

        By the posterior predictive distribution given the observed values: parameters are
        integrated out, and components not yet seen are included, as in ``score_samples``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, with missing values.
        n_draws : int or None, default=None
            None fills in the predictive mean of numbers and counts, and the most probable value of
            binary and ordinal columns and categories. A number returns that many imputations, in
            each of which the missing values of a row are drawn jointly: for multiple imputation.
        random_state : int, RandomState instance or None, default=None
            Source of the draws; None uses the estimator's own.

        Returns
        -------
        X or list of X
            Completed rows in a container like that of X, or a list of ``n_draws`` of them. Columns
            of data frames keep their types, but whole numbers become floats where other numbers,
            such as means, are filled in.
        """
        fitted = self._require_fitted()
        require_rows_in_memory(X, "impute")
        encoded = self._read(X)
        model = fitted.model
        if sp.issparse(encoded):
            encoded = encoded.toarray()
        if n_draws is None:
            with Workers(self.n_jobs) as workers:
                return self._restored(X, encoded, model.imputed(encoded, fitted.stats, workers.run))
        n_draws = positive_int("n_draws", n_draws)
        rng = self._rng_of_draws(random_state)
        return [
            self._restored(X, encoded, model.completed(encoded, fitted.stats, rng))
            for _ in range(n_draws)
        ]

    @property
    def _reading(self):
        """How rows are read: here all columns are numbers."""
        n_features = self.n_features_in_
        whole = TableBlock("all", Gaussian(), np.arange(n_features))
        return Table((whole,), tuple(range(n_features)), "error")

    def _restored(self, X, encoded, filled):
        """Filled rows in the container of X."""
        if sp.issparse(X):
            return type(X)(filled.astype(self._fitted.model.dtype))
        return self._reading.restored(X, encoded, filled)


class ColumnMixin:
    """Predictions of one column of a table given the others."""

    def predict_column(self, X, column):
        """Predict a column from the other values of each row.

        Parameters
        ----------
        X : {array-like, data frame} of shape (n_samples, n_features)
            Rows; their values in the column itself are not used.
        column : str or int
            Its name, or its position where columns have no names.

        Returns
        -------
        ndarray of shape (n_samples,)
            The predictive mean of numbers and counts, the most probable value of binary and ordinal
            columns and categories.
        """
        model, encoded, j = self._without(X, column)
        with Workers(self.n_jobs) as workers:
            filled = model.imputed(encoded, self._fitted.stats, workers.run)
        return self._table.decoded(j, filled[:, j])

    def predict_column_proba(self, X, column):
        """Probabilities of the values of a binary column or a column of categories.

        Given the other values of each row.

        Parameters
        ----------
        X : {array-like, data frame} of shape (n_samples, n_features)
            Rows; their values in the column itself are not used.
        column : str or int
            Its name, or its position where columns have no names.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_categories)
            Each row sums to 1.
        categories : ndarray of shape (n_categories,)
            Values to which the columns of ``probabilities`` belong.

        Raises
        ------
        ValueError
            For columns of numbers or counts, see ``score_column``.
        """
        model, encoded, j = self._without(X, column)
        block, _ = self._table.block_of(j)
        if block.spec.encoding not in ("category", "binary"):
            raise ValueError(
                f"Column {column!r} holds {block.spec.encoding} values, whose probabilities are "
                "densities: score_column(X, column) is the log density of given values (of an "
                "ordinal column the log probability), predict_column(X, column) the prediction."
            )
        with Workers(self.n_jobs) as workers:
            stats = self._fitted.stats
            probabilities = model.column_probabilities(encoded, stats, j, workers.run)
        return probabilities, self._table.labels(j)

    def score_column(self, X, column):
        """Log predictive density of a column's values, given the other values of each row.

        Parameters
        ----------
        X : {array-like, data frame} of shape (n_samples, n_features)
            Rows.
        column : str or int
            Its name, or its position where columns have no names.

        Returns
        -------
        ndarray of shape (n_samples,)
            Nats; where the value is missing 0, or with ``missing="informative"`` the log
            probability of that.
        """
        model, without, _ = self._without(X, column)
        encoded, fitted = self._read(X), self._fitted
        with Workers(self.n_jobs) as workers:
            joint = fitted.model.log_predictive(encoded, fitted.stats, workers.run)
            return joint - model.log_predictive(without, fitted.stats, workers.run)

    def _without(self, X, column):
        """A model that knows nothing of a column, rows without its values, and its position."""
        fitted = self._require_fitted()
        require_rows_in_memory(X, "A prediction of one column")
        encoded = self._read(X)
        j = self._table.position(column)
        block, _ = self._table.block_of(j)
        if not block.spec.allows_missing or sp.issparse(encoded):
            raise ValueError(
                f"Column {column!r} belongs to {type(block.spec).__name__}, whose rows must be "
                "complete: it cannot be predicted from the others."
            )
        encoded = np.array(encoded)
        encoded[:, j] = np.nan
        component = fitted.model.component.without_indicator(j)
        return replace(fitted.model, component=component), encoded, j
