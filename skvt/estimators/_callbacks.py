"""Callbacks with scikit-learn 1.6 to 1.8; later releases have them, and the protocol is theirs."""

from contextlib import ExitStack
from copy import copy
from functools import wraps
from inspect import signature

from sklearn.base import _fit_context

_HOOKS = "setup", "teardown", "on_fit_task_begin", "on_fit_task_end"


class Task:
    """A fit, or a pass of one, as callbacks are told of it."""

    def __init__(self, callbacks, task_name, task_id):
        self.task_name, self.task_id = task_name, task_id
        self._callbacks, self._n_subtasks = callbacks, 0

    def subcontext(self, task_name):
        self._n_subtasks += 1
        return Task(self._callbacks, task_name, self._n_subtasks - 1)

    def call_on_fit_task_begin(self, **given):
        self._call("on_fit_task_begin", **given)

    def call_on_fit_task_end(self, **given):
        return self._call("on_fit_task_end", **given)

    def _call(self, hook, *, estimator, reconstruction_attributes=None, **given):
        """Call this hook of each callback with what it asks for; returns whether one stops."""
        stop = False
        for method in [getattr(callback, hook) for callback in self._callbacks]:
            asked = signature(method).parameters
            if reconstruction_attributes and "fitted_estimator" in asked.keys() - given.keys():
                given["fitted_estimator"] = copy(estimator)
                vars(given["fitted_estimator"]).update(reconstruction_attributes())
            told = {name: value for name, value in given.items() if name in asked}
            stop |= bool(method(estimator, self, **told))
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
        self
        """
        if not all(hasattr(callback, hook) for callback in callbacks for hook in _HOOKS):
            raise TypeError(f"callbacks must have the hooks {', '.join(_HOOKS)}. Got {callbacks}.")
        self._skl_callbacks = list(callbacks)
        return self

    def _init_callback_context(self, max_subtasks):
        callbacks = getattr(self, "_skl_callbacks", [])
        context = Task(callbacks, "fit", 0)
        self._skl_callbacks_to_teardown = []
        for callback in callbacks:
            self._skl_callbacks_to_teardown.append((callback, context))
            callback.setup(self, context)
        return context


def fit_context(**rules):
    """scikit-learn's validation of parameters for ``fit``, after which callbacks are torn down."""

    def decorate(method):
        @_fit_context(**rules)
        @wraps(method)
        def torn_down(estimator, *args, **kwargs):
            with ExitStack() as stack:
                try:
                    return method(estimator, *args, **kwargs)
                finally:
                    for callback, task in vars(estimator).pop("_skl_callbacks_to_teardown", ()):
                        stack.callback(callback.teardown, estimator, task)

        return torn_down

    return decorate
