"""The classes whose objects a model file may hold, and what it must say of their fields.

A class is registered beside its definition. `skvt.io` checks that fields have the declared types.
Further rules of a field are metadata of ``Annotated``: `PRIOR` or `POSITIVE` for numbers, and the
shape of an array such as "d 4", with alternatives "d | d k". A length is a number, a sum such as
"2+d+t" or a name: d for columns, k for components, t for the d (d + 1) / 2 entries of a triangle,
another field that is an integer; any other name stands for one length in all fields of an object.
Rules do not apply to None.

What else must be true of an object of d columns and k components is the result of its method
``validate(d, k)``.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from skvt.typing import IndexArray, T

#: Rules of numbers: in the range of priors, or positive and finite.
PRIOR = "in the range of priors"
POSITIVE = "positive"


class InFiles(NamedTuple):
    """What files say of a class."""

    cls: type
    # Names of the fields that may hold NaN.
    nan: tuple[str, ...] = ()
    # Classes that parts of the outcome of an estimator's fit may have, such as "model.weights".
    fitted: Mapping[str, tuple[type, ...]] = {}


#: The classes by their names in files, and these names by class.
IN_FILES: dict[str, InFiles] = {}
NAMES: dict[type, str] = {}


def in_files(
    name: str,
    *,
    nan: tuple[str, ...] = (),
    fitted: Mapping[str, tuple[type, ...]] = InFiles._field_defaults["fitted"],
) -> Callable[[type[T]], type[T]]:
    """Let files hold objects of a class under a name that remains when the class is renamed."""

    def registered(cls: type[T]) -> type[T]:
        IN_FILES[name], NAMES[cls] = InFiles(cls, nan, fitted), name
        return cls

    return registered


def is_within(numbers: IndexArray, n: int) -> bool:
    """Return whether numbers are integers from 0 to n - 1."""
    return numbers.dtype.kind in "iu" and bool(np.all((numbers >= 0) & (numbers < n)))
