"""Types of the package's own signatures."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

#: An array of float64, or of float32 where a fit computes in it; where its shape is (), a number.
Array: TypeAlias = NDArray[np.floating[Any]]
#: Row numbers and the like.
IndexArray: TypeAlias = NDArray[np.integer[Any]]
#: A whole number; NumPy's, where a compiled function is to see an int64.
Whole: TypeAlias = int | np.integer[Any]


class Run(Protocol):
    """``run(function, tasks)``: results by tuples of arguments, in order, in parallel or not."""

    def __call__(self, function: Callable[..., T], tasks: Iterable[tuple[Any, ...]]) -> list[T]:
        """The results."""
        ...
