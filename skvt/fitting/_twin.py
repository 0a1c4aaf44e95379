"""A decorator of methods that must change an estimator either completely or not at all."""

from functools import wraps

import numpy as np

from skvt._sklearn_private import fit_context
from skvt.readers.validation import out_of_range_error


def all_or_nothing(method):
    """Decorate a method so that it changes the estimator only when it returns.

    The method runs on a shallow copy of the estimator, the *twin*. When the method returns, a
    single assignment gives the estimator the attributes of the twin. An exception, such as an
    interrupt by Ctrl-C, thus leaves the estimator unchanged. The method must not change objects in
    place, because the twin shares them with the estimator; it may change the copy that
    :meth:`Fitted.draft` makes. Parameters are validated before the method runs, as in scikit-learn.
    """
    validated = fit_context(prefer_skip_nested_validation=True)(method)

    @wraps(method)
    def on_a_twin(self, *args, **kwargs):
        # The attributes of the estimator before the call.
        old_attributes = dict(vars(self))
        twin = object.__new__(type(self))
        vars(twin).update(old_attributes)
        try:
            validated(twin, *args, **kwargs)
        except np.linalg.LinAlgError as error:
            raise out_of_range_error(error) from error
        twin_attributes = vars(twin)
        # Callbacks may have set attributes of the estimator during the call; keep them. Drop the
        # attributes that the method has deleted from the twin.
        kept = {name: value for name, value in vars(self).items()
                if name in twin_attributes or name not in old_attributes}  # fmt: skip
        new = {name: value for name, value in twin_attributes.items()
               if name not in old_attributes or value is not old_attributes[name]}  # fmt: skip
        attributes = kept | new
        # Python handles interrupts only at calls and backward jumps. Neither follows this
        # assignment, so that no interrupt can come between the assignment and the return.
        self.__dict__ = attributes
        return self

    return on_a_twin
