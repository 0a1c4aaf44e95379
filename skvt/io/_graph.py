"""Conversion of objects to JSON and arrays, and back.

None, booleans, finite numbers, strings and lists are written as in JSON. Everything else is a JSON
object with a key that names its kind:

===================  =============================================================================
``array``            number of an array in the file; ``as`` its precision if it was reduced
``object``           name of a class; ``fields`` its fields
``ref``              number of an earlier object, counted from 0
``tuple``, ``set``,  list of the elements
``frozenset``
``dict``             list of pairs of key and value
``float``            "nan", "inf" or "-inf"
``scalar``           a NumPy number: name of its type; ``value``
``objects``          elements of an array of objects (categories, names); ``shape``
``csr``              values, columns and ends of the rows of a sparse array; ``shape``
``records``          a list of objects of the class of this name, whose fields are numbers and text:
                     ``columns`` are the values of each field, as arrays where they are numbers
``slice``            start, stop, step
``dtype``, ``type``  name of a number's type, as ``numpy.dtype`` or as class
``member``           class and name of a member of an enumeration
``random_state``,    state of NumPy's generators
``generator``
===================  =============================================================================
"""

import math
from enum import Enum

import numpy as np
import scipy.sparse as sp

from skvt.files import IN_FILES
from skvt.io._archive import PART, REAL_SIZES, FileError, is_kept
from skvt.io._classes import (
    OF_ESTIMATORS,
    RECORDS,
    class_of,
    conforms,
    defaults_of,
    fields_of,
    is_estimator,
    is_key,
    name_of,
    required,
    types_of,
)

_NUMBER_TYPES = ("float32", "float64")
_SINGLE = np.finfo(np.float32)
_MOST_GENERATORS = 100
# Maximum length of the seed of a generator of random numbers.
_LONGEST_SEED = 100
# Maximum number of keys of a set or dict with the same hash, as Python compares these pair by pair.
_MOST_OF_ONE_HASH = 20


class NotWritableError(TypeError):
    """An object cannot be part of a model file."""


class Encoder:
    """Encoder of Python objects as JSON and arrays; ``dtype="float32"`` rounds the arrays."""

    def __init__(self, dtype=None):
        self._arrays, self._rounded = [], set()
        self._dtype = dtype
        self._numbers_of_arrays = {}
        self._numbers_of_objects = {}
        # Objects whose ids are keys of the dicts above. They must not be freed, since other objects
        # could then get these ids.
        self._alive = []

    def encode(self, value, where):
        """Return ``value`` as JSON; ``where`` names it in error messages."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if type(value) is list:
            names = {*map(name_of, {*map(type, value)})}
            if len(names) == 1 and names <= {*RECORDS}:
                return self._records(value, where)
            return [self.encode(part, f"{where}[{i}]") for i, part in enumerate(value)]
        if isinstance(value, np.ndarray) and value.dtype.kind != "O":
            return self._array(value, where)
        for cls, encode in self._KINDS.items():
            if isinstance(value, cls) and (name_of(type(value)) is None):
                return encode(self, value, where)
        return self._object(value, where)

    def _sequence(self, value, where):
        kind = type(value).__name__
        if kind not in ("tuple", "set", "frozenset"):
            raise self._refusal(value, where)
        # Elements of sets are written in a fixed order, so that equal models make equal files.
        parts = value if kind == "tuple" else sorted(value, key=repr)
        return {kind: [self.encode(part, f"{where}[{i}]") for i, part in enumerate(parts)]}

    def _dict(self, value, where):
        if type(value) is not dict:
            raise self._refusal(value, where)
        return {
            "dict": [
                [self.encode(key, f"{where} (key)"), self.encode(part, f"{where}[{key!r}]")]
                for key, part in value.items()
            ]
        }

    def _scalar(self, value, where):
        value = _of_kept_precision(value)
        plain = value.item()
        if not isinstance(plain, bool | int | float | str):
            raise self._refusal(value, where)
        return {"scalar": type(value).__name__, "value": self.encode(plain, where)}

    def _objects(self, value, where):
        parts = [self.encode(part, f"{where}[{i}]") for i, part in enumerate(value.ravel())]
        return {"objects": parts, "shape": list(value.shape)}

    def _csr(self, value, where):
        parts = value.data, value.indices, value.indptr
        return {"csr": [self.encode(part, where) for part in parts], "shape": list(value.shape)}

    def _records(self, value, where):
        name = name_of(type(value[0]))
        columns = {}
        for field, hint in types_of(name).items():
            column = [getattr(record, field) for record in value]
            if hint in (int, float):  # in JSON, numbers would take thirty times as much memory
                column = np.array(column, hint)
                columns[field] = self._array(column, where, exact=True)
            else:
                columns[field] = self.encode(column, where)
        return {"records": name, "columns": columns}

    def _slice(self, value, where):
        parts = value.start, value.stop, value.step
        return {"slice": [self.encode(part, where) for part in parts]}

    def _number_type(self, value, where):
        kind = "type" if isinstance(value, type) else "dtype"
        name = value.__name__ if kind == "type" else value.name
        if name not in _NUMBER_TYPES or value not in (np.dtype(name), getattr(np, name)):
            raise self._refusal(value, where)
        return {kind: name}

    def _random_state(self, value, where):
        kind, keys, *rest = value.get_state()
        if kind != "MT19937":
            raise self._refusal(value, where)
        return {"random_state": [self.encode(part, where) for part in (keys, *rest)]}

    def _generator(self, value, where):
        if type(value.bit_generator) is not np.random.PCG64:
            raise self._refusal(value, where)
        # Keep the number of spawned children, since the next children depend on it.
        seeds = value.bit_generator.seed_seq
        sequence = {
            "entropy": seeds.entropy,
            "spawn_key": tuple(int(key) for key in seeds.spawn_key),
            "n_children_spawned": seeds.n_children_spawned,
        }
        return {"generator": self.encode([value.bit_generator.state, sequence], where)}

    _KINDS = {
        tuple: _sequence,
        set: _sequence,
        frozenset: _sequence,
        dict: _dict,
        np.generic: _scalar,
        np.ndarray: _objects,
        sp.csr_array: _csr,
        slice: _slice,
        np.dtype: _number_type,
        type: _number_type,
        np.random.RandomState: _random_state,
        np.random.Generator: _generator,
    }

    def _array(self, value, where, *, exact=False):
        number = self._numbers_of_arrays.get(id(value))
        if number is None:
            number = len(self._arrays)
            array = np.asarray(value)
            if not array.dtype.isnative:
                array = array.astype(array.dtype.newbyteorder("="))
            array = _of_kept_precision(array)
            if not is_kept(array.dtype) or (array.dtype.itemsize == 0 and array.size):
                raise self._refusal(value, where)
            if (
                self._dtype == "float32"
                and not exact
                and array.dtype == np.float64
                and _is_in_range(array)
            ):
                self._rounded.add(number)
            self._arrays.append(array)
            self._numbers_of_arrays[id(value)] = number
            self._alive.append(value)
        if number in self._rounded:
            return {"array": number, "as": "float64"}
        return {"array": number}

    def array(self, number, *, as_double=False):
        """Return an array as an :class:`~skvt.io._archive.Archive` will read it from the file."""
        if not as_double:
            return self._arrays[number]
        array = np.array(self._arrays[number], order="C")
        for part in _parts(array):
            part[:] = part.astype(np.float32)
        return array

    def written(self):
        """Yield the arrays in the precision in which they are written."""
        for number, array in enumerate(self._arrays):
            yield array.astype(np.float32) if number in self._rounded else array

    @property
    def n_bytes(self):
        """Number of bytes of all arrays in the precision in which they are written."""
        return sum(a.nbytes // (1 + (i in self._rounded)) for i, a in enumerate(self._arrays))

    def _object(self, value, where):
        cls = type(value)
        name = name_of(cls)
        if name is None:
            raise self._refusal(value, where)
        if issubclass(cls, Enum):
            return {"member": [name, value.name]}
        if id(value) in self._numbers_of_objects:
            return {"ref": self._numbers_of_objects[id(value)]}
        fields = {
            field: self.encode(part, f"{where}.{field}" if where else field)
            for field, part in fields_of(value).items()
        }
        # Objects are numbered after their fields, in the order in which a Decoder completes them.
        self._numbers_of_objects[id(value)] = len(self._numbers_of_objects)
        self._alive.append(value)
        return {"object": name, "fields": fields}

    @staticmethod
    def _refusal(value, where):
        cls = type(value)
        return NotWritableError(
            f"{where} is a {cls.__module__}.{cls.__qualname__}, which a model file cannot hold: "
            "it holds numbers, text, arrays, and objects of skvt's own classes. Replace it, or use "
            "pickle or joblib instead."
        )


def _of_kept_precision(value):
    """Return an array or number in a precision that files hold; half precision becomes single."""
    if value.dtype.kind != "f" or value.dtype.itemsize in REAL_SIZES:
        return value
    return value.astype(np.float32 if value.dtype.itemsize < 4 else np.float64)


def _is_in_range(array):
    """Return whether all finite values except 0 are in the range of single precision."""
    for part in _parts(array):
        size = np.abs(part[np.isfinite(part) & (part != 0.0)])
        if size.size and not (size.min() > _SINGLE.tiny and size.max() < _SINGLE.max):
            return False
    return True


def _parts(array):
    """Yield the elements in parts of limited size."""
    flat = array.reshape(-1, order="A")
    for start in range(0, flat.size, PART):
        yield flat[start : start + PART]


class Decoder:
    """Decoder of JSON and arrays.

    Any exception may be raised if an :class:`Encoder` has not written the input.
    """

    def __init__(self, archive):
        self._archive = archive
        self._objects, self._without_nan = [], set()
        self._n_generators = 0

    def decode(self, node, *, nan=False):
        """Return the value of a node; ``nan`` tells whether it may be or contain NaN."""
        if node is None or isinstance(node, bool | int | float | str):
            return node
        if isinstance(node, list):
            return [self.decode(part, nan=nan) for part in node]
        for kind, decode in self._KINDS.items():
            if kind in node:
                return decode(self, node, nan)
        raise FileError(f"A node of kind {sorted(node)!r} is not known.")

    def _list(self, part, nan):
        value = self.decode(part, nan=nan)
        if type(value) is not list:
            raise FileError("A list is missing.")
        return value

    def _array(self, node, nan):
        if node.get("as") not in (None, "float64"):
            raise FileError(f"No array can become {node['as']!r}.")
        number = node["array"]
        array = self._archive.array(number, as_double="as" in node)
        if array.dtype.kind == "f" and not nan and number not in self._without_nan:
            if any(np.isnan(part).any() for part in _parts(array)):
                raise FileError(f"Array {number} has NaN where a model has none.")
            self._without_nan.add(number)
        return array

    def _object(self, node, nan):
        name, nodes = node["object"], node["fields"]
        cls = class_of(name)
        if issubclass(cls, Enum):
            raise FileError(f"An object of {name} has no fields.")
        if issubclass(cls, list):
            value = cls(self._list(nodes.get(""), nan))
            if not {*map(name_of, {*map(type, value)})} <= {"inference.Entry"}:
                raise FileError(f"{name} holds something else than entries.")
        else:
            nan_fields = IN_FILES[name].nan
            allows_nan = is_estimator(cls)
            fields = {
                field: self.decode(part, nan=allows_nan or field in nan_fields)
                for field, part in nodes.items()
            }
            _check_fields(name, fields)
            value = _make_object(cls, defaults_of(name) | fields)
        self._objects.append(value)
        return value

    def _ref(self, node, nan):
        number = node["ref"]
        if type(number) is not int or not 0 <= number < len(self._objects):
            raise FileError(f"There is no object number {number!r} before this.")
        return self._objects[number]

    def _records(self, node, nan):
        name, nodes = node["records"], node["columns"]
        if name not in RECORDS:
            raise FileError(f"No list of {name!r} is written as columns.")
        declared, columns = types_of(name), {}
        for field, part in nodes.items():
            column = self.decode(part, nan=field in IN_FILES[name].nan)
            if isinstance(column, np.ndarray) and column.ndim == 1:
                column = column.tolist()
            examples = {type(value): value for value in column}.values()
            if field not in declared or not all(conforms(one, declared[field]) for one in examples):
                raise FileError(f"{name} has no field {field!r}, or not of such values.")
            columns[field] = column
        if required(name) - set(columns) or len({*map(len, columns.values())}) != 1:
            raise FileError(f"Columns of {name} are missing, or of unequal length.")
        cls, defaults = class_of(name), defaults_of(name)
        return [
            _make_object(cls, defaults | dict(zip(columns, values, strict=True)))
            for values in zip(*columns.values(), strict=True)
        ]

    def _csr(self, node, nan):
        n_rows, n_columns = node["shape"]
        data, indices, indptr = self._list(node["csr"], nan)
        X = sp.csr_array((data, indices, indptr), (n_rows, n_columns))
        X.check_format(full_check=True)
        if not X.has_canonical_format or X.data.dtype.kind not in "iuf":
            raise FileError("Entries of a sparse array are not in order.")
        return X

    def _tuple(self, node, nan):
        return tuple(self._list(node["tuple"], nan))

    def _set(self, node, nan):
        kind = set if "set" in node else frozenset
        return kind(_keys(self._list(node[kind.__name__], nan)))

    def _dict(self, node, nan):
        pairs = self._list(node["dict"], nan)
        keys = _keys([key for key, _ in pairs])
        return dict(zip(keys, (value for _, value in pairs), strict=True))

    def _float(self, node, nan):
        value = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[node["float"]]
        if math.isnan(value) and not nan:
            raise FileError("NaN where a model has none.")
        return value

    def _scalar(self, node, nan):
        value = self.decode(node.get("value"), nan=nan)
        cls = getattr(np, str(node["scalar"]), None)
        is_scalar = isinstance(cls, type) and issubclass(cls, np.number | np.bool_ | np.str_)
        if not (is_scalar and is_kept(np.dtype(cls))):
            raise FileError(f"{node['scalar']!r} is no type of number.")
        return cls(value)

    def _elements(self, node, nan):
        parts = self._list(node["objects"], nan)
        out = np.empty(len(parts), object)
        out[:] = parts
        return out.reshape(node["shape"])

    def _slice(self, node, nan):
        return slice(*self._list(node["slice"], nan))

    def _number_type(self, node, nan):
        (kind,) = (kind for kind in ("dtype", "type") if kind in node)
        if node[kind] not in _NUMBER_TYPES:
            raise FileError(f"{node[kind]!r} is no type of number.")
        return np.dtype(node[kind]) if kind == "dtype" else getattr(np, node[kind])

    def _member(self, node, nan):
        name, member = node["member"]
        if not issubclass(class_of(name), Enum):
            raise FileError(f"{name} has no members.")
        return class_of(name)[member]

    def _count_generators(self):
        """Count a generator; raise FileError if there are too many, since each takes 3 kB."""
        self._n_generators += 1
        if self._n_generators > _MOST_GENERATORS:
            raise FileError("There are more generators of random numbers than an estimator has.")

    def _random_state(self, node, nan):
        self._count_generators()
        state = np.random.RandomState()
        state.set_state(("MT19937", *self._list(node["random_state"], nan)))
        return state

    def _generator(self, node, nan):
        self._count_generators()
        state, sequence = self._list(node["generator"], nan)
        seeds = [sequence[name] for name in ("entropy", "spawn_key", "n_children_spawned")]
        for seed in seeds:
            numbers = seed if isinstance(seed, list | tuple) else (seed,)
            if len(numbers) > _LONGEST_SEED or not {*map(type, numbers)} <= {int, type(None)}:
                raise FileError("The seed of a generator of random numbers is not legible.")
        seeds = np.random.SeedSequence(seeds[0], spawn_key=seeds[1], n_children_spawned=seeds[2])
        bits = np.random.PCG64(seeds)
        bits.state = state
        return np.random.Generator(bits)

    _KINDS = {
        "array": _array,
        "object": _object,
        "ref": _ref,
        "tuple": _tuple,
        "set": _set,
        "frozenset": _set,
        "dict": _dict,
        "float": _float,
        "scalar": _scalar,
        "objects": _elements,
        "csr": _csr,
        "records": _records,
        "slice": _slice,
        "dtype": _number_type,
        "type": _number_type,
        "member": _member,
        "random_state": _random_state,
        "generator": _generator,
    }


def _keys(keys):
    """Return the keys of a set or dict; raise FileError if hashing them would take too long."""
    if not all(map(is_key, keys)):
        raise FileError("A key is neither a number nor text, nor a tuple of these.")
    # Sorting finds equal hashes in less than quadratic time, whatever their values.
    _, counts = np.unique(np.array([hash(key) for key in keys], np.int64), return_counts=True)
    if counts.max(initial=0) > _MOST_OF_ONE_HASH:
        raise FileError("Too many keys of a set or dict have the same hash.")
    return keys


def _check_fields(name, fields):
    """Raise FileError unless the fields are complete, declared, and of the declared types."""
    missing = required(name) - set(fields)
    if missing:
        raise FileError(f"An object of {name} has no {sorted(missing)[0]!r}.")
    declared = types_of(name)
    for field, value in fields.items():
        if declared is not None:
            legal = field in declared and conforms(value, declared[field])
        else:  # an estimator: parameters, attributes of OF_ESTIMATORS, and public attributes
            cls = class_of(name)
            legal = field in cls._get_param_names() or (
                conforms(value, OF_ESTIMATORS[field])
                if field in OF_ESTIMATORS
                else field.isidentifier() and field.endswith("_") and not hasattr(cls, field)
            )
        if not legal:
            raise FileError(
                f"{name} has no field {field!r}, or not of type {type(value).__name__}."
            )


def _make_object(cls, fields):
    """Return an object with these fields; only named tuples are made by a call of the class."""
    if issubclass(cls, tuple):
        return cls(**fields)
    value = object.__new__(cls)
    vars(value).update(fields)
    return value
