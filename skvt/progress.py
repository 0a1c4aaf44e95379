"""What engines and moves remember between passes, so that an interrupted fit can continue."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, ClassVar


class Continued:
    """Base of engines and moves that remember something from one pass to the next.

    All attributes are remembered, except those in ``not_kept``: what is needed only within a pass,
    or follows from the parameters. Those in ``parts`` are objects that remember by themselves, or
    sequences of them.
    """

    not_kept: ClassVar[frozenset[str]] = frozenset()
    parts: ClassVar[frozenset[str]] = frozenset()

    def progress(self) -> dict[str, Any]:
        """What is remembered, as independent copies."""
        own = {name: value for name, value in vars(self).items() if name not in self.not_kept}
        return {
            name: [part.progress() for part in _each(value)]
            if name in self.parts
            else deepcopy(value)
            for name, value in own.items()
        }

    def take_up(self, progress: dict[str, Any]) -> None:
        """Continue from the :meth:`progress` of an object made with the same parameters."""
        for name, value in progress.items():
            if name in self.parts:
                for part, of_part in zip(_each(getattr(self, name)), value, strict=True):
                    part.take_up(of_part)
            else:
                setattr(self, name, value)


def _each(parts: Any) -> Sequence[Any]:
    return parts if isinstance(parts, list | tuple) else (parts,)
