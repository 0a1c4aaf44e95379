"""Names of scikit-learn that may move: private names, and names that older releases lack.

All other modules of skvt import these names from this package, so that only this package must
change if a release of scikit-learn moves a name. The module ``_param_validation`` is private, but
scikit-learn's own template for third-party estimators uses it.
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
    from skvt._sklearn_private._callbacks import CallbackSupportMixin, fit_context

    _indices = column_indices

    def column_indices(X, key):
        """Return the positions of the columns that ``key`` selects, as scikit-learn does.

        These releases of scikit-learn find the names of columns of other packages than pandas by an
        interchange protocol that polars 2 lacks.
        """
        if hasattr(X, "get_column_index"):
            # X is a data frame of polars. Replace it by an object with those attributes of a data
            # frame of pandas by which scikit-learn finds columns.
            X = SimpleNamespace(shape=X.shape, columns=SimpleNamespace(get_loc=X.columns.index))
        return _indices(X, key)


__all__ = [
    "CallbackSupportMixin", "Interval", "StrOptions", "check_sample_weight", "column_indices",
    "fit_context", "num_samples",
]  # fmt: skip
