"""Callbacks for fits, set with ``estimator.set_callbacks(...)``."""

import os
import shutil
from contextlib import suppress
from numbers import Integral
from pathlib import Path

from skvt._replacing import make_partial_path, remove_partials
from skvt.io import save


class Checkpoint:
    """Write the fit to a file every few passes, so that the fit can be resumed.

    A file is written completely or not at all, and the file that it replaces is kept with
    ``.previous`` appended to its name. After an interruption, ``skvt.load(path).resume(X)`` gives
    the result of the uninterrupted fit.

    Parameters
    ----------
    path : str or path-like
        The file.
    every : int, default=1
        Number of passes from one file to the next. Passes after the last file are made again when
        the fit is resumed.

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
            raise ValueError(f"every must be an int in the range [1, inf). Got {every!r}.")
        self.path = Path(path)
        self.every = every
        # Number of passes that the current fit has made.
        self._n_passes = 0

    def setup(self, estimator, context):
        """Remove unfinished files of killed processes, before the fit.

        Parameters
        ----------
        estimator : estimator
            The estimator that is fitted.
        context : sklearn.callback.CallbackContext
            The task of the fit.
        """
        self._n_passes = 0
        remove_partials(self.path)

    def on_fit_task_begin(self, estimator, context):
        """Do nothing before a pass. :meth:`teardown` is the same method.

        Parameters
        ----------
        estimator : estimator
            The estimator that is fitted.
        context : sklearn.callback.CallbackContext
            The task of the fit or of the pass.
        """

    teardown = on_fit_task_begin

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        """Write the file after a pass, if ``every`` passes were made since the last file.

        Parameters
        ----------
        estimator : estimator
            The estimator that is fitted.
        context : sklearn.callback.CallbackContext
            The task of the fit or of the pass.
        fitted_estimator : estimator, default=None
            The estimator as if the fit had ended with this pass. It lacks attributes whose
            computation needs one more pass: ``elbo_``, ``lower_bound_``, ``bound_``,
            ``restart_elbos_``, ``hierarchy_``, ``n_clusters_``, and the assignments in
            ``posterior_`` of :class:`~skvt.CAVIGaussianMixture`.

        Returns
        -------
        bool
            False: the fit continues.
        """
        if context.task_name != "pass":
            return False
        self._n_passes += 1
        if self._n_passes % self.every == 0:
            # The path has no file before the first write, or if another process has removed it.
            with suppress(FileNotFoundError):
                self._keep_previous()
            save(fitted_estimator, self.path)
        return False

    def _keep_previous(self):
        """Make ``.previous`` a link to the file at the path, or a copy of it.

        The file at the path exists throughout.
        """
        path = Path(os.path.realpath(self.path))
        previous_path = path.with_name(f"{path.name}.previous")
        # Link to a temporary name first, and then rename the link, so that an old ``.previous`` is
        # replaced in a single operation.
        temporary_path = make_partial_path(path)
        try:
            os.link(path, temporary_path)
        except FileNotFoundError:
            raise
        except OSError:
            # The file system has no links.
            shutil.copy2(path, temporary_path)
        os.replace(temporary_path, previous_path)
        # The temporary name remains if a process was killed earlier between os.replace and `save`:
        # both names are then links to the same file, for which os.replace does nothing.
        temporary_path.unlink(missing_ok=True)
