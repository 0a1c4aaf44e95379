"""Types in the signatures of the package."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

#: An array of float64, or of float32 if a fit computes in it; a number if its shape is ().
Array: TypeAlias = NDArray[np.floating[Any]]
#: An array of integers, such as row numbers.
IndexArray: TypeAlias = NDArray[np.integer[Any]]
#: An integer, which is one of NumPy if a compiled function needs an int64.
Whole: TypeAlias = int | np.integer[Any]


class Run(Protocol):
    """A function that calls another function for each of several tasks, in parallel or not."""

    def __call__(self, function: Callable[..., T], tasks: Iterable[tuple[Any, ...]]) -> list[T]:
        """Return ``function(*task)`` for each task, in the order of the tasks."""
        ...
