"""Callbacks for scikit-learn 1.6 to 1.8, by the protocol of later releases, which have them."""

from contextlib import ExitStack
from copy import copy
from functools import cache, wraps
from inspect import signature

from sklearn.base import _fit_context

_HOOKS = "setup", "teardown", "on_fit_task_begin", "on_fit_task_end"


class Task:
    """A fit, or a pass of a fit, as callbacks receive it."""

    def __init__(self, callbacks, task_name, task_id):
        self.task_name, self.task_id = task_name, task_id
        self._callbacks, self._n_subtasks = callbacks, 0

    def subcontext(self, task_name):
        self._n_subtasks += 1
        return Task(self._callbacks, task_name, self._n_subtasks - 1)

    def call_on_fit_task_begin(self, *, estimator, X, y):
        self._call("on_fit_task_begin", estimator, {"X": lambda: X, "y": lambda: y})

    def call_on_fit_task_end(self, *, estimator, X, y, reconstruction_attributes):
        @cache
        def fitted_estimator():
            fitted = copy(estimator)
            vars(fitted).update(reconstruction_attributes())
            return fitted

        # Only computed for callbacks that ask for them.
        known = {"X": lambda: X, "y": lambda: y, "fitted_estimator": fitted_estimator}
        return self._call("on_fit_task_end", estimator, known)

    def _call(self, hook, estimator, known):
        """Call this hook of each callback with what it asks for; returns whether one stops."""
        stop = False
        for method in [getattr(callback, hook) for callback in self._callbacks]:
            asked = known.keys() & signature(method).parameters
            stop |= bool(method(estimator, self, **{name: known[name]() for name in asked}))
        return stop


class CallbackSupportMixin:
    """Callbacks of an estimator."""

    def set_callbacks(self, *callbacks):
        """Set callbacks for the fits to come, in place of those before.

        Parameters
        ----------
        *callbacks : callback instances
            Objects with the hooks ``setup``, ``teardown``, ``on_fit_task_begin`` and
            ``on_fit_task_end``.

        Returns
        -------
        self : estimator
            This estimator.
        """
        if not all(hasattr(callback, hook) for callback in callbacks for hook in _HOOKS):
            raise TypeError(f"callbacks must have the hooks {', '.join(_HOOKS)}. Got {callbacks}.")
        self._skl_callbacks = list(callbacks)
        return self

    def __sklearn_clone__(self):
        clone = super().__sklearn_clone__()
        if hasattr(self, "_skl_callbacks"):
            clone._skl_callbacks = self._skl_callbacks
        return clone

    def _init_callback_context(self, max_subtasks):
        callbacks = getattr(self, "_skl_callbacks", [])
        context = Task(callbacks, "fit", 0)
        self._skl_callbacks_to_teardown = []
        for callback in callbacks:
            self._skl_callbacks_to_teardown.append((callback, context))
            callback.setup(self, context)
        return context


def fit_context(*, prefer_skip_nested_validation):
    """Decorate ``fit``: parameters are validated before, and callbacks torn down after it.

    They are torn down after a failed fit, too.
    """

    def decorate(method):
        @_fit_context(prefer_skip_nested_validation=prefer_skip_nested_validation)
        @wraps(method)
        def torn_down(estimator, *args, **kwargs):
            # All teardowns run, in reverse order, even if one of them raises.
            with ExitStack() as stack:
                try:
                    return method(estimator, *args, **kwargs)
                finally:
                    for callback, task in vars(estimator).pop("_skl_callbacks_to_teardown", ()):
                        stack.callback(callback.teardown, estimator, task)

        return torn_down

    return decorate
