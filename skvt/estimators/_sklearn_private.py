"""The only place that imports what scikit-learn does not promise to keep.

``_param_validation`` is what scikit-learn's own template for third-party estimators uses; should it
move, this file is the one to mend.
"""

from sklearn.base import _fit_context as fit_context
from sklearn.utils._indexing import _get_column_indices as column_indices
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight as check_sample_weight

__all__ = ["Interval", "StrOptions", "check_sample_weight", "column_indices", "fit_context"]
