"""Callbacks for fits, set with ``estimator.set_callbacks(...)``."""

import os
from contextlib import suppress
from numbers import Integral
from pathlib import Path

from skvt.io import save


class Checkpoint:
    """Write the fit to a file after every so many passes, so that it can be resumed.

    A file is written as a whole or not at all, and the one before it is kept under its name with
    ``.previous`` appended. ``skvt.load(path).resume(X)`` then ends as the fit would have ended
    without interruption.

    Parameters
    ----------
    path : str or path-like
        The file.
    every : int, default=1
        Number of passes from one file to the next. The last pass before convergence or ``max_iter``
        may thus be missing, and is then made again.

    Raises
    ------
    ValueError
        If ``every`` is not positive.
    OSError
        During the fit, if the file cannot be written.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> import skvt
    >>> from skvt.callbacks import Checkpoint
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> path = os.path.join(tempfile.mkdtemp(), "mixture.skvt")
    >>> mixture = skvt.MemoizedDPGMM(max_iter=3, random_state=0).set_callbacks(Checkpoint(path))
    >>> bound = mixture.fit(X).elbo_
    >>> bool(skvt.load(path).resume(X).elbo_ == bound)
    True
    """

    def __init__(self, path, every=1):
        if not isinstance(every, Integral) or isinstance(every, bool) or every < 1:
            raise ValueError(f"every must be an int of at least 1. Got {every!r}.")
        self.path, self.every = Path(path), every
        self._n_passes = 0

    def setup(self, estimator, context):
        """Before the fit."""
        self._n_passes = 0

    def teardown(self, estimator, context):
        """After the fit."""

    def on_fit_task_begin(self, estimator, context):
        """Before a pass."""

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        """After a pass: write the file when it is due."""
        if context.task_name != "pass":
            return False
        self._n_passes += 1
        if self._n_passes % self.every == 0:
            previous = self.path.with_name(self.path.name + ".previous")
            linked = previous.with_name(previous.name + ".partial")
            if self.path.exists():
                with suppress(FileNotFoundError):
                    linked.unlink()
                os.link(self.path, linked)
                os.replace(linked, previous)
            save(fitted_estimator, self.path)
        return False
