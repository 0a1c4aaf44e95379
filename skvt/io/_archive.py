"""Model files as uncompressed zip archives of a JSON text and of arrays in NumPy's format.

Nothing is unpickled. The members of the archive are not compressed, so that an array cannot be
larger than the part of the file from which it is read. A small file thus cannot make the reader
allocate much memory. :func:`write` makes a file, and :class:`Archive` reads it.
"""

import json
import math
import os
import zipfile

import numpy as np
from numpy.lib import format as npy

from skvt._replacing import open_replacement

# Name of the member with the JSON text.
DOCUMENT_NAME = "model.json"
# Values of ``dtype.kind`` of arrays that files hold: booleans, integers, real numbers and text.
_DTYPE_KINDS = "biufU"
# Sizes in bytes of the real numbers that files hold.
REAL_SIZES = 4, 8
# Number of elements of an array that are processed at a time, so that no copy of a whole array is
# needed.
PART_SIZE = 2**17
# Loading a file of n bytes may take ``_MEMORY_PER_FILE_BYTE * n + _MEMORY_OF_ANY_FILE`` bytes.
_MEMORY_PER_FILE_BYTE = 10
_MEMORY_OF_ANY_FILE = 2**23
# The memory of a parsed JSON text is estimated from counts of its characters, so that a text that
# would take too much memory is never parsed. Each occurrence of a character adds the number of
# bytes in this dict, for the object, list, entry or string that the character begins or separates.
_BYTES_PER_CHARACTER = {"{": 200, "[": 180, ",": 16, ":": 40, '"': 13}
# Numbers add the smaller of two estimates: 32 bytes for each comma, because commas separate
# numbers, or 7 bytes for each digit.
_BYTES_PER_COMMA = 32
_BYTES_PER_DIGIT = 7


class FileError(ValueError):
    """A file is not a model file of skvt, or is damaged.

    Examples
    --------
    >>> import os, tempfile
    >>> import skvt
    >>> path = os.path.join(tempfile.mkdtemp(), "damaged.skvt")
    >>> with open(path, "w") as file:
    ...     _ = file.write("no model")
    >>> try:
    ...     skvt.load(path)
    ... except skvt.io.FileError:
    ...     print("damaged")
    damaged
    """


def _name_member(number):
    """Return the name of the member that holds the array ``number``."""
    return f"arrays/{number}.npy"


def is_storable(dtype):
    """Return whether files may hold arrays of the type ``dtype``.

    Compiled loops accept all of these types.
    """
    has_legal_size = dtype.kind != "f" or dtype.itemsize in REAL_SIZES
    return dtype.kind in _DTYPE_KINDS and not dtype.hasobject and dtype.isnative and has_legal_size


def compute_max_memory(size):
    """Return the number of bytes of memory that loading a file of ``size`` bytes may take."""
    return _MEMORY_PER_FILE_BYTE * size + _MEMORY_OF_ANY_FILE


def check_document_memory(text, size):
    """Raise FileError if the JSON ``text`` of a file of ``size`` bytes takes too much memory."""
    n_digits = sum(map(text.count, "0123456789"))
    # The text is in memory as bytes and as a string. A string takes 1 byte per character if all
    # characters are ASCII, and up to 4 otherwise.
    memory = (2 if text.isascii() else 5) * len(text)
    memory += sum(text.count(letter) * n_bytes for letter, n_bytes in _BYTES_PER_CHARACTER.items())
    memory += min(_BYTES_PER_COMMA * text.count(","), _BYTES_PER_DIGIT * n_digits)
    if memory > compute_max_memory(size):
        raise FileError(
            f"{DOCUMENT_NAME} would take more memory than any model file of {size} bytes needs."
        )


def write(path, text, arrays):
    """Write a file of JSON ``text`` and ``arrays``, completely or not at all."""
    with open_replacement(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for number, array in enumerate(arrays):
            with archive.open(_make_header(_name_member(number)), "w", force_zip64=True) as member:
                npy.write_array(member, array, allow_pickle=False)
        archive.writestr(_make_header(DOCUMENT_NAME), text)


def _make_header(name):
    """Return the header of a member with a fixed date, so that equal models make equal files."""
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    # The upper 16 bits hold the permissions of Unix.
    info.external_attr = 0o644 << 16
    return info


class Archive:
    """An archive opened for reading.

    A file that :func:`write` has not made may raise any exception, not only FileError.
    """

    def __init__(self, file):
        self._zip = zipfile.ZipFile(file)
        # Size of the file in bytes.
        self.size = os.fstat(file.fileno()).st_size
        # The arrays that were read, by the pair (number, ``as_double``).
        self._arrays = {}
        headers = self._zip.infolist()
        for header in headers:
            is_stored = header.compress_type == zipfile.ZIP_STORED
            if not is_stored or header.compress_size != header.file_size:
                raise FileError(
                    f"{header.filename!r} is compressed, but no part of a model file is."
                )
            # The lowest flag of a member says that the member is encrypted.
            if header.flag_bits & 0x1:
                raise FileError(
                    f"{header.filename!r} is encrypted, but no part of a model file is."
                )
        # All members but the document are arrays. The lengths differ if a name occurs twice.
        expected = {DOCUMENT_NAME, *map(_name_member, range(len(headers) - 1))}
        if {header.filename for header in headers} != expected or len(headers) != len(expected):
            raise FileError(
                f"The archive must consist of {DOCUMENT_NAME} and the arrays arrays/0.npy, "
                "arrays/1.npy and so on."
            )
        # Members that overlap could hold more data than the file.
        if sum(header.file_size for header in headers) > self.size:
            raise FileError("Parts of the archive overlap.")

    def document(self):
        """Return the JSON text as Python objects."""
        text = self._zip.read(DOCUMENT_NAME).decode()
        check_document_memory(text, self.size)
        return json.loads(text, parse_constant=_refuse_constant)

    def array(self, number, *, as_double=False):
        """Return the array ``number``; with ``as_double``, convert it from float32 to float64.

        The array is read once: later calls return the same object.
        """
        if isinstance(number, bool) or not isinstance(number, int):
            raise FileError(f"Arrays have whole numbers, but the file refers to array {number!r}.")
        if (number, as_double) not in self._arrays:
            header = self._zip.getinfo(_name_member(number))
            with self._zip.open(header) as member:
                self._arrays[number, as_double] = _read_array(member, header.file_size, as_double)
        return self._arrays[number, as_double]


def _read_array(member, size, as_double):
    """Read an array in NumPy's format from a member of ``size`` bytes, the header included.

    NumPy's function ``read_array`` is not used, because it allocates an array of the size that the
    header states, even if the member is smaller.
    """
    is_version_1 = npy.read_magic(member) == (1, 0)
    read_header = npy.read_array_header_1_0 if is_version_1 else npy.read_array_header_2_0
    shape, fortran_order, dtype = read_header(member)
    if not is_storable(dtype):
        raise FileError(f"An array of type {dtype} cannot be part of a model.")
    if as_double and dtype != np.float32:
        raise FileError(
            f"An array saved with dtype='float32' must be of that type, but it is of type {dtype}."
        )
    # The product cannot overflow, because the lengths are integers of Python. After the header,
    # ``member.tell()`` is the length of the header.
    n_elements = math.prod(shape)
    if n_elements < 0 or n_elements * dtype.itemsize != size - member.tell():
        raise FileError(
            f"An array of shape {shape} and type {dtype} does not have the length of its entry, "
            f"{size} bytes."
        )
    array = np.empty(shape, np.float64 if as_double else dtype, "F" if fortran_order else "C")
    flat_array = array.reshape(-1, order="A")
    # Read some elements at a time into a buffer of the stored type, from which they are converted,
    # so that the whole array is never copied.
    for start in range(0, n_elements, PART_SIZE):
        buffer = np.empty(min(PART_SIZE, n_elements - start), dtype)
        if buffer.nbytes and member.readinto(memoryview(buffer.view(np.uint8))) != buffer.nbytes:
            raise FileError(f"An array of shape {shape} ends before its last value.")
        flat_array[start : start + PART_SIZE] = buffer
    if member.read(1):
        raise FileError(f"An array of shape {shape} has further values after its last one.")
    return array


def _refuse_constant(name):
    """Raise FileError for NaN, Infinity or -Infinity, which Python's parser would accept."""
    raise FileError(f"The document has the constant {name}, which JSON does not have.")
