"""The classes whose objects a model file may hold, and rules for the values of their fields.

A class is registered where it is defined. `skvt.io` checks that fields have the declared types;
:func:`check_fields` checks further rules, which are metadata of ``Annotated``. For numbers they are
`PRIOR` or `POSITIVE`. For arrays they are shapes, such as "d 4", or alternatives, "d | d k". A
length is a number, a name, or a sum such as "2+d+t". Names are d for the number of columns, k for
the number of components, t for the d (d + 1) / 2 entries of a triangle, or a field that is an
integer; any other name stands for the same length in all fields of an object. Rules do not apply to
None.

Further conditions on an object of d columns and k components are checked by its method
``validate(d, k)``, which returns whether they are true.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, get_type_hints

import numpy as np

from skvt.typing import IndexArray, T

# Largest sum of counts and largest parameter of a prior; the smallest are its inverse. The range is
# within that of single precision, which draws and tables of float64 data may have.
LARGEST = 1e30
LEGAL_RANGE = f"the range [{1.0 / LARGEST:g}, {LARGEST:g}]"
#: Rules for numbers: in the range of priors, or positive and finite.
PRIOR, POSITIVE = f"in {LEGAL_RANGE}", "in the range (0, inf)"


class InFiles(NamedTuple):
    """A class whose objects files may hold, with rules for them."""

    cls: type
    # Names of the fields that may hold NaN.
    nan: tuple[str, ...] = ()
    # For an estimator, the allowed classes of parts of its :class:`Fitted`, by paths such as
    # "model.weights".
    fitted: Mapping[str, tuple[type, ...]] = {}
    # Names of further attributes that a fitted estimator must have.
    attributes: tuple[str, ...] = ()


#: Entries by names of classes in files, and these names by class.
IN_FILES: dict[str, InFiles] = {}
NAMES: dict[type, str] = {}


def in_files(
    name: str,
    *,
    nan: tuple[str, ...] = (),
    fitted: Mapping[str, tuple[type, ...]] = InFiles._field_defaults["fitted"],
    attributes: tuple[str, ...] = (),
) -> Callable[[type[T]], type[T]]:
    """Return a decorator that lets files hold objects of a class.

    Files call the class ``name``, which must not change if the class is renamed.
    """

    def registered(cls: type[T]) -> type[T]:
        IN_FILES[name], NAMES[cls] = InFiles(cls, nan, fitted, attributes), name
        return cls

    return registered


@cache
def _rules_of(cls: type) -> dict[str, tuple[str, ...]]:
    """Return the rules of the fields of a class."""
    hints = get_type_hints(cls, include_extras=True)
    rules = {field: getattr(hint, "__metadata__", ()) for field, hint in hints.items()}
    return {field: rule for field, rule in rules.items() if rule}


def check_fields(part: Any, d: int, k: int) -> None:
    """Raise ValueError unless an object and its parts fit d columns and k components."""
    cls, name = type(part), NAMES.get(type(part))
    if name is None:
        return
    values = vars(part) if hasattr(part, "__dict__") else part._asdict()
    lengths = {field: value for field, value in values.items() if type(value) is int}
    lengths |= {"d": d, "k": k, "t": d * (d + 1) // 2}
    if getattr(part, "n_features", d) != d:
        raise ValueError(f"{name} is not of {d} columns.")
    for field, rules in _rules_of(cls).items():
        value = values.get(field)
        for rule in rules if value is not None else ():
            if not _follows(value, rule, lengths):
                needed = rule if rule in (PRIOR, POSITIVE) else f"of shape {rule!r}"
                shape = f"of shape {np.shape(value)}"
                raise ValueError(f"{field!r} of {name}, {shape}, is not {needed}.")
    if hasattr(part, "validate") and not part.validate(d, k):
        raise ValueError(f"Parts of {name} do not fit together.")
    for value in values.values():
        check_fields(value, d, k)
    for block in getattr(part, "blocks", ()):
        check_fields(block.component, block.columns.size, k)


def _follows(value: Any, rule: str, lengths: dict[str, int]) -> bool:
    """Return whether a value follows a rule; add the lengths of new names to ``lengths``."""
    if rule in (PRIOR, POSITIVE):
        return in_range(value) if rule == PRIOR else is_positive(value)
    return any(_has_shape(np.shape(value), form.split(), lengths) for form in rule.split("|"))


def _has_shape(shape: Sequence[int], form: list[str], lengths: dict[str, int]) -> bool:
    """Return whether a shape is of a form such as "d 2+t"; add new names to ``lengths``."""
    if len(shape) != len(form):
        return False
    for remainder, terms in zip(shape, form, strict=True):
        if terms.isidentifier():
            lengths.setdefault(terms, remainder)
        for sign, term in re.findall(r"(-?)(\w+)", terms):
            size = int(term) if term.isdigit() else lengths[term]
            remainder -= -size if sign else size
        if remainder != 0:
            return False
    return True


def in_range(values: Any) -> bool:
    """Return whether all values are in ``LEGAL_RANGE``."""
    values = np.asarray(values, np.float64)
    return bool(np.all((values >= 1.0 / LARGEST) & (values <= LARGEST)))


def is_positive(values: Any) -> bool:
    """Return whether all numbers are positive and finite."""
    return bool(np.all(np.greater(values, 0.0)) and np.all(np.isfinite(values)))


def are_like(arrays: Sequence[Any], shapes: Iterable[tuple[int, ...]]) -> bool:
    """Return whether arrays are of real numbers and have these shapes but for the first length.

    The first length must be the same for all arrays.
    """
    legal = [(len(arrays[0]), *shape[1:]) for shape in shapes]
    return [a.shape for a in arrays] == legal and all(a.dtype.kind == "f" for a in arrays)


def is_within(numbers: IndexArray, n: int) -> bool:
    """Return whether numbers are integers from 0 to n - 1."""
    return numbers.dtype.kind in "iu" and bool(np.all((numbers >= 0) & (numbers < n)))
