"""Data that engines and moves keep between passes, so that an interrupted fit can continue."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, ClassVar


class Continued:
    """Base of engines and moves that keep data from one pass to the next."""

    # Types of the attributes that are kept, by which files are checked. Attributes that are needed
    # only within a pass, or follow from the parameters, are not among them. A type may be
    # ``Annotated`` with the name of a rule of `skvt.io` for its shapes.
    kept: ClassVar[Mapping[str, Any]] = {}
    # Attributes that are sequences of further objects of this class.
    parts: ClassVar[frozenset[str]] = frozenset()

    def progress(self) -> dict[str, Any]:
        """Return independent copies of the attributes that are kept."""
        values = {name: deepcopy(getattr(self, name)) for name in self.kept}
        parts = {name: [part.progress() for part in getattr(self, name)] for name in self.parts}
        return values | parts

    def take_up(self, progress: dict[str, Any]) -> None:
        """Continue from the :meth:`progress` of an object made with the same parameters."""
        if not set(progress) <= {*self.kept, *self.parts}:
            raise ValueError(
                f"The interrupted fit was made by other parameters: {type(self).__name__} does not "
                f"remember {sorted(progress)}."
            )
        for name, value in progress.items():
            if name in self.parts:
                for part, of_part in zip(getattr(self, name), value, strict=True):
                    part.take_up(of_part)
            else:
                setattr(self, name, value)
