"""Files that are written as a whole or not at all.

A new file is written under another name, as a *partial file*, and takes the place of the old file
when it is complete.
"""

import errno
import glob
import os
import secrets
import stat
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:
    # The system is Windows, where an open file can neither be renamed nor removed.
    fcntl = None

# Suffix of the name of a file that is being written.
PARTIAL_SUFFIX = ".partial"


@contextmanager
def open_replacement(path):
    """Open a binary file that replaces the file at ``path`` when the ``with`` block has ended.

    The replacement is atomic: an interruption leaves the previous file. Its permissions are kept.
    If ``path`` is a link, the file to which it refers is replaced.

    Several threads and processes can write to the same path at the same time, because each writes
    to a separate partial file. The file of the writer that ends last remains.
    """
    path = Path(os.path.realpath(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(
            errno.ENOENT, "The folder to save in does not exist", str(path.parent)
        )
    # The permissions of the previous file; None without a previous file.
    permissions = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
    if permissions is not None and not path.is_file():
        raise OSError(errno.EINVAL, "Only a regular file can be replaced", str(path))
    partial_path = make_partial_path(path)

    def open_partial(name, flags):
        return os.open(name, flags, 0o666 if permissions is None else permissions)

    try:
        with open(partial_path, "xb", opener=open_partial) as file:
            if fcntl is not None:
                # The lock tells `remove_partials` that this process still writes. Some file systems
                # have no locks.
                with suppress(OSError):
                    fcntl.flock(file, fcntl.LOCK_EX)
            yield file
            file.flush()
            if permissions is not None:
                # Set the bits of the mode that the umask of the process has cleared.
                os.chmod(partial_path, permissions)
            os.fsync(file.fileno())
            if fcntl is not None:
                # Rename the file before the lock is released, or else `remove_partials` of another
                # process could remove it.
                os.replace(partial_path, path)
        if fcntl is None:
            # Windows can rename the file only after it is closed.
            os.replace(partial_path, path)
    except BaseException:
        with suppress(OSError):
            partial_path.unlink()
        raise
    _sync_folder(path.parent)


def make_partial_path(path):
    """Return the path of a partial file in the folder of ``path``; its name cannot be guessed."""
    return path.with_name(f"{path.name}.{secrets.token_hex(8)}{PARTIAL_SUFFIX}")


def remove_partials(path):
    """Remove partial files of ``path`` that killed processes have left.

    Files of running writers, which hold a lock, are not removed. Empty files are not removed
    either, because a writer creates an empty file a moment before it gets the lock.
    """
    path = Path(os.path.realpath(path))
    for partial_path in path.parent.glob(f"{glob.escape(path.name)}.*{PARTIAL_SUFFIX}"):
        # An OSError means that a writer holds the lock, or that the file cannot be opened or
        # removed. The file then stays.
        with suppress(OSError):
            if fcntl is None:
                partial_path.unlink()
                continue
            with open(partial_path, "r+b", opener=_open_without_waiting) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if partial_path.stat().st_size:
                    partial_path.unlink()


def _open_without_waiting(name, flags):
    """Open a file; return its descriptor. Do not follow links, and do not wait if it is a pipe."""
    return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _sync_folder(folder):
    """Make a rename in this folder durable, if the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
