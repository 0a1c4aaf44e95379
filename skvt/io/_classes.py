"""The types of the fields of the classes whose objects a model file may hold.

An estimator is imported, with the classes on which it depends, when a file names it, so that
reading a mixture does not import other models.
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

import skvt
from skvt.contracts import missing_members
from skvt.files import IN_FILES, NAMES, in_files
from skvt.fitting import VariationalEstimator
from skvt.io._archive import FileError

# Prefixes of the names in files of the package's own classes.
_FOLDERS = (
    "components", "estimators", "expfam", "inference", "models", "moves", "schedules", "temperature"
)  # fmt: skip
# Types of attributes of estimators other than parameters. A string is a prefix of the names that
# the allowed classes have in files. The names of all other attributes must end with "_".
OF_ESTIMATORS = {
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
# Classes with fields of numbers and text. Lists of their objects are written by column, since they
# are long: each pass of a fit and each call of a stream adds an object.
RECORDS = "inference.Entry", "moves.MoveRecord"


def register(prefix, *classes):
    """Let files hold objects of other classes, such as models and estimators of a user.

    Classes must be registered both when a file is written and when it is read. Models and
    components are dataclasses, whose types of fields are checked; estimators are estimators of
    scikit-learn without fields other than parameters.

    Parameters
    ----------
    prefix : str
        Names in files are ``prefix.ClassName``, in whatever modules the classes are. It must not
        be a prefix of the package.
    *classes : type
        The classes. Reading a file does not call ``__init__``; it calls the validation of
        estimators' parameters and the methods by which the parts of a model are checked.

    Examples
    --------
    >>> from skvt import MemoizedDPGMM, io
    >>> class Mixture(MemoizedDPGMM):
    ...     pass
    >>> io.register("mylab", Mixture)  # files then say "mylab.Mixture"
    """
    if not prefix.isidentifier() or prefix in _FOLDERS:
        raise ValueError(
            f"prefix must be an identifier other than {', '.join(_FOLDERS)}. Got {prefix!r}."
        )
    for cls in classes:
        in_files(f"{prefix}.{cls.__name__}")(cls)
    types_of.cache_clear()


def is_key(value):
    """Return whether a value may be a key of a dict or an element of a set in files."""
    if type(value) in (tuple, frozenset):
        return all(map(is_key, value))
    return value is None or isinstance(value, bool | int | float | str | np.generic | Enum)


def is_estimator(cls):
    """Return whether a class is an estimator that files can hold."""
    name = name_of(cls)
    return name is not None and issubclass(cls, VariationalEstimator)


def class_of(name):
    """Return the class of this name in files."""
    folder, _, public = name.partition(".")
    if folder == "estimators" and public in skvt.__all__:
        getattr(skvt, public)  # imports the estimator, which registers the classes of its parts
    if name not in IN_FILES:
        raise FileError(f"There is no class {name!r} in model files.")
    return IN_FILES[name].cls


def name_of(cls):
    """Return the name of a class in files, or None."""
    return NAMES.get(cls)


def fields_of(obj):
    """Return the values of the fields that files hold, by name; "" is the name of a list."""
    cls = type(obj)
    if issubclass(cls, tuple):
        return obj._asdict()
    if issubclass(cls, list):
        return {"": list(obj)}
    if not _has_fields(cls):
        return vars(obj)
    return {field.name: getattr(obj, field.name) for field in _fields(cls)}


def _has_fields(cls):
    """Return whether the fields of a class are all that its objects hold.

    This is true of dataclasses but not of estimators, which have attributes besides parameters.
    """
    return dataclasses.is_dataclass(cls) and not issubclass(cls, VariationalEstimator)


def _fields(cls):
    """Return the fields of a dataclass that files hold."""
    return [field for field in dataclasses.fields(cls) if "of_process" not in field.metadata]


@cache
def types_of(name):
    """Return the types of the fields of a class; None for an estimator, which validates itself."""
    cls = class_of(name)
    if _has_fields(cls) or issubclass(cls, tuple):
        hints = typing.get_type_hints(cls)
        names = cls._fields if issubclass(cls, tuple) else [field.name for field in _fields(cls)]
        return {field: hints[field] for field in names}
    return None


def defaults_of(name):
    """Return the default values of fields: they stand in for fields that earlier files lack."""
    cls = class_of(name)
    if issubclass(cls, tuple):
        return dict(cls._field_defaults)
    if not _has_fields(cls):
        parameters = inspect.signature(cls.__init__).parameters.values()
        return {each.name: each.default for each in parameters if each.default is not each.empty}
    fields, missing = _fields(cls), dataclasses.MISSING
    plain = {field.name: field.default for field in fields if field.default is not missing}
    made = {f.name: f.default_factory() for f in fields if f.default_factory is not missing}
    return plain | made


def required(name):
    """Return the names of the fields without which an object of the class is incomplete."""
    declared = types_of(name)
    names = set(declared if declared is not None else class_of(name)._get_param_names())
    return names - set(defaults_of(name))


def conforms(value, hint):
    """Return whether a value is of type ``hint``; a string is a prefix of names in files."""
    if hint in (Any, object) or isinstance(hint, typing.TypeVar):
        return True
    if isinstance(hint, str):
        name = name_of(type(value))
        return name is not None and name.startswith(hint)
    origin = get_origin(hint)
    alias = getattr(hint if origin is None else origin, "__value__", None)
    if alias is not None:  # made by a `type` statement, as is NumPy's NDArray from Python 3.12 on
        return conforms(value, alias if origin is None else alias[get_args(hint)])
    if origin in (typing.Union, types.UnionType):
        return any(conforms(value, option) for option in get_args(hint))
    if hint is None or hint is type(None):
        return value is None
    if origin is Annotated:
        return conforms(value, get_args(hint)[0])
    if origin is not None:
        return _conforms_to_generic(value, origin, get_args(hint))
    if hint is Hashable:
        return is_key(value)
    if hint is float:
        return isinstance(value, int | float | np.floating) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int | np.integer) and not isinstance(value, bool)
    if hint is bool:
        return isinstance(value, bool | np.bool_)
    if getattr(hint, "_is_protocol", False):
        return name_of(type(value)) is not None and not missing_members(type(value), hint)
    return isinstance(value, hint)


def _conforms_to_generic(value, origin, arguments):
    if origin is np.ndarray:
        # A NumPy number may take the place of an array of shape ().
        return isinstance(value, np.ndarray | np.generic) and (
            len(arguments) < 2 or _is_of_kind(value.dtype, get_args(arguments[1]))
        )
    if origin in (np.dtype, type):
        return isinstance(value, origin)
    if origin is Callable:
        return True
    if origin in (dict, Mapping):
        key, entry = arguments
        return isinstance(value, dict) and all(
            conforms(k, key) and conforms(v, entry) for k, v in value.items()
        )
    if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        return (
            isinstance(value, tuple)
            and len(value) == len(arguments)
            and all(map(conforms, value, arguments))
        )
    container = {Sequence: list | tuple}.get(origin, origin)
    return isinstance(value, container) and all(conforms(entry, arguments[0]) for entry in value)


def _is_of_kind(dtype, kinds):
    """Return whether the type of an array is of the annotated kind, such as ``np.floating``."""
    kind = get_origin(kinds[0]) or kinds[0] if kinds else Any
    return not (isinstance(kind, type) and issubclass(kind, np.generic)) or (
        np.issubdtype(dtype, kind)
    )
