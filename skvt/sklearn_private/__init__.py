"""The only place that imports what scikit-learn does not promise to keep, or does not have always.

``_param_validation`` is what scikit-learn's own template for third-party estimators uses; should it
move, this file is the one to mend.
"""

from types import SimpleNamespace

from sklearn.utils._indexing import _get_column_indices as column_indices
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight as check_sample_weight
from sklearn.utils.validation import _num_samples as num_samples

try:
    from sklearn.base import _fit_context as fit_context
    from sklearn.callback import CallbackSupportMixin
except ImportError:  # scikit-learn 1.6 to 1.8
    from skvt.sklearn_private._callbacks import CallbackSupportMixin, fit_context

    _indices = column_indices

    def column_indices(X, key):
        """scikit-learn's, which asks polars for a protocol that polars 2 has no more."""
        if hasattr(X, "get_column_index"):
            X = SimpleNamespace(shape=X.shape, columns=SimpleNamespace(get_loc=X.columns.index))
        return _indices(X, key)


__all__ = [
    "CallbackSupportMixin", "Interval", "StrOptions", "check_sample_weight", "column_indices",
    "fit_context", "num_samples",
]  # fmt: skip
