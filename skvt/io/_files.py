"""The public functions ``save`` and ``load``."""

import json
import os
import stat
from contextlib import contextmanager
from dataclasses import replace

from sklearn.utils.validation import check_is_fitted

import skvt
from skvt.io._archive import Archive, FileError, check_document, memory_for, write
from skvt.io._checks import check_estimator
from skvt.io._classes import defaults_of, fields_of, is_estimator, name_of
from skvt.io._graph import Decoder, Encoder

FORMAT = "skvt model"
VERSION = 1
# Attributes that scikit-learn sets for callbacks. Files do not hold them, since users set callbacks
# again after loading.
_OF_THE_PROCESS = "_skl_callbacks", "_callback_fit_ctx", "_parent_callback_ctx"
_OF_TEARDOWN = "_skl_callbacks_to_teardown"


def save(estimator, path, *, dtype=None):
    """Write a fitted estimator to a file that lasts: JSON and arrays, no pickle.

    The file is written completely or not at all: if the process is interrupted, the previous file
    remains.

    Parameters
    ----------
    estimator : estimator of skvt
        A fitted estimator. Callbacks are left out.
    path : str or path-like
        The file, replaced if it exists.
    dtype : {None, "float32"}, default=None
        "float32" halves the file: arrays of double precision are rounded, and have double precision
        again after loading. Results then agree to about 1e-6 of the size of statistics. Keep None
        if means are large relative to standard deviations, and for checkpoints.

    Raises
    ------
    TypeError
        If it is no estimator of skvt, or has a part that is neither text, number nor array nor an
        object of skvt, such as a component or a temperature policy of the user's own.
    sklearn.exceptions.NotFittedError
        If it is not fitted.
    skvt.io.FileError
        If :func:`load` would refuse the file, as it is checked before it is written.

    See Also
    --------
    load : Read the file.
    skvt.callbacks.Checkpoint : Write one during a fit.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> import skvt
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> path = os.path.join(tempfile.mkdtemp(), "mixture.skvt")
    >>> skvt.save(skvt.MemoizedDPGMM(random_state=0).fit(X), path)
    >>> skvt.load(path).predict(X[:2]).shape
    (2,)
    """
    name = name_of(type(estimator))
    if not is_estimator(type(estimator)):
        estimators = [public for public in skvt.__all__ if is_estimator(getattr(skvt, public))]
        raise TypeError(
            f"save takes an estimator of skvt, one of {', '.join(estimators)}. Got a "
            f"{type(estimator).__qualname__}; of a pipeline, save the last step, or save all of "
            "it by skops.io.dump; for an estimator of your own, skvt.io.register."
        )
    if dtype not in (None, "float32"):
        raise ValueError(f"dtype must be None or 'float32'. Got {dtype!r}.")
    check_is_fitted(estimator)
    encoder = Encoder(dtype)
    hidden = (*_OF_THE_PROCESS, _OF_TEARDOWN)
    fields = {
        field: encoder.encode(value, field)
        for field, value in fields_of(estimator).items()
        if field not in hidden
    }
    document = {
        "format": FORMAT,
        "version": VERSION,
        "skvt": skvt.__version__,
        "estimator": {"object": name, "fields": fields},
    }
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    size = len(text) + encoder.n_bytes
    try:
        with _file_errors(path):
            check_document(text, size)
            _decode_estimator(document["estimator"], encoder, size)
    except FileError as error:
        raise FileError(
            f"Nothing was written: load would refuse the file of this {name}. {error} Use pickle "
            "or joblib, and report it."
        ) from error
    write(path, text, encoder.written())


def load(path):
    """Read an estimator from a file written by :func:`save` or a checkpoint.

    Nothing is unpickled and no code of the file runs: a file holds only numbers and text, which are
    checked before the estimator is returned. Loading takes little more memory than the arrays, and
    at most ten times the size of the file plus 8 MB.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    estimator
        The estimator as it was saved, with the same parameters and results. ``partial_fit``, warm
        starts and, from a checkpoint, ``resume`` can continue it.

    Raises
    ------
    skvt.io.FileError
        If it is no model file, is damaged, or has another version of the format.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> import skvt
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> path = os.path.join(tempfile.mkdtemp(), "mixture.skvt")
    >>> mixture = skvt.MemoizedDPGMM(random_state=0).fit(X)
    >>> skvt.save(mixture, path)
    >>> bool(skvt.load(path).elbo_ == mixture.elbo_)
    True
    """
    # Other kinds of files, such as pipes and devices, may have no end.
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise FileError(f"{path} is no regular file.")
    with open(path, "rb") as file, _file_errors(path):
        archive = Archive(file)
        document = archive.document()
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise FileError(f"{path} is no model file of skvt.")
        if document.get("version") != VERSION:
            raise FileError(
                f"{path} has version {document.get('version')!r} of the format; this release, skvt "
                f"{skvt.__version__}, reads version {VERSION}. Use the one that wrote it, "
                f"{document.get('skvt')!r}, or a later one."
            )
        return _decode_estimator(document.get("estimator"), archive, archive.size)


@contextmanager
def _file_errors(path):
    """Convert any exception, which a hostile file may raise, to a FileError."""
    try:
        yield
    except FileError:
        raise
    except Exception as error:
        raise FileError(f"{path} is no model file, or a damaged one: {error!r}") from error


def _decode_estimator(node, arrays, size):
    """Decode and check the estimator of a file of ``size`` bytes."""
    estimator = Decoder(arrays).decode(node)
    name = name_of(type(estimator))
    if not is_estimator(type(estimator)):
        raise FileError("The file holds no estimator.")
    check_estimator(estimator, memory_for(size))
    # Files of earlier releases may lack parameters: use the defaults.
    parameters = estimator._fitted.parameters
    parameters |= {key: v for key, v in defaults_of(name).items() if key not in parameters}
    fitted = estimator._fitted
    reader = estimator._reads.of(estimator).resumed(vars(estimator), fitted.model.dtype)
    estimator._fitted = replace(fitted, reader=reader)
    return estimator
