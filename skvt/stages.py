"""The current stage of a fit, printed for a fit that prints its progress.

Any function can begin a stage by :func:`begin_stage`, which has no effect unless the fit of this
thread prints. A long stage is printed after ten seconds without a printed line.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event, Thread

# Seconds without a line after which the stage is printed.
SILENCE = 10.0


class _Stages:
    """The stage of one fit, and the time of the last printed line."""

    def __init__(self) -> None:
        self.stage, self.begun = "reading rows", time.monotonic()
        self.last_line = self.begun
        self.ended = Event()
        # What the next line of a pass says besides.
        self.notes: list[str] = []

    def begin(self, stage: str, printed: bool) -> None:
        """Begin a stage, and print it at once if ``printed``."""
        now = time.monotonic()
        self.stage, self.begun = stage, now
        if printed:
            self.last_line = now
            print(stage, flush=True)

    def watch(self) -> None:
        """Print the stage after each silence of :data:`SILENCE` seconds, until the fit has ended.

        A stage is printed once, however long it lasts.
        """
        shown = None
        while not self.ended.wait(max(0.05 * SILENCE, 0.001)):
            now = time.monotonic()
            if now - self.last_line >= SILENCE and self.begun != shown:
                shown, self.last_line = self.begun, now
                print(f"{self.stage}, for {now - self.begun:.0f} s", flush=True)


_STAGES: ContextVar[_Stages | None] = ContextVar("stages", default=None)


def begin_stage(stage: str, *, printed: bool = False) -> None:
    """Begin a stage of the fit.

    Parameters
    ----------
    stage : str
        Description of the stage.
    printed : bool, default=False
        Whether the stage is printed at once, and not only after ten seconds without a line.
    """
    stages = _STAGES.get()
    if stages is not None:
        stages.begin(stage, printed)


def note_line() -> None:
    """Record that a line of progress has just been printed."""
    stages = _STAGES.get()
    if stages is not None:
        stages.last_line = time.monotonic()


def add_note(text: str) -> None:
    """Let the next line of a pass say what happened in it."""
    stages = _STAGES.get()
    if stages is not None:
        stages.notes.append(text)


def take_notes() -> list[str]:
    """What the line of this pass says besides, once."""
    stages = _STAGES.get()
    if stages is None:
        return []
    taken, stages.notes = stages.notes, []
    return taken


@contextmanager
def stages_printed(verbose: int) -> Iterator[None]:
    """Print stages within a ``with`` block, if ``verbose`` is positive."""
    if verbose <= 0:
        yield
        return
    stages = _Stages()
    token = _STAGES.set(stages)
    watcher = Thread(target=stages.watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stages.ended.set()
        _STAGES.reset(token)
