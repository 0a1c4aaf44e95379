"""Data that engines and moves keep between passes, so that an interrupted fit can continue.

Files hold these data, and `skvt.io` checks them by types and by rules. An engine makes the passes
of a fit, and a move tries to change its components between passes.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, ClassVar

from skvt.files import are_indices_below, are_like


def _get_shapes(value: Any) -> list[tuple[int, ...]]:
    """Return the shapes of the arrays of statistics, or of a sequence of arrays."""
    return [array.shape for array in getattr(value, "arrays", value)]


# Functions by the names of rules. A function returns whether a value in a file is legal, given the
# shapes of the arrays of statistics, the number k of components and the number of steps.
RULES: dict[str, Callable[..., bool]] = {
    # None, statistics, or a sequence of arrays, which may be empty.
    "statistics": lambda value, shapes, k, n_steps: (
        value is None or _get_shapes(value) in ([], shapes)
    ),
    # A list of statistics of fresh components, which a birth proposes. The number of components may
    # differ from k.
    "fresh": lambda value, shapes, k, n_steps: all(are_like(s.arrays, shapes) for s in value),
    # A list of one-dimensional arrays of component numbers, from 0 to k - 1.
    "components": lambda value, shapes, k, n_steps: all(
        array.ndim == 1 and are_indices_below(array, k) for array in value
    ),
    # A tuple that begins with two component numbers, or None.
    "pair": lambda value, shapes, k, n_steps: value is None or all(0 <= a < k for a in value[:2]),
    # A schedule of step sizes.
    "rate": lambda value, shapes, k, n_steps: (
        value.offset + n_steps > 0.0 and value.decay >= 0.0 and 0.0 < value.scale < float("inf")
    ),
}


class ResumableMixin:
    """Base of engines and moves that keep data from one pass to the next."""

    # Types of the attributes that are kept, by name; files are checked by these types. A type may
    # be ``Annotated`` with the name of one of the `RULES`. Attributes that are needed only within a
    # pass, or that follow from the parameters, are not kept.
    kept_attributes: ClassVar[Mapping[str, Any]] = {}
    # Names of attributes that are sequences of other ResumableMixin objects.
    kept_parts: ClassVar[frozenset[str]] = frozenset()

    def get_progress(self) -> dict[str, Any]:
        """Return copies of the attributes that are kept, by name, and the progress of all parts."""
        values = {name: deepcopy(getattr(self, name)) for name in self.kept_attributes}
        parts = {
            name: [resumable.get_progress() for resumable in getattr(self, name)]
            for name in self.kept_parts
        }
        return values | parts

    def set_progress(self, progress: dict[str, Any]) -> None:
        """Set the attributes to the :meth:`get_progress` of an object with the same parameters."""
        if not set(progress) <= {*self.kept_attributes, *self.kept_parts}:
            raise ValueError(
                f"The interrupted fit has other parameters: {type(self).__name__} does not "
                f"remember {sorted(set(progress) - {*self.kept_attributes, *self.kept_parts})}. "
                "Set the parameters back to those of the fit."
            )
        for name, value in progress.items():
            if name in self.kept_parts:
                for resumable, part_progress in zip(getattr(self, name), value, strict=True):
                    resumable.set_progress(part_progress)
            else:
                setattr(self, name, value)
