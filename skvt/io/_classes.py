"""The classes whose objects a model file may hold, and the types of their fields.

Names in files are the keys of ``PLACES``; they remain when a class is moved or renamed. A class is
imported only when it is needed, so that reading a mixture does not import other models.
"""

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import Enum
from functools import cache
from importlib import import_module
from typing import Any, get_args, get_origin

import numpy as np

from skvt.contracts import missing_members
from skvt.fitting import VariationalEstimator
from skvt.io._archive import FileError
from skvt.io._legal import MODELS

# (first part of the name in files, module, names of classes; in files, names have no leading "_")
_ROOMS = (
    ("estimators", "fitting._fitted", "Fitted"),
    ("estimators", "fitting._restarts", "Outcomes Start"),
    ("estimators", "fitting._resume", "Progress RowsSeen"),
    ("estimators", "fitting._streams", "Gathered"),
    ("estimators", "readers._tables", "Table TableBlock"),
    ("components", "components", "Bernoulli Categorical Gaussian Hurdle LatentGaussian"),
    ("components", "components", "Multinomial NegativeBinomial Poisson StudentT"),
    ("inference", "inference._loop", "Entry History Position"),
    ("inference", "inference._memos", "Memo Memos Merged Rearranged _Packed"),
    ("inference", "inference._state", "MemoizedState PriorStats State"),
    ("expfam", "expfam._stats", "RunningStats Stats"),
    ("moves", "contracts._move", "MoveRecord"),
    ("moves", "moves._birth", "_Target"),
    ("schedules", "schedules", "RobbinsMonro"),
    ("temperature", "contracts._policy", "RunningPolicy"),
    ("temperature", "temperature._scheduled", "ConstantTemperature _Scheduled"),
    ("temperature", "temperature._scheduled", "GeometricAnnealing LinearAnnealing"),
    ("temperature", "temperature._variational", "VariationalTempering _Ladder _Learned"),
    ("temperature", "temperature._local", "LocalTempering _LearnedByRow"),
    ("models", "contracts._model", "Capability"),
    ("models", "models.factorial._model", "FactorialMixture"),
    ("models", "models.gap_nmf._model", "GaPNMF"),
    ("models", "models.hdp._model", "HDP"),
    ("models", "models.hdp._sticks", "Sticks"),
    ("models", "models.lda._model", "LDA"),
    ("models", "models.lda._collapsed", "CollapsedLDA"),
    ("models", "models.lda._given_topics", "LDAGivenTopics"),
    ("models", "models.mixture._model", "Mixture"),
    ("models", "models.mixture._given_globals", "MixtureGivenGlobals"),
    ("models", "models.mixture._joins", "Joins"),
    ("models", "models.mixture._product", "Block Product"),
    ("models", "models.mixture._indicated", "Indicated"),
    ("models", "models.mixture._logs", "Logged Volume"),
    ("models", "models.mixture._student", "Freedom StudentT"),
    ("models", "models.mixture._student", "WeightedDiagonalGaussian WeightedFullGaussian"),
    ("models", "models.mixture._weights", "KnownWeights SeparateSticks"),
    ("models", "models.mixture._weights", "StickBreaking SymmetricDirichlet"),
    ("models", "models.mixture.components._full", "FullGaussian ZeroMeanFullGaussian"),
    ("models", "models.mixture.components._independent", "DiagonalGaussian SphericalGaussian"),
    ("models", "models.mixture.components._independent", "KnownVarianceGaussian"),
    ("models", "models.mixture.components._discrete", "Bernoulli Categorical"),
    ("models", "models.mixture.components._discrete", "Multinomial Poisson"),
    ("models", "models.mixture._negative_binomial", "NegativeBinomial"),
    ("models", "models.mixture._tied", "TiedGaussian"),
    ("models", "models.mixture._low_rank", "LowRankGaussian"),
    ("models", "models.mixture._ordinal", "Cells"),
    ("models", "models.mixture._latent", "LatentGaussian TiedLatentGaussian"),
    ("models", "models.mixture._learned_priors", "DirichletLearner GammaLearner GaussianLearner"),
    ("models", "models.mixture._learned_priors", "ProductLearner SizesLearner ValuesLearner"),
)
PLACES = {f"estimators.{name}": f"skvt:{name}" for name in MODELS} | {
    f"{folder}.{name.lstrip('_')}": f"skvt.{module}:{name}"
    for folder, module, names in _ROOMS
    for name in names.split()
}
# Names in files by module and qualified name of the class.
_NAMES = {place: name for name, place in PLACES.items()}

# Values of parameters in files of releases without them, where the present default differs.
_BEFORE = {
    "estimators.MemoizedHDP": {"n_polish": 0},
    "estimators.StructuredLDA": {"average": 0.0},
    "estimators.TemperedLDA": {"average": 0.0},
}
# Types of attributes of estimators other than parameters; further names must end with "_".
OF_ESTIMATORS = {
    "_fitted": "estimators.Fitted",
    "_progress": "estimators.Progress",
    "_table": "estimators.Table",
    "_n_words": float,
    "_sklearn_output_config": dict,
    "n_features_in_": int,
    "feature_names_in_": np.ndarray,
    "n_iter_": int,
    "converged_": bool,
    "restart_elbos_": np.ndarray,
    "priors_": dict[str, dict[str, Any]],
}
# Fields that may hold NaN, such as bounds not evaluated, unknown entropies and rows not visited.
MAY_BE_NAN = {
    "inference.Entry": {"elbo", "objective", "learning_rate"},
    "inference.Memo": {"merge_entropy_loss"},
    "models.Joins": {"valleys"},
    "temperature.LearnedByRow": {"_energies"},
    "estimators.Progress": {"row_starts", "engine"},
    "estimators.Fitted": {"parameters"},
    # only for readers that take missing values, as `skvt.io._checks` checks
    "estimators.Gathered": {"X"},
}
# Classes of numbers and text, lists of which are written by column, since each pass of a fit and
# each call of a stream adds an object.
RECORDS = "inference.Entry", "moves.MoveRecord"
# Classes from outside the package, by their names in files.
_REGISTERED = {}


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
        The classes. Reading a file calls only the validation of estimators' parameters.

    Examples
    --------
    >>> from skvt import MemoizedDPGMM, io
    >>> class Mixture(MemoizedDPGMM):
    ...     pass
    >>> io.register("mylab", Mixture)  # files then say "mylab.Mixture"
    """
    rooms = {name.partition(".")[0] for name in PLACES}
    if not prefix.isidentifier() or prefix in rooms:
        raise ValueError(
            f"prefix must be an identifier other than {', '.join(sorted(rooms))}. Got {prefix!r}."
        )
    _REGISTERED.update({f"{prefix}.{cls.__name__}": cls for cls in classes})
    types_of.cache_clear()


def is_key(value):
    """Return whether a value may be a key of a dict or an element of a set in files."""
    if type(value) in (tuple, frozenset):
        return all(map(is_key, value))
    return value is None or isinstance(value, bool | int | float | str | np.generic | Enum)


def is_estimator(cls):
    """Return whether a class is that of an estimator that files can hold."""
    name = name_of(cls)
    return name is not None and issubclass(cls, VariationalEstimator)


def class_of(name):
    """Return the class of this name in files."""
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name not in PLACES:
        raise FileError(f"There is no class {name!r} in model files.")
    module, _, attribute = PLACES[name].partition(":")
    return getattr(import_module(module), attribute)


def name_of(cls):
    """Return the name of a class in files, or None."""
    registered = [name for name, one in _REGISTERED.items() if one is cls]
    if registered:
        return registered[0]
    path = f"{cls.__module__}:{cls.__qualname__}"
    if path in _NAMES:
        return _NAMES[path]
    public = (_NAMES.get(f"{room}:{cls.__qualname__}") for room in ("skvt", "skvt.components"))
    return next((name for name in public if name and class_of(name) is cls), None)


def fields_of(obj):
    """Return the fields of an object that files hold, by name."""
    cls = type(obj)
    if issubclass(cls, tuple):
        return obj._asdict()
    if issubclass(cls, list):
        return {"": list(obj)}
    if not _has_fields(cls):
        return vars(obj)
    values = {field.name: getattr(obj, field.name) for field in _fields(cls)}
    return values | {"cache": {}} if name_of(cls) == "estimators.Fitted" else values


def _has_fields(cls):
    """Return whether a class is a dataclass but no estimator, whose fields are parameters only."""
    return dataclasses.is_dataclass(cls) and not issubclass(cls, VariationalEstimator)


def _fields(cls):
    """Return the fields of a dataclass that files hold."""
    return [field for field in dataclasses.fields(cls) if "of_process" not in field.metadata]


@cache
def types_of(name):
    """Return the types of a class's fields; None for an estimator, which validates parameters."""
    cls = class_of(name)
    if _has_fields(cls) or issubclass(cls, tuple):
        hints = typing.get_type_hints(cls)
        names = cls._fields if issubclass(cls, tuple) else [field.name for field in _fields(cls)]
        return {field: hints[field] for field in names}
    return None


def defaults_of(name):
    """Return default values of fields, which complete files of earlier releases."""
    cls = class_of(name)
    if issubclass(cls, tuple):
        return dict(cls._field_defaults)
    if _has_fields(cls):
        values = {}
        for field in _fields(cls):
            if field.default is not dataclasses.MISSING:
                values[field.name] = field.default
            elif field.default_factory is not dataclasses.MISSING:
                values[field.name] = field.default_factory()
        return values
    parameters = inspect.signature(cls.__init__).parameters.values()
    defaults = {one.name: one.default for one in parameters if one.default is not one.empty}
    return defaults | _BEFORE.get(name, {})


def required(name):
    """Return the names of the fields without which an object of the class is incomplete."""
    declared = types_of(name)
    names = set(declared if declared is not None else class_of(name)._get_param_names())
    return names - set(defaults_of(name))


def conforms(value, hint):
    """Return whether a value is of the type that a field declares."""
    if hint in (Any, object) or isinstance(hint, typing.TypeVar):
        return True
    if isinstance(hint, str):
        name = name_of(type(value))
        return name is not None and name.startswith(hint)
    origin = get_origin(hint)
    alias = getattr(hint if origin is None else origin, "__value__", None)
    if alias is not None:  # a `type` statement, as NumPy's NDArray is one from Python 3.12 on
        return conforms(value, alias if origin is None else alias[get_args(hint)])
    if origin in (typing.Union, types.UnionType):
        return any(conforms(value, option) for option in get_args(hint))
    if hint is None or hint is type(None):
        return value is None
    if origin is typing.Annotated:
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
        # an array of shape () may be a NumPy number
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
    """Return whether an array's type is that of its annotation, such as ``np.floating``."""
    kind = get_origin(kinds[0]) or kinds[0] if kinds else Any
    return not (isinstance(kind, type) and issubclass(kind, np.generic)) or (
        np.issubdtype(dtype, kind)
    )
