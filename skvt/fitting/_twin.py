"""Methods that change an estimator completely or not at all."""

from functools import wraps

import numpy as np

from skvt._sklearn_private import fit_context
from skvt.readers.validation import out_of_range_error


def all_or_nothing(method):
    """Validate parameters as scikit-learn does, and change the estimator only at the very end.

    The decorated method runs on a shallow copy, the twin. A single assignment then gives the
    estimator the attributes of the twin. An exception, which an interrupt can raise anywhere, thus
    leaves the estimator unchanged. The method must not change objects in place, because the twin
    shares them with the estimator: :meth:`Fitted.draft` makes a copy that may change.
    """
    validated = fit_context(prefer_skip_nested_validation=True)(method)

    @wraps(method)
    def on_a_twin(self, *args, **kwargs):
        before = dict(vars(self))
        twin = object.__new__(type(self))
        vars(twin).update(before)
        try:
            validated(twin, *args, **kwargs)
        except np.linalg.LinAlgError as error:
            raise out_of_range_error(error) from error
        after = vars(twin)
        # Keep attributes that the estimator got during the call; drop those that the twin deleted.
        kept = {name: value for name, value in vars(self).items()
                if name in after or name not in before}  # fmt: skip
        new = {name: value for name, value in after.items()
               if name not in before or value is not before[name]}  # fmt: skip
        changed = kept | new
        # No call follows this assignment, so that Python handles no interrupt before the method
        # returns.
        self.__dict__ = changed
        return self

    return on_a_twin
