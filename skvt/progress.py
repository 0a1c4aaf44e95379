"""What engines and moves remember between passes, so that an interrupted fit can continue."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, ClassVar


class Continued:
    """Base of engines and moves that remember something from one pass to the next.

    All attributes are remembered, except those in ``not_kept``: what is needed only within a pass,
    or follows from the parameters. An attribute that is itself a :class:`Continued`, or a sequence
    of them, is replaced by what it remembers.
    """

    not_kept: ClassVar[frozenset[str]] = frozenset()

    def progress(self) -> dict[str, Any]:
        """What is remembered, as independent copies."""
        own = {name: value for name, value in vars(self).items() if name not in self.not_kept}
        parts = {name: [part.progress() for part in _parts(value)] for name, value in own.items()}
        return {name: parts[name] or deepcopy(value) for name, value in own.items()}

    def take_up(self, progress: dict[str, Any]) -> None:
        """Continue from the :meth:`progress` of an object made with the same parameters."""
        for name, value in progress.items():
            parts = list(_parts(getattr(self, name)))
            if parts:
                for part, of_part in zip(parts, value, strict=True):
                    part.take_up(of_part)
            else:
                setattr(self, name, value)


def _parts(value: Any) -> Iterator[Continued]:
    """The value if it is a Continued, or those that a sequence consists of."""
    for part in value if isinstance(value, list | tuple) else (value,):
        if isinstance(part, Continued):
            yield part
