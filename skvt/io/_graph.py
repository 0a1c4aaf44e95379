"""Conversion of objects to JSON and arrays, and back.

An :class:`Encoder` makes JSON and a list of arrays from an object, and a :class:`Decoder` makes the
object again. None, booleans, finite numbers, strings and lists are written as in JSON. Each other
value is written as a JSON object, called a *node*. A key of the node is the *kind* of the value.
The table lists the kinds, with the value of this key and with further keys of the node:

===================  =============================================================================
``array``            number of an array in the file; ``as``: "float64" if the array was rounded to
                     float32
``object``           name of a class; ``fields``: values of the fields by name
``ref``              number of an object that was written before, counted from 0
``tuple``, ``set``,  list of the elements
``frozenset``
``dict``             list of pairs of key and value
``float``            "nan", "inf" or "-inf"
``scalar``           name of the type of a NumPy number; ``value``: the number
``objects``          elements of an array of objects (categories, names); ``shape``
``csr``              values, columns and ends of the rows of a sparse array; ``shape``
``records``          name of the class of the objects in a list, whose fields are numbers and text;
                     ``columns``: values of each field of all objects, numbers as arrays
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

from skvt.files import REGISTRY
from skvt.io._archive import PART_SIZE, REAL_SIZES, FileError, is_storable
from skvt.io._classes import (
    ATTRIBUTE_TYPES,
    RECORD_CLASSES,
    conforms,
    get_class,
    get_class_name,
    get_field_defaults,
    get_field_types,
    get_fields,
    get_required_fields,
    is_estimator,
    is_storable_key,
)

# Names of the types of numbers that parameters of estimators or fields of models may be.
_NUMBER_TYPES = ("float32", "float64")
# The range of single precision.
_FLOAT32 = np.finfo(np.float32)
# Maximum number of generators of random numbers in a file.
_MAX_GENERATORS = 100
# Maximum length of the seed of a generator of random numbers.
_MAX_SEED_LENGTH = 100
# Fields in files of release 0.1.0 that are ignored, because they are now constants of classes.
_FORMER_FIELDS = {"capabilities"}
# Maximum number of keys of a set or dict with the same hash. Python compares all pairs of such
# keys, so that a hostile file with many of them would take quadratic time.
_MAX_KEYS_PER_HASH = 20


class NotWritableError(TypeError):
    """An object cannot be part of a model file."""


class Encoder:
    """Encoder of Python objects as JSON and arrays.

    With ``dtype="float32"``, arrays of double precision are rounded.
    """

    def __init__(self, dtype=None):
        self._dtype = dtype
        # The arrays of the file, in the order of their numbers.
        self._arrays = []
        # Numbers of the arrays that are written in single precision.
        self._rounded_numbers = set()
        # Numbers of the arrays and objects in the file, by their ids in Python, so that arrays and
        # objects that are used several times are written only once.
        self._numbers_of_arrays = {}
        self._numbers_of_objects = {}
        # References to the arrays and objects whose ids are keys of the two dicts. An array without
        # a reference could be freed, and another object could get its id.
        self._references = []

    def encode(self, value, path):
        """Return ``value`` as JSON; raise NotWritableError if a file cannot hold it.

        ``path`` is the part of the estimator that the error names, such as "_fitted.model".
        """
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if type(value) is list:
            class_names = {*map(get_class_name, {*map(type, value)})}
            # If all elements are of one class in RECORD_CLASSES, they are written as columns.
            if len(class_names) == 1 and class_names <= {*RECORD_CLASSES}:
                return self._encode_records(value, path)
            return [self.encode(element, f"{path}[{i}]") for i, element in enumerate(value)]
        if isinstance(value, np.ndarray) and value.dtype.kind != "O":
            return self._encode_array(value, path)
        # A registered class may be a subclass of a type in `_KINDS`, as a named tuple is. Its
        # instances are written as objects.
        for cls, encode in self._KINDS.items():
            if isinstance(value, cls) and get_class_name(type(value)) is None:
                return encode(self, value, path)
        return self._encode_object(value, path)

    # The following methods return the node of a value. The table at the head of the module
    # describes the nodes.
    def _encode_sequence(self, value, path):
        kind = type(value).__name__
        if kind not in ("tuple", "set", "frozenset"):
            raise self._make_refusal(value, path)
        # Sets have no order. Their elements are sorted, so that equal models make equal files.
        elements = value if kind == "tuple" else sorted(value, key=repr)
        return {kind: [self.encode(element, f"{path}[{i}]") for i, element in enumerate(elements)]}

    def _encode_dict(self, value, path):
        if type(value) is not dict:
            raise self._make_refusal(value, path)
        return {
            "dict": [
                [self.encode(key, f"{path} (key)"), self.encode(element, f"{path}[{key!r}]")]
                for key, element in value.items()
            ]
        }

    def _encode_scalar(self, value, path):
        value = _convert_to_storable_precision(value)
        python_value = value.item()
        if not isinstance(python_value, bool | int | float | str):
            raise self._make_refusal(value, path)
        return {"scalar": type(value).__name__, "value": self.encode(python_value, path)}

    def _encode_objects(self, value, path):
        elements = self.encode(value.ravel().tolist(), path)
        return {"objects": elements, "shape": list(value.shape)}

    def _encode_csr(self, value, path):
        arrays = self.encode([value.data, value.indices, value.indptr], path)
        return {"csr": arrays, "shape": list(value.shape)}

    def _encode_records(self, value, path):
        """Return the node of a list of objects of the same class, with fields as columns."""
        name = get_class_name(type(value[0]))
        columns = {}
        for field, hint in get_field_types(name).items():
            column = [getattr(record, field) for record in value]
            if hint in (int, float):
                # Write numbers as an array, which takes a thirtieth of the memory that numbers in
                # JSON take.
                column = np.array(column, hint)
                columns[field] = self._encode_array(column, path, exact=True)
            else:
                columns[field] = self.encode(column, path)
        return {"records": name, "columns": columns}

    def _encode_slice(self, value, path):
        return {"slice": self.encode([value.start, value.stop, value.step], path)}

    def _encode_number_type(self, value, path):
        kind = "type" if isinstance(value, type) else "dtype"
        name = value.__name__ if kind == "type" else value.name
        # Check the type, too, because a class that is not NumPy's may have the same name.
        if name not in _NUMBER_TYPES or value not in (np.dtype(name), getattr(np, name)):
            raise self._make_refusal(value, path)
        return {kind: name}

    def _encode_random_state(self, value, path):
        generator_name, keys, *remaining_state = value.get_state()
        if generator_name != "MT19937":
            raise self._make_refusal(value, path)
        return {"random_state": self.encode([keys, *remaining_state], path)}

    def _encode_generator(self, value, path):
        if type(value.bit_generator) is not np.random.PCG64:
            raise self._make_refusal(value, path)
        # The seed sequence is written, too, because ``spawn`` makes new generators from it. The
        # next generators depend on "n_children_spawned", the number of generators made before.
        seed_sequence = value.bit_generator.seed_seq
        seed = {
            "entropy": seed_sequence.entropy,
            "spawn_key": tuple(int(key) for key in seed_sequence.spawn_key),
            "n_children_spawned": seed_sequence.n_children_spawned,
        }
        return {"generator": self.encode([value.bit_generator.state, seed], path)}

    # The encoding method for the instances of each class; the first class that fits is used.
    _KINDS = {
        tuple: _encode_sequence,
        set: _encode_sequence,
        frozenset: _encode_sequence,
        dict: _encode_dict,
        np.generic: _encode_scalar,
        np.ndarray: _encode_objects,
        sp.csr_array: _encode_csr,
        slice: _encode_slice,
        np.dtype: _encode_number_type,
        type: _encode_number_type,
        np.random.RandomState: _encode_random_state,
        np.random.Generator: _encode_generator,
    }

    def _encode_array(self, value, path, *, exact=False):
        """Return the node of an array; an ``exact`` array is never rounded."""
        array_number = self._numbers_of_arrays.get(id(value))
        if array_number is None:
            array_number = len(self._arrays)
            array = np.asarray(value)
            if not array.dtype.isnative:
                # Convert the bytes of each number to the order of this processor.
                array = array.astype(array.dtype.newbyteorder("="))
            array = _convert_to_storable_precision(array)
            if not is_storable(array.dtype) or (array.dtype.itemsize == 0 and array.size):
                raise self._make_refusal(value, path)
            may_be_rounded = self._dtype == "float32" and not exact
            if may_be_rounded and array.dtype == np.float64 and _fits_in_float32(array):
                self._rounded_numbers.add(array_number)
            self._arrays.append(array)
            self._numbers_of_arrays[id(value)] = array_number
            self._references.append(value)
        if array_number in self._rounded_numbers:
            return {"array": array_number, "as": "float64"}
        return {"array": array_number}

    def array(self, number, *, as_double=False):
        """Return the array that :meth:`skvt.io._archive.Archive.array` will read from the file.

        With ``as_double``, the array is written in float32 and converted back to float64 when it is
        read. The result is then a copy with numbers rounded to float32.
        """
        if not as_double:
            return self._arrays[number]
        array = np.array(self._arrays[number], order="C")
        for part in _iterate_parts(array):
            part[:] = part.astype(np.float32)
        return array

    def arrays_to_write(self):
        """Yield the arrays in the precision in which they are written."""
        for number, array in enumerate(self._arrays):
            yield array.astype(np.float32) if number in self._rounded_numbers else array

    @property
    def n_bytes(self):
        """Number of bytes of all arrays in the precision in which they are written."""
        return sum(
            array.nbytes // 2 if number in self._rounded_numbers else array.nbytes
            for number, array in enumerate(self._arrays)
        )

    def _encode_object(self, value, path):
        """Return the node of an object of a registered class.

        If the object was encoded before, the node refers to it by its number.
        """
        cls = type(value)
        name = get_class_name(cls)
        if name is None:
            raise self._make_refusal(value, path)
        if issubclass(cls, Enum):
            return {"member": [name, value.name]}
        if id(value) in self._numbers_of_objects:
            return {"ref": self._numbers_of_objects[id(value)]}
        fields = {
            field: self.encode(field_value, f"{path}.{field}" if path else field)
            for field, field_value in get_fields(value).items()
        }
        # Objects are numbered after their fields, in the order in which a Decoder completes them.
        self._numbers_of_objects[id(value)] = len(self._numbers_of_objects)
        self._references.append(value)
        return {"object": name, "fields": fields}

    @staticmethod
    def _make_refusal(value, path):
        """Return the error for a value that a file cannot hold."""
        cls = type(value)
        return NotWritableError(
            f"{path} is an object of type {cls.__module__}.{cls.__qualname__}, which a model file "
            "cannot hold: it holds numbers, text, arrays, and objects of skvt's own classes. "
            "Replace it, or use pickle or joblib instead of save."
        )


def _convert_to_storable_precision(value):
    """Return an array or number in a precision that files can hold.

    Half precision becomes single precision, and extended precision becomes double precision.
    """
    if value.dtype.kind != "f" or value.dtype.itemsize in REAL_SIZES:
        return value
    return value.astype(np.float32 if value.dtype.itemsize < 4 else np.float64)


def _fits_in_float32(array):
    """Return whether all finite values except 0 are in the range of single precision."""
    for part in _iterate_parts(array):
        sizes = np.abs(part[np.isfinite(part) & (part != 0.0)])
        if sizes.size and not (sizes.min() > _FLOAT32.tiny and sizes.max() < _FLOAT32.max):
            return False
    return True


def _iterate_parts(array):
    """Yield the elements of an array in parts of at most ``PART_SIZE``."""
    flat = array.reshape(-1, order="A")
    for start in range(0, flat.size, PART_SIZE):
        yield flat[start : start + PART_SIZE]


class Decoder:
    """Decoder of JSON and arrays.

    Input that no :class:`Encoder` has written may raise any exception, not only FileError. NaN is
    legal only in the fields that a class declares in `skvt.files.Registration.nan`, and in
    attributes of estimators.
    """

    def __init__(self, archive):
        # The arrays: an :class:`~skvt.io._archive.Archive`, or an :class:`Encoder`.
        self._archive = archive
        # Objects decoded so far, to which nodes of the kind "ref" refer by number.
        self._objects = []
        # Numbers of arrays that were searched for NaN and have none.
        self._nan_free = set()
        # Number of random number generators decoded so far.
        self._n_generators = 0

    def decode(self, node, *, allows_nan=False):
        """Return the value of a node; raise FileError if the value is illegal.

        ``allows_nan`` says whether the value may be or contain NaN.
        """
        if node is None or isinstance(node, bool | int | float | str):
            return node
        if isinstance(node, list):
            return [self.decode(element, allows_nan=allows_nan) for element in node]
        for kind, decode in self._KINDS.items():
            if kind in node:
                return decode(self, node, allows_nan)
        raise FileError(
            f"The file has an entry with the keys {sorted(node)!r}, which is of no known kind."
        )

    def _decode_list(self, node, allows_nan):
        """Return the value of a node; raise FileError unless the value is a list."""
        value = self.decode(node, allows_nan=allows_nan)
        if type(value) is not list:
            raise FileError(
                f"The file has a value of type {type(value).__name__} where a list belongs."
            )
        return value

    # The following methods return the value of a node. The table at the head of the module
    # describes the nodes.
    def _decode_array(self, node, allows_nan):
        if node.get("as") not in (None, "float64"):
            raise FileError(f"Arrays can be restored as 'float64' only, not as {node['as']!r}.")
        number = node["array"]
        array = self._archive.array(number, as_double="as" in node)
        if array.dtype.kind == "f" and not allows_nan and number not in self._nan_free:
            if any(np.isnan(part).any() for part in _iterate_parts(array)):
                raise FileError(f"Array {number} has NaN where a model cannot have it.")
            self._nan_free.add(number)
        return array

    def _decode_object(self, node, allows_nan):
        name, field_nodes = node["object"], node["fields"]
        cls = get_class(name)
        if issubclass(cls, Enum):
            raise FileError(f"{name} is an enumeration, whose members have no fields.")
        if issubclass(cls, list):
            # The only registered class of lists is the history of a fit. Its elements, the records
            # of passes, are written as the field "".
            value = cls(self._decode_list(field_nodes.get(""), allows_nan))
            if not {*map(get_class_name, {*map(type, value)})} <= {"inference.Entry"}:
                raise FileError(f"{name} holds objects that are not records of passes.")
        else:
            nan_fields = REGISTRY[name].nan
            allows_nan_in_all = is_estimator(cls)
            fields = {
                field: self.decode(field_node, allows_nan=allows_nan_in_all or field in nan_fields)
                for field, field_node in field_nodes.items()
                # Ignore former fields, unless this class has a field of the same name.
                if field not in _FORMER_FIELDS or field in (get_field_types(name) or ())
            }
            _check_field_types(name, fields)
            value = _make_object(cls, get_field_defaults(name) | fields)
        self._objects.append(value)
        return value

    def _decode_ref(self, node, allows_nan):
        number = node["ref"]
        if type(number) is not int or not 0 <= number < len(self._objects):
            raise FileError(
                f"The file refers to object {number!r}, but only {len(self._objects)} objects "
                "precede the reference."
            )
        return self._objects[number]

    def _decode_records(self, node, allows_nan):
        """Return a list of objects of the same class, made from a column for each field."""
        name, column_nodes = node["records"], node["columns"]
        if name not in RECORD_CLASSES:
            raise FileError(f"Objects of class {name!r} are not stored as a table of columns.")
        field_types = get_field_types(name)
        columns = {}
        for field, column_node in column_nodes.items():
            column = self.decode(column_node, allows_nan=field in REGISTRY[name].nan)
            if isinstance(column, np.ndarray) and column.ndim == 1:
                column = column.tolist()
            # Check one value of each type only, because columns are long.
            examples = {type(value): value for value in column}.values()
            if field not in field_types or not all(
                conforms(value, field_types[field]) for value in examples
            ):
                raise FileError(
                    f"{name} has no field {field!r}, or the field has values of another type."
                )
            columns[field] = column
        if get_required_fields(name) - set(columns) or len({*map(len, columns.values())}) != 1:
            raise FileError(
                f"The table of objects of class {name} lacks columns, or its columns differ in "
                "length."
            )
        cls = get_class(name)
        defaults = get_field_defaults(name)
        return [
            _make_object(cls, defaults | dict(zip(columns, values, strict=True)))
            for values in zip(*columns.values(), strict=True)
        ]

    def _decode_csr(self, node, allows_nan):
        n_rows, n_columns = node["shape"]
        data, indices, indptr = self._decode_list(node["csr"], allows_nan)
        X = sp.csr_array((data, indices, indptr), (n_rows, n_columns))
        X.check_format(full_check=True)
        if not X.has_canonical_format or X.data.dtype.kind not in "iuf":
            raise FileError(
                "The entries of a sparse array are not numbers in order of their rows and columns."
            )
        return X

    def _decode_tuple(self, node, allows_nan):
        return tuple(self._decode_list(node["tuple"], allows_nan))

    def _decode_set(self, node, allows_nan):
        kind = set if "set" in node else frozenset
        return kind(_check_keys(self._decode_list(node[kind.__name__], allows_nan)))

    def _decode_dict(self, node, allows_nan):
        pairs = self._decode_list(node["dict"], allows_nan)
        keys = _check_keys([key for key, _ in pairs])
        return dict(zip(keys, (value for _, value in pairs), strict=True))

    def _decode_float(self, node, allows_nan):
        value = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[node["float"]]
        if math.isnan(value) and not allows_nan:
            raise FileError("The file has NaN where a model cannot have it.")
        return value

    def _decode_scalar(self, node, allows_nan):
        value = self.decode(node.get("value"), allows_nan=allows_nan)
        cls = getattr(np, str(node["scalar"]), None)
        is_scalar = isinstance(cls, type) and issubclass(cls, np.number | np.bool_ | np.str_)
        if not (is_scalar and is_storable(np.dtype(cls))):
            raise FileError(f"{node['scalar']!r} is not a type of number that files hold.")
        return cls(value)

    def _decode_objects(self, node, allows_nan):
        element_list = self._decode_list(node["objects"], allows_nan)
        elements = np.empty(len(element_list), object)
        elements[:] = element_list
        return elements.reshape(node["shape"])

    def _decode_slice(self, node, allows_nan):
        return slice(*self._decode_list(node["slice"], allows_nan))

    def _decode_number_type(self, node, allows_nan):
        (kind,) = (kind for kind in ("dtype", "type") if kind in node)
        if node[kind] not in _NUMBER_TYPES:
            raise FileError(f"{node[kind]!r} is not a type of number that files hold.")
        return np.dtype(node[kind]) if kind == "dtype" else getattr(np, node[kind])

    def _decode_member(self, node, allows_nan):
        name, member = node["member"]
        if not issubclass(get_class(name), Enum):
            raise FileError(f"{name} is not an enumeration and has no members.")
        return get_class(name)[member]

    def _count_generator(self):
        """Count a random number generator; raise FileError if there are too many.

        A generator takes 3 kB of memory, much more than its node in a hostile file.
        """
        self._n_generators += 1
        if self._n_generators > _MAX_GENERATORS:
            raise FileError(
                f"The file has more than {_MAX_GENERATORS} random number generators, more than an "
                "estimator has."
            )

    def _decode_random_state(self, node, allows_nan):
        self._count_generator()
        state = np.random.RandomState()
        state.set_state(("MT19937", *self._decode_list(node["random_state"], allows_nan)))
        return state

    def _decode_generator(self, node, allows_nan):
        self._count_generator()
        state, seed = self._decode_list(node["generator"], allows_nan)
        seed = {name: seed[name] for name in ("entropy", "spawn_key", "n_children_spawned")}
        # Each value of the dict is an integer, a sequence of integers, or None.
        for value in seed.values():
            numbers = value if isinstance(value, list | tuple) else (value,)
            if len(numbers) > _MAX_SEED_LENGTH or not {*map(type, numbers)} <= {int, type(None)}:
                raise FileError(
                    "The seed of a random number generator is not an integer or a short sequence "
                    "of integers."
                )
        bit_generator = np.random.PCG64(np.random.SeedSequence(**seed))
        bit_generator.state = state
        return np.random.Generator(bit_generator)

    # The decoding method for each kind of nodes.
    _KINDS = {
        "array": _decode_array,
        "object": _decode_object,
        "ref": _decode_ref,
        "tuple": _decode_tuple,
        "set": _decode_set,
        "frozenset": _decode_set,
        "dict": _decode_dict,
        "float": _decode_float,
        "scalar": _decode_scalar,
        "objects": _decode_objects,
        "csr": _decode_csr,
        "records": _decode_records,
        "slice": _decode_slice,
        "dtype": _decode_number_type,
        "type": _decode_number_type,
        "member": _decode_member,
        "random_state": _decode_random_state,
        "generator": _decode_generator,
    }


def _check_keys(keys):
    """Return the keys of a dict or elements of a set; raise FileError if they are illegal.

    Many keys with the same hash are illegal, because a dict with such keys would take too long.
    """
    if not all(map(is_storable_key, keys)):
        raise FileError(
            "A key of a dictionary or element of a set is not a number, a string, or a tuple of "
            "these."
        )
    # ``unique`` counts equal hashes by sorting, which takes less than quadratic time.
    hashes = np.array([hash(key) for key in keys], np.int64)
    _, counts = np.unique(hashes, return_counts=True)
    if counts.max(initial=0) > _MAX_KEYS_PER_HASH:
        raise FileError(
            f"More than {_MAX_KEYS_PER_HASH} keys of a set or dictionary have the same hash."
        )
    return keys


def _check_field_types(name, fields):
    """Raise FileError unless the fields are complete, declared, and of the declared types.

    ``name`` is the name of the class in files, and ``fields`` are the values of the fields.
    """
    missing_names = get_required_fields(name) - set(fields)
    if missing_names:
        raise FileError(f"An object of class {name} lacks the field {sorted(missing_names)[0]!r}.")
    field_types = get_field_types(name)
    for field, value in fields.items():
        if field_types is not None:
            is_legal = field in field_types and conforms(value, field_types[field])
        else:
            # The object is an estimator. Its fields are parameters, attributes in ATTRIBUTE_TYPES,
            # and other results of the fit. The name of a result must end with "_", and must not
            # hide a method or a property of the class.
            cls = get_class(name)
            is_legal = field in cls._get_param_names() or (
                conforms(value, ATTRIBUTE_TYPES[field])
                if field in ATTRIBUTE_TYPES
                else field.isidentifier() and field.endswith("_") and not hasattr(cls, field)
            )
        if not is_legal:
            raise FileError(
                f"{name} has no field {field!r}, or not with a value of type "
                f"{type(value).__name__}."
            )


def _make_object(cls, fields):
    """Return an object of ``cls`` with the values ``fields``, a dict by name."""
    if issubclass(cls, tuple):
        return cls(**fields)
    # __init__ is not called, because its arguments may differ from the fields.
    instance = object.__new__(cls)
    vars(instance).update(fields)
    return instance
