"""Model files as uncompressed zip archives of one JSON text and of arrays in NumPy's format.

Nothing is unpickled, and memory is allocated only for data that the file holds: members are not
compressed, so that an array cannot be larger than the part of the file from which it is read.
"""

import json
import os
import zipfile

import numpy as np

from skvt.replacing import replacing

DOCUMENT = "model.json"
# Kinds of arrays that files hold: booleans, integers, real numbers and text.
_KINDS = "biufU"
# Sizes of their real numbers in bytes.
REAL_SIZES = 4, 8
# Number of elements of an array that are processed at a time, to avoid a copy of the array.
PART = 2**17
# Bytes of memory that loading may take for each byte of the file, and in addition for any file.
_MEMORY_PER_BYTE = 10
_MEMORY_OF_ANY_FILE = 2**23
# Estimates of the bytes of memory that the objects in JSON and the objects made of them take: for
# each of these characters, and in addition for each number. The number of numbers is not known:
# their memory is the smaller of the estimates by commas and by digits.
_PER_MARK = {"{": 200, "[": 180, ",": 16, ":": 40, '"': 13}
_PER_NUMBER = 32
_PER_DIGIT = 7


class FileError(ValueError):
    """A file is no model file of skvt, or is damaged.

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


def member_of(number):
    """Return the name of an array in the archive."""
    return f"arrays/{number}.npy"


def is_kept(dtype):
    """Return whether files may hold arrays of this type: compiled loops must accept it."""
    of_size = dtype.kind != "f" or dtype.itemsize in REAL_SIZES
    return dtype.kind in _KINDS and not dtype.hasobject and dtype.isnative and of_size


def memory_for(size):
    """Return the number of bytes of memory that loading a file of this size may take."""
    return _MEMORY_PER_BYTE * size + _MEMORY_OF_ANY_FILE


def check_document(text, size):
    """Raise FileError if the JSON of a file of this size would take too much memory."""
    digits = sum(map(text.count, "0123456789"))
    # The text is in memory as bytes and as a string, of up to 4 bytes per character.
    memory = (2 if text.isascii() else 5) * len(text)
    memory += sum(text.count(mark) * n for mark, n in _PER_MARK.items())
    memory += min(_PER_NUMBER * text.count(","), _PER_DIGIT * digits)
    if memory > memory_for(size):
        raise FileError(f"{DOCUMENT} takes more memory than a file of {size} bytes may need.")


def write(path, text, arrays):
    """Write a file of JSON ``text`` and ``arrays``, completely or not at all."""
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for number, array in enumerate(arrays):
            with archive.open(_info(member_of(number)), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
        archive.writestr(_info(DOCUMENT), text)


def _info(name):
    """Return the header of a member with a fixed date, so that equal models make equal files."""
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.external_attr = 0o644 << 16
    return info


class Archive:
    """An archive opened for reading.

    Any exception may be raised if :func:`write` has not made the file.
    """

    def __init__(self, file):
        self._zip, self.size = zipfile.ZipFile(file), os.fstat(file.fileno()).st_size
        self._arrays, infos = {}, self._zip.infolist()
        for info in infos:
            if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
                raise FileError(f"{info.filename!r} is compressed; a model file's parts are not.")
            if info.flag_bits & 0x1:
                raise FileError(f"{info.filename!r} is encrypted.")
        expected = {DOCUMENT, *map(member_of, range(len(infos) - 1))}
        if {info.filename for info in infos} != expected or len(infos) != len(expected):
            raise FileError(f"The file must consist of {DOCUMENT} and arrays/0.npy, 1, 2, ...")
        if sum(info.file_size for info in infos) > self.size:
            raise FileError("Parts of the file overlap.")

    def document(self):
        """Return the JSON text as Python objects."""
        text = self._zip.read(DOCUMENT).decode()
        check_document(text, self.size)
        return json.loads(text, parse_constant=_no_constant)

    def array(self, number, *, as_double=False):
        """Return the array of this number; ``as_double`` converts float32 to float64.

        It is read once: later calls return the same array.
        """
        if isinstance(number, bool) or not isinstance(number, int):
            raise FileError(f"{number!r} is no number of an array.")
        if (number, as_double) not in self._arrays:
            info = self._zip.getinfo(member_of(number))
            with self._zip.open(info) as member:
                self._arrays[number, as_double] = _read_array(member, info.file_size, as_double)
        return self._arrays[number, as_double]


def _read_array(member, size, as_double):
    """Read an array in NumPy's format of ``size`` bytes, the header included."""
    version = np.lib.format.read_magic(member)
    reader = {(1, 0): np.lib.format.read_array_header_1_0}.get(
        version, np.lib.format.read_array_header_2_0
    )
    shape, fortran_order, dtype = reader(member)
    if not is_kept(dtype):
        raise FileError(f"An array of {dtype} cannot be part of a model.")
    if as_double and dtype != np.float32:
        raise FileError(f"An array of {dtype} was not reduced to single precision.")
    count = 1
    for length in shape:
        count *= length
    if count < 0 or count * dtype.itemsize != size - member.tell():
        raise FileError(f"An array of shape {shape} does not fit into its {size} bytes.")
    array = np.empty(shape, np.float64 if as_double else dtype, "F" if fortran_order else "C")
    flat = array.reshape(-1, order="A")
    # Read in parts, to avoid a second copy of the array.
    for start in range(0, count, PART):
        part = np.empty(min(PART, count - start), dtype)
        if part.nbytes and member.readinto(memoryview(part.view(np.uint8))) != part.nbytes:
            raise FileError("An array is cut short.")
        flat[start : start + PART] = part
    if member.read(1):
        raise FileError("An array is longer than its header says.")
    return array


def _no_constant(name):
    raise FileError(f"{name} is no JSON.")
