"""The classes whose objects a model file may hold, and the types of their fields.

The decorator :func:`skvt.files.in_files` registers a class together with the *name in files* that
stands for it, such as "models.Mixture". Fields of dataclasses and named tuples have the types of
their annotations. A *hint* is such an annotation, which :func:`conforms` compares with a value.
"""

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Annotated, Any, get_args, get_origin

import numpy as np

from skvt.contracts import missing_members
from skvt.files import NAMES_IN_FILES, REGISTRY, in_files
from skvt.fitting import VariationalEstimator
from skvt.io._archive import FileError

# First parts of the names that files give to classes of the package, such as "models.Mixture".
_RESERVED_PREFIXES = (
    "components", "estimators", "expfam", "inference", "models", "moves", "schedules", "temperature"
)  # fmt: skip
# Types of attributes of estimators that are not parameters. A string stands for all classes whose
# names in files begin with the string. An attribute that is neither a parameter nor listed here may
# have any type if its name ends with "_".
ATTRIBUTE_TYPES = {
    "_fitted": "estimators.Fitted",
    "_progress": "estimators.Progress",
    "_table": "estimators.Table",
    "_covariates": "estimators.Covariates",
    "_sklearn_output_config": dict,
    "n_features_in_": int,
    "feature_names_in_": np.ndarray,
    "n_iter_": int,
    "converged_": bool,
    "restart_elbos_": np.ndarray,
    "priors_": dict[str, dict[str, Any]],
}
# Classes whose fields are numbers and text. Lists of their objects are written as columns, because
# the lists are long: each pass of a fit and each call of a stream adds an object.
RECORD_CLASSES = "inference.Entry", "moves.MoveRecord"


def register(prefix, *classes):
    """Let files hold objects of further classes, such as models and estimators of a user.

    Classes must be registered both when a file is written and when it is read. Models and
    components must be dataclasses, because the types of their fields are checked. Estimators must
    be estimators of scikit-learn, and attributes that are not parameters must end with "_".
    :func:`skvt.save` takes only estimators of this package and their subclasses; objects of other
    classes can be parts of such an estimator.

    Parameters
    ----------
    prefix : str
        The classes get the names ``prefix.ClassName`` in files, whatever modules they are in. The
        prefix must be none of those that the package uses for its classes.
    *classes : type
        The classes. When a file is read, the parameters of estimators are validated and the methods
        that check the parts of a model are called. ``__init__`` is not called.

    Examples
    --------
    >>> from skvt import MemoizedDPGMM, io
    >>> class Mixture(MemoizedDPGMM):
    ...     pass
    >>> io.register("mylab", Mixture)  # files then say "mylab.Mixture"
    """
    if not prefix.isidentifier() or prefix in _RESERVED_PREFIXES:
        raise ValueError(
            f"prefix must be a Python identifier other than {', '.join(_RESERVED_PREFIXES)}. Got "
            f"{prefix!r}."
        )
    for cls in classes:
        in_files(f"{prefix}.{cls.__name__}")(cls)
    get_field_types.cache_clear()


def is_storable_key(value):
    """Return whether files may hold a value as a key of a dict or an element of a set."""
    if type(value) in (tuple, frozenset):
        return all(map(is_storable_key, value))
    return value is None or isinstance(value, bool | int | float | str | np.generic | Enum)


def is_estimator(cls):
    """Return whether a class is registered, and is an estimator of this package or a subclass."""
    name = get_class_name(cls)
    return name is not None and issubclass(cls, VariationalEstimator)


def get_class(name):
    """Return the class with the ``name`` in files; raise FileError if it is not registered."""
    if name not in REGISTRY:
        raise FileError(
            f"The file has an object of class {name!r}, which this process does not know. If it "
            "is a class of yours, call skvt.io.register before load."
        )
    return REGISTRY[name].cls


def get_class_name(cls):
    """Return the name of a class in files, or None if the class is not registered."""
    return NAMES_IN_FILES.get(cls)


def get_fields(obj):
    """Return the values of the fields of ``obj`` that files hold, by name.

    If ``obj`` is a list, its only field is called "" and holds its elements.
    """
    if isinstance(obj, list):
        return {"": list(obj)}
    names = _get_declared_fields(type(obj))
    return vars(obj) if names is None else {name: getattr(obj, name) for name in names}


def _get_declared_fields(cls):
    """Return the names of the fields of a named tuple or a dataclass that files hold.

    Fields with "process_only" in their metadata are left out. Return None for other classes, and
    for estimators: they are dataclasses, but files hold all of their attributes, not only fields.
    """
    if issubclass(cls, tuple):
        return cls._fields
    if not dataclasses.is_dataclass(cls) or issubclass(cls, VariationalEstimator):
        return None
    return [field.name for field in dataclasses.fields(cls) if "process_only" not in field.metadata]


@cache
def get_field_types(class_name):
    """Return the annotated types of the fields of a class by name; None for an estimator.

    The parameters of an estimator are checked by its validation instead.
    """
    cls = get_class(class_name)
    names = _get_declared_fields(cls)
    if names is None:
        return None
    hints = typing.get_type_hints(cls)
    return {name: hints[name] for name in names}


def get_field_defaults(class_name):
    """Return the default values of the fields of a class by name.

    Fields with a default may be missing in files of releases in which they did not exist.
    """
    cls = get_class(class_name)
    names = _get_declared_fields(cls)
    if names is None or issubclass(cls, tuple):
        # Named tuples and estimators declare their defaults in the signature of the class.
        parameters = inspect.signature(cls).parameters.values()
        return {p.name: p.default for p in parameters if p.default is not p.empty}
    fields = [field for field in dataclasses.fields(cls) if field.name in names]
    unset = dataclasses.MISSING
    constants = {field.name: field.default for field in fields if field.default is not unset}
    # A factory makes a new object, such as an empty list, for each call.
    new_objects = {f.name: f.default_factory() for f in fields if f.default_factory is not unset}
    return constants | new_objects


def get_required_fields(class_name):
    """Return the names of the fields without which an object of the class is incomplete."""
    types = get_field_types(class_name)
    names = set(types if types is not None else get_class(class_name)._get_param_names())
    return names - set(get_field_defaults(class_name))


def conforms(value, hint):
    """Return whether a value is of the type that an annotation ``hint`` describes.

    If the hint is a string, the name in files of the value's class must begin with this string.
    """
    # A type variable may stand for any type.
    if hint in (Any, object) or isinstance(hint, typing.TypeVar):
        return True
    if isinstance(hint, str):
        name = get_class_name(type(value))
        return name is not None and name.startswith(hint)
    origin = get_origin(hint)
    alias = getattr(hint if origin is None else origin, "__value__", None)
    if alias is not None:
        # The hint is an alias made by a `type` statement, such as NDArray in Python 3.12. Replace
        # it by the type that it stands for, with its arguments, if any.
        return conforms(value, alias if origin is None else alias[get_args(hint)])
    if origin in (typing.Union, types.UnionType):
        return any(conforms(value, alternative) for alternative in get_args(hint))
    if hint is None or hint is type(None):
        return value is None
    if origin is Annotated:
        return conforms(value, get_args(hint)[0])
    if origin is not None:
        return _conforms_to_generic(value, origin, get_args(hint))
    if hint is Hashable:
        return is_storable_key(value)
    # A bool is an int in Python, but files do not take a bool for a number.
    if hint is float:
        return isinstance(value, int | float | np.floating) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int | np.integer) and not isinstance(value, bool)
    if hint is bool:
        return isinstance(value, bool | np.bool_)
    # A value follows a protocol if its class is registered and has all members of the protocol.
    if getattr(hint, "_is_protocol", False):
        return get_class_name(type(value)) is not None and not missing_members(type(value), hint)
    return isinstance(value, hint)


def _conforms_to_generic(value, origin, arguments):
    """Return whether a value is of the type ``origin[arguments]``, such as ``list[int]``."""
    if origin is np.ndarray:
        # The arguments of an array are its shape, which is not checked here, and its dtype, such as
        # ``np.dtype[np.floating]``. A NumPy number may take the place of an array of shape ().
        return isinstance(value, np.ndarray | np.generic) and (
            len(arguments) < 2 or _is_of_kind(value.dtype, get_args(arguments[1]))
        )
    if origin in (np.dtype, type):
        return isinstance(value, origin)
    if origin is Callable:
        return True
    if origin in (dict, Mapping):
        key_type, element_type = arguments
        return isinstance(value, dict) and all(
            conforms(key, key_type) and conforms(element, element_type)
            for key, element in value.items()
        )
    # A tuple has one type for each element, unless it is of the form ``tuple[T, ...]``.
    if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        return (
            isinstance(value, tuple)
            and len(value) == len(arguments)
            and all(map(conforms, value, arguments))
        )
    # Lists, sets, and tuples of any length have one type for all elements. Files hold sequences as
    # lists or tuples.
    container = {Sequence: list | tuple}.get(origin, origin)
    return isinstance(value, container) and all(conforms(item, arguments[0]) for item in value)


def _is_of_kind(dtype, kinds):
    """Return whether ``dtype`` is of the annotated kind, such as ``(np.floating,)``.

    The tuple ``kinds`` has one kind, or is empty if the annotation has none. A kind that is not a
    type of NumPy, such as Any, allows any dtype.
    """
    # ``np.floating[Any]`` has the origin ``np.floating``.
    kind = (get_origin(kinds[0]) or kinds[0]) if kinds else Any
    is_numpy_type = isinstance(kind, type) and issubclass(kind, np.generic)
    return not is_numpy_type or np.issubdtype(dtype, kind)
