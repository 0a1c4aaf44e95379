"""Callbacks for fits, set with ``estimator.set_callbacks(...)``."""

import os
import shutil
from contextlib import suppress
from numbers import Integral
from pathlib import Path

from skvt.io import save
from skvt.replacing import partial_name, remove_partials


class Checkpoint:
    """Write the fit to a file every few passes, so that it can be resumed.

    A file is written completely or not at all, and the previous file is kept with ``.previous``
    appended to its name. ``skvt.load(path).resume(X)`` ends as the fit would have ended without
    interruption.

    Parameters
    ----------
    path : str or path-like
        The file.
    every : int, default=1
        Number of passes from one file to the next. The last passes before convergence or
        ``max_iter`` may thus be missing, and are then made again.

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
        """Remove, before the fit, unfinished files of killed processes.

        Parameters
        ----------
        estimator : estimator
            The one being fitted.
        context : sklearn.callback.CallbackContext
            Its task.
        """
        self._n_passes = 0
        remove_partials(self.path)

    def on_fit_task_begin(self, estimator, context):
        """Do nothing before a pass, and at the teardown after the fit.

        Parameters
        ----------
        estimator : estimator
            The one being fitted.
        context : sklearn.callback.CallbackContext
            Its task.
        """

    teardown = on_fit_task_begin

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        """Write the file after a pass when it is due.

        Parameters
        ----------
        estimator : estimator
            The one being fitted.
        context : sklearn.callback.CallbackContext
            Its task.
        fitted_estimator : estimator, default=None
            The estimator as if the fit had ended with this pass, without attributes that need
            all rows once more: ``elbo_`` (``lower_bound_``, ``bound_``), ``restart_elbos_``,
            ``hierarchy_``,
            ``n_clusters_``, and the assignments in ``posterior_`` of
            :class:`~skvt.CAVIGaussianMixture`.

        Returns
        -------
        bool
            False: the fit continues.
        """
        if context.task_name != "pass":
            return False
        self._n_passes += 1
        if self._n_passes % self.every == 0:
            with suppress(FileNotFoundError):  # there is none yet, or another process cleans up
                self._keep()
            save(fitted_estimator, self.path)
        return False

    def _keep(self):
        """Give the last file a second name, without a moment at which the first name is missing."""
        path = Path(os.path.realpath(self.path))
        previous, second = path.with_name(f"{path.name}.previous"), partial_name(path)
        try:
            os.link(path, second)
        except FileNotFoundError:
            raise
        except OSError:  # a file system without links
            shutil.copy2(path, second)
        os.replace(second, previous)
        # os.replace leaves both names if they are links to one file, as after a kill at this point
        second.unlink(missing_ok=True)
