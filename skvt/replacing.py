"""Files that are written as a whole or not at all."""

import errno
import glob
import os
import secrets
import stat
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows, where an open file cannot be removed
    fcntl = None

# Suffix of the name of a file that is being written.
PARTIAL = ".partial"


@contextmanager
def replacing(path):
    """Open a binary file that replaces the file at ``path`` when the ``with`` block has ended.

    The replacement is atomic: an interruption leaves the previous file. Threads and processes can
    write to one path at once: each has a partial file, whose name cannot be guessed, and the file
    of the last one to end remains. The permissions of the previous file are kept. A link is
    followed.
    """
    path = Path(os.path.realpath(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "No such folder to save in", str(path.parent))
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
    if mode is not None and not path.is_file():
        raise OSError(errno.EINVAL, "Only a regular file can be replaced", str(path))
    first_mode, partial = 0o666 if mode is None else mode, partial_name(path)
    try:
        with open(
            partial, "xb", opener=lambda name, flags: os.open(name, flags, first_mode)
        ) as file:
            if fcntl is not None:
                with suppress(OSError):  # a file system without locks
                    fcntl.flock(file, fcntl.LOCK_EX)
            yield file
            file.flush()
            if mode is not None:  # set bits that the process's umask clears, too
                os.chmod(partial, mode)
            os.fsync(file.fileno())
            if fcntl is not None:  # while the lock is held
                os.replace(partial, path)
        if fcntl is None:
            os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise
    _sync(path.parent)


def partial_name(path):
    """Return a new name beside this path for a file that is not complete."""
    return path.with_name(f"{path.name}.{secrets.token_hex(8)}{PARTIAL}")


def remove_partials(path):
    """Remove partial files of ``path`` that killed processes have left.

    A running writer holds a lock, which it takes before it writes the first byte.
    """
    path = Path(os.path.realpath(path))
    for left in path.parent.glob(f"{glob.escape(path.name)}.*{PARTIAL}"):
        with suppress(OSError):
            if fcntl is None:
                left.unlink()
                continue
            with open(left, "r+b", opener=_open_file) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if left.stat().st_size:
                    left.unlink()


def _open_file(name, flags):
    """Open a file without following links and without waiting for a reader of a pipe."""
    return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _sync(folder):
    """Make a rename in this folder durable, if the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
