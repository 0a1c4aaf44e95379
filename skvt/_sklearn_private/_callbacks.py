"""Callbacks of estimators for scikit-learn 1.6 to 1.8, by the protocol of later releases.

A *hook* is a method of a callback that an estimator calls. A fit is a *task*, whose subtasks are
its passes.
"""

from contextlib import ExitStack
from copy import copy
from functools import cache, wraps
from inspect import signature

from sklearn.base import _fit_context

_HOOKS = "setup", "teardown", "on_fit_task_begin", "on_fit_task_end"


class Task:
    """The argument ``context`` of hooks, which describes a fit or a pass of a fit.

    ``callbacks`` are the callbacks of the estimator. ``task_name`` is "fit" or "pass", and
    ``task_id`` numbers the passes of a fit from 0.
    """

    def __init__(self, callbacks, task_name, task_id):
        self.task_name, self.task_id = task_name, task_id
        self._callbacks, self._n_subtasks = callbacks, 0

    def subcontext(self, task_name):
        """Return the context of the next task within this task."""
        self._n_subtasks += 1
        return Task(self._callbacks, task_name, self._n_subtasks - 1)

    def call_on_fit_task_begin(self, *, estimator, X, y):
        """Call the hook ``on_fit_task_begin`` of each callback."""
        self._call("on_fit_task_begin", estimator, {"X": lambda: X, "y": lambda: y})

    def call_on_fit_task_end(self, *, estimator, X, y, reconstruction_attributes):
        """Call the hook ``on_fit_task_end`` of each callback; return whether one stops the fit.

        ``reconstruction_attributes()`` returns the attributes that the estimator would have if the
        fit ended now.
        """

        @cache
        def fitted_estimator():
            """Return a copy of the estimator, made once for all callbacks that need it."""
            fitted = copy(estimator)
            vars(fitted).update(reconstruction_attributes())
            return fitted

        makers = {"X": lambda: X, "y": lambda: y, "fitted_estimator": fitted_estimator}
        return self._call("on_fit_task_end", estimator, makers)

    def _call(self, hook, estimator, makers):
        """Call the hook of this name of each callback; return whether a callback stops the fit.

        ``makers`` are functions that make the arguments, by name. An argument, which may take long
        to make, is made only for callbacks whose hook has a parameter of this name.
        """
        stops = False
        for method in [getattr(callback, hook) for callback in self._callbacks]:
            names = makers.keys() & signature(method).parameters
            # A hook stops the fit if it returns a true value.
            stops |= bool(method(estimator, self, **{name: makers[name]() for name in names}))
        return stops


class CallbackSupportMixin:
    """Base of estimators with callbacks."""

    def set_callbacks(self, *callbacks):
        """Set callbacks for later fits, in place of earlier callbacks.

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
        # Callbacks are no parameters, but clones keep them.
        clone = super().__sklearn_clone__()
        if hasattr(self, "_skl_callbacks"):
            clone._skl_callbacks = self._skl_callbacks
        return clone

    def _init_callback_context(self, max_subtasks):
        """Call the hook ``setup`` of each callback; return the context of the fit.

        ``max_subtasks`` is not used: later releases of scikit-learn show it in progress bars.
        """
        callbacks = getattr(self, "_skl_callbacks", [])
        context = Task(callbacks, "fit", 0)
        # The decorator `fit_context` calls the hook ``teardown`` of these callbacks. They are
        # listed one by one: if ``setup`` of a callback fails, later callbacks are not torn down.
        self._skl_callbacks_to_teardown = []
        for callback in callbacks:
            self._skl_callbacks_to_teardown.append((callback, context))
            callback.setup(self, context)
        return context


def fit_context(*, prefer_skip_nested_validation):
    """Return a decorator of ``fit`` that validates the parameters and tears down the callbacks.

    Parameters are validated before the fit, as by the decorator of the same name in scikit-learn.
    After the fit, also after a failed fit, the hook ``teardown`` of each callback is called.
    """

    def decorate(method):
        @_fit_context(prefer_skip_nested_validation=prefer_skip_nested_validation)
        @wraps(method)
        def fit_and_tear_down(estimator, *args, **kwargs):
            # The stack calls all teardowns when the block ends, in reverse order, even if one of
            # them raises.
            with ExitStack() as stack:
                try:
                    return method(estimator, *args, **kwargs)
                finally:
                    for callback, task in vars(estimator).pop("_skl_callbacks_to_teardown", ()):
                        stack.callback(callback.teardown, estimator, task)

        return fit_and_tear_down

    return decorate
