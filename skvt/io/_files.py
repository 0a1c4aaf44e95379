"""The public functions ``save`` and ``load``, which write and read model files."""

import json
import os
import stat
from contextlib import contextmanager
from dataclasses import replace

from sklearn.utils.validation import check_is_fitted

import skvt
from skvt.io._archive import Archive, FileError, check_document_memory, compute_max_memory, write
from skvt.io._checks import check_estimator
from skvt.io._classes import get_class_name, get_field_defaults, get_fields, is_estimator
from skvt.io._graph import Decoder, Encoder

FORMAT = "skvt model"
VERSION = 1
# First bytes of files that pickle and joblib write: pickles of protocol 2 and later, and files that
# are compressed by gzip, bz2, xz, lzma or zlib. Model files are zip archives.
_FIRST_BYTES_OF_PICKLES = (
    b"\x80", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"]\0\0", b"x\x01", b"x\x5e", b"x\x9c", b"x\xda"
)  # fmt: skip
# Attributes that scikit-learn sets for callbacks. Files do not hold them, because callbacks may be
# objects of any class; users set callbacks again after loading.
_CALLBACK_ATTRIBUTES = (
    "_skl_callbacks", "_callback_fit_ctx", "_parent_callback_ctx", "_skl_callbacks_to_teardown"
)  # fmt: skip


def save(estimator, path, *, dtype=None):
    """Write a fitted estimator to a file of JSON and arrays, without pickle.

    Later releases can read the file. It is written completely or not at all: if the process is
    interrupted, an earlier file at ``path`` remains.

    Parameters
    ----------
    estimator : estimator of skvt
        A fitted estimator. Callbacks are left out.
    path : str or path-like
        The file, replaced if it exists.
    dtype : {None, "float32"}, default=None
        "float32" halves the size of the file: arrays of double precision are rounded to single
        precision, and are converted back when they are loaded. The relative error of statistics is
        then about 1e-6. Keep None if means are large relative to standard deviations, and for
        checkpoints.

    Raises
    ------
    TypeError
        If the estimator is not an estimator of skvt, or has a part that files cannot hold, such as
        a component or a temperature policy of a class that the user has not registered by
        :func:`skvt.io.register`. Also if ``path`` is not a path.
    sklearn.exceptions.NotFittedError
        If the estimator is not fitted.
    skvt.io.FileError
        If :func:`load` would refuse the file. This is checked before the file is written.

    See Also
    --------
    load : Read the file.
    skvt.callbacks.Checkpoint : Write files during a fit.

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
    _require_path(path)
    class_name = get_class_name(type(estimator))
    if not is_estimator(type(estimator)):
        estimators = [name for name in skvt.__all__ if is_estimator(getattr(skvt, name))]
        raise TypeError(
            f"save takes an estimator of skvt, one of {', '.join(estimators)}. Got an object of "
            f"type {type(estimator).__qualname__}. For a pipeline, save its last step, or save "
            "all of it by skops.io.dump; for an estimator class of your own, call "
            "skvt.io.register first."
        )
    if dtype not in (None, "float32"):
        raise ValueError(f"dtype must be None or 'float32'. Got {dtype!r}.")
    check_is_fitted(estimator)
    encoder = Encoder(dtype)
    fields = {
        field: encoder.encode(value, field)
        for field, value in get_fields(estimator).items()
        if field not in _CALLBACK_ATTRIBUTES
    }
    document = {
        "format": FORMAT,
        "version": VERSION,
        "skvt": skvt.__version__,
        "estimator": {"object": class_name, "fields": fields},
    }
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    # Size of the file in bytes, without the headers of its members.
    size = len(text) + encoder.n_bytes
    # Before the file is written, check it as `load` would.
    refusal = f"Nothing was written, because load would refuse the file of this {class_name}"
    with _as_file_errors(refusal, " Please report this, and use pickle or joblib instead."):
        check_document_memory(text, size)
        # The encoder takes the place of the archive, because it has the arrays.
        _decode_estimator(document["estimator"], encoder, size)
    write(path, text, encoder.arrays_to_write())


def load(path):
    """Read an estimator from a file written by :func:`save` or a checkpoint.

    Nothing is unpickled, and a file contains no code: it holds only numbers and text, which are
    checked before the estimator is returned. Loading usually takes little more memory than the
    arrays. A file that would need more than ten times its size plus 8 MB is refused.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    estimator
        The estimator as it was saved, with the same parameters and results. ``partial_fit`` and
        warm starts can continue its fit, and ``resume`` can continue a fit that was interrupted
        after a checkpoint.

    Raises
    ------
    skvt.io.FileError
        If the file is not a model file, is damaged, or has another version of the format.
    TypeError
        If ``path`` is not a path.
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
    _require_path(path)
    # Other kinds of files, such as pipes and devices, may have no end.
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise FileError(f"{path} is not a regular file.")
    with open(path, "rb") as file, _as_file_errors(f"{path} cannot be loaded"):
        if file.read(5).startswith(_FIRST_BYTES_OF_PICKLES):
            raise FileError(
                "It is a pickle, or a compressed file such as joblib writes, and load unpickles "
                "nothing. If you trust its origin, read it by joblib.load or pickle.load, and "
                "write the estimator by skvt.save."
            )
        archive = Archive(file)
        document = archive.document()
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise FileError("It is not a model file of skvt.")
        if document.get("version") != VERSION:
            raise FileError(
                f"The file has version {document.get('version')!r} of the format, but this "
                f"release, skvt {skvt.__version__}, reads version {VERSION}. Load it with skvt "
                f"{document.get('skvt')}, which wrote it, or a later release."
            )
        return _decode_estimator(document.get("estimator"), archive, archive.size)


def _require_path(path):
    """Raise TypeError unless ``path`` is a str or path-like."""
    if not isinstance(path, str | bytes | os.PathLike):
        raise TypeError(
            "path must be the path of a file, a str or path-like. Got an object of type "
            f"{type(path).__name__}. For an estimator as bytes in memory, use pickle.dumps and "
            "pickle.loads."
        )


@contextmanager
def _as_file_errors(failure, remedy=""):
    """Convert any exception in a ``with`` block to a FileError.

    A damaged or hostile file may raise exceptions of any type while it is decoded. The message of
    the FileError consists of the ``failure``, the reason and the ``remedy``.
    """
    try:
        yield
    except FileError as error:
        raise FileError(f"{failure}: {error}{remedy}") from error
    except Exception as error:
        reason = f"The file is damaged, or is not a model file of skvt ({error!r})."
        raise FileError(f"{failure}: {reason}{remedy}") from error


def _decode_estimator(node, archive, size):
    """Decode and check the estimator of a file of ``size`` bytes.

    ``node`` is the JSON of the estimator, see `skvt.io._graph`. The ``archive`` has the arrays: it
    is an :class:`~skvt.io._archive.Archive` or, before a file is written, an Encoder.
    """
    estimator = Decoder(archive).decode(node)
    name = get_class_name(type(estimator))
    if not is_estimator(type(estimator)):
        raise FileError(f"The file holds an object of class {name!r}, which is not an estimator.")
    check_estimator(estimator, compute_max_memory(size))
    fitted = estimator._fitted
    # ``fitted.parameters`` are the parameters of the estimator at the last call of ``fit`` or
    # ``partial_fit``. Parameters that did not exist in the release that wrote the file get their
    # defaults.
    for parameter, default in get_field_defaults(name).items():
        fitted.parameters.setdefault(parameter, default)
    # The reader converts the rows that users pass to arrays of numbers. It is not in the file, and
    # is made again from the parameters and attributes of the estimator.
    reader = estimator._reader_class.from_estimator(estimator)
    reader = reader.restore(vars(estimator), fitted.model.dtype)
    estimator._fitted = replace(fitted, reader=reader)
    return estimator
