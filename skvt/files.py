"""The classes whose objects a model file may hold, and rules for the values of their fields.

The decorator :func:`in_files` registers a class where it is defined. When `skvt.io` reads a file,
it checks that fields have their declared types, and :func:`check_fields` checks further rules. The
rules of a field are the metadata of ``Annotated``: ``Annotated[Array, "d", PRIOR]`` has two rules.
The value None follows any rule. A rule is

- `PRIOR` or `POSITIVE`, the range of a number or of all numbers of an array,
- `COMPONENTS`, the range of a number of components, or
- the shape of an array as a text. "d 4" has two lengths, d and 4; "d | d k" has two alternatives.

A length is a number or a name, or a sum or difference of numbers and names, such as "2+d+t" or
"k-1". Names have these meanings:

- d is the number of columns, k the number of components, and t = d (d + 1) / 2 the number of
  entries of a triangular matrix.
- The name of a field of type int stands for the value of this field.
- Any other name stands for one length, which is the same in all fields of an object.

If a class has a method ``validate(d, k)``, it returns whether the fields of the object fit
together, given d columns and k components.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, get_type_hints

import numpy as np

from skvt.typing import IndexArray, T

# Largest legal sum of counts, and largest legal parameter of a prior. The smallest legal value is
# 1 / LARGEST. Both numbers fit into single precision, in which some draws and tables are computed
# even if the data are float64.
LARGEST = 1e30
LEGAL_RANGE = f"the range [{1.0 / LARGEST:g}, {LARGEST:g}]"
#: Rule for numbers in ``LEGAL_RANGE``.
PRIOR = f"in {LEGAL_RANGE}"
#: Rule for numbers that are positive and finite.
POSITIVE = "in the range (0, inf)"

# Largest difference, in a model file, between a field that is a number of components and the number
# of components that have statistics.
_MAX_WITHOUT_STATISTICS = 100_000
#: Rule for fields that are numbers of components.
COMPONENTS = f"from 1 to {_MAX_WITHOUT_STATISTICS:,} more than the number of components"
_NUMBER_RULES = PRIOR, POSITIVE, COMPONENTS


class Registration(NamedTuple):
    """A registered class, with conditions on the objects of this class in files."""

    cls: type
    # Names of the fields that may hold NaN.
    nan: tuple[str, ...] = ()
    # For an estimator, the allowed classes of objects in its attribute ``_fitted``, by the path of
    # the object, such as "model.weights".
    fitted: Mapping[str, tuple[type, ...]] = {}
    # Names of further attributes that a fitted estimator must have.
    attributes: tuple[str, ...] = ()


#: The registered classes by the names that files give them.
REGISTRY: dict[str, Registration] = {}
#: The names that files give to the registered classes.
NAMES_IN_FILES: dict[type, str] = {}


def in_files(
    name: str, *, nan: tuple[str, ...] = (), attributes: tuple[str, ...] = (),
    fitted: Mapping[str, tuple[type, ...]] = Registration._field_defaults["fitted"],
) -> Callable[[type[T]], type[T]]:  # fmt: skip
    """Return a decorator that registers a class, so that files may hold its objects.

    ``name`` stands for the class in files. It must not change if the class is renamed, since older
    files have it. The other arguments are the fields of :class:`Registration`.
    """

    def register(cls: type[T]) -> type[T]:
        REGISTRY[name] = Registration(cls, nan, fitted, attributes)
        NAMES_IN_FILES[cls] = name
        return cls

    return register


@cache
def _get_rules(cls: type) -> dict[str, tuple[str, ...]]:
    """Return the rules of each field of a class; fields without rules are left out."""
    # A hint that is ``Annotated`` has its rules in the attribute ``__metadata__``.
    hints = get_type_hints(cls, include_extras=True)
    rules = {field: getattr(hint, "__metadata__", ()) for field, hint in hints.items()}
    return {field: rule for field, rule in rules.items() if rule}


def check_fields(instance: Any, d: int, k: int) -> None:
    """Raise ValueError unless an object and its parts follow their rules.

    Objects of classes that are not registered have no rules, and their parts are not checked.

    Parameters
    ----------
    instance : object
        An object from a file, whose fields have the declared types.
    d, k : int
        The numbers of columns and of components of the model.
    """
    cls = type(instance)
    name = NAMES_IN_FILES.get(cls)
    if name is None:
        return
    # Only named tuples have no __dict__.
    values = vars(instance) if hasattr(instance, "__dict__") else instance._asdict()
    # The lengths that rules may name. Fields of type int count, but not fields of type bool.
    lengths = {field: value for field, value in values.items() if type(value) is int}
    lengths |= {"d": d, "k": k, "t": d * (d + 1) // 2}
    if getattr(instance, "n_features", d) != d:
        raise ValueError(
            f"An object of class {name} has {instance.n_features} columns, but the model has {d}."
        )
    for field, rules in _get_rules(cls).items():
        value = values.get(field)
        for rule in rules:
            if value is not None and not _follows_rule(value, rule, lengths):
                requirement = rule if rule in _NUMBER_RULES else f"of shape {rule!r}"
                raise ValueError(
                    f"The field {field!r} of {name}, of shape {np.shape(value)}, is not "
                    f"{requirement}."
                )
    if hasattr(instance, "validate") and not instance.validate(d, k):
        raise ValueError(f"The fields of {name} do not fit together.")
    for value in values.values():
        check_fields(value, d, k)
    # Each block of a component describes some of the columns.
    for block in getattr(instance, "blocks", ()):
        check_fields(block.component, block.columns.size, k)


def _follows_rule(value: Any, rule: str, lengths: dict[str, int]) -> bool:
    """Return whether a value follows a rule; add new names of the rule to ``lengths``."""
    if rule == COMPONENTS:
        return bool(1 <= value <= lengths["k"] + _MAX_WITHOUT_STATISTICS)
    if rule in _NUMBER_RULES:
        return is_in_legal_range(value) if rule == PRIOR else is_positive(value)
    shape, alternatives = np.shape(value), rule.split("|")
    return any(_has_shape(shape, expected.split(), lengths) for expected in alternatives)


def _has_shape(shape: Sequence[int], expected: list[str], lengths: dict[str, int]) -> bool:
    """Return whether the lengths of a shape are as expected, such as ["d", "2+t"].

    A single name that is not in ``lengths`` stands for any length: it is added to ``lengths`` with
    the length in the shape.
    """
    if len(shape) != len(expected):
        return False
    for length, expression in zip(shape, expected, strict=True):
        if expression.isidentifier():
            lengths.setdefault(expression, length)
        # Add up the terms, each a minus sign or nothing, and a number or a name.
        expected_length = 0
        for sign, term in re.findall(r"(-?)(\w+)", expression):
            term_length = int(term) if term.isdigit() else lengths[term]
            expected_length += -term_length if sign else term_length
        if length != expected_length:
            return False
    return True


def is_in_legal_range(values: Any) -> bool:
    """Return whether all values are in ``LEGAL_RANGE``."""
    values = np.asarray(values, np.float64)
    return bool(np.all((values >= 1.0 / LARGEST) & (values <= LARGEST)))


def is_positive(values: Any) -> bool:
    """Return whether all values are positive and finite."""
    return bool(np.all(np.greater(values, 0.0)) and np.all(np.isfinite(values)))


def are_like(arrays: Sequence[Any], shapes: Iterable[tuple[int, ...]]) -> bool:
    """Return whether arrays of real numbers have the given shapes, except for their first lengths.

    The first lengths of all arrays must be equal, but may differ from the first lengths of
    ``shapes``. The number of arrays must be the number of shapes, and at least 1.
    """
    legal_shapes = [(len(arrays[0]), *shape[1:]) for shape in shapes]
    return [a.shape for a in arrays] == legal_shapes and all(a.dtype.kind == "f" for a in arrays)


def are_indices_below(numbers: IndexArray, n: int) -> bool:
    """Return whether the numbers in an array are integers from 0 to n - 1."""
    return numbers.dtype.kind in "iu" and bool(np.all((numbers >= 0) & (numbers < n)))
