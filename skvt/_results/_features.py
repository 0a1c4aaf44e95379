"""Mixin of estimators in which each row is a sum of components."""

from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array


class SumsMixin(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """Mixin of transformers of rows to activations, the weights of components in a sum."""

    def inverse_transform(self, X):
        """Return the expected rows for a result of ``transform``: ``X @ components_``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
            Activations.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Sums of the expected components.
        """
        fitted = self._require_fitted()
        X = check_array(X, dtype=fitted.model.dtype)
        if X.shape[1] != self._n_features_out:
            raise ValueError(
                f"X has {X.shape[1]} columns, but the model has {self._n_features_out} "
                "components. Pass an array such as transform returns."
            )
        return X @ self.components_
