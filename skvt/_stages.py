"""The stages of a fit, and the lines by which a fit reports its progress.

A stage is a text that says what the fit does now. Any function can begin a stage by
:func:`begin_stage`, which has no effect unless the fit of this thread reports its progress. Lines
are printed if ``verbose`` is positive, and logged by the logger "skvt" at level INFO. The current
stage is reported after ten seconds without a line.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event, Thread

# Seconds without a line after which the stage is reported.
MAX_SILENCE = 10.0
# The thread that watches for silences looks at the clock at intervals of this share of MAX_SILENCE.
_SHARE_OF_SILENCE = 0.05
# Shortest interval in seconds, so that the thread does not occupy a processor.
_SHORTEST_WAIT = 0.001
LOGGER = logging.getLogger("skvt")


def are_lines_reported(verbose: int) -> bool:
    """Return whether lines of progress are printed or logged."""
    return verbose > 0 or LOGGER.isEnabledFor(logging.INFO)


class _Progress:
    """The progress of one fit: its current stage, and the time of the last line about it.

    Lines are logged and, if ``prints_lines``, printed.
    """

    def __init__(self, prints_lines: bool) -> None:
        self.prints_lines = prints_lines
        self.stage = "reading rows"
        # Times in seconds: the beginning of the stage, and the last line.
        self.stage_start_time = time.monotonic()
        self.last_line_time = self.stage_start_time
        self.has_ended = Event()
        # Texts for the next line about a pass, or about a call of partial_fit.
        self.notes: list[str] = []

    def report_silences(self) -> None:
        """Report the stage after :data:`MAX_SILENCE` seconds without a line.

        The method returns when the fit has ended. A stage is reported at most once, even if further
        silences follow.
        """
        # Start time of the stage that was reported last, by which the stage is identified.
        reported_start = None
        while not self.has_ended.wait(max(_SHARE_OF_SILENCE * MAX_SILENCE, _SHORTEST_WAIT)):
            now = time.monotonic()
            if now - self.last_line_time >= MAX_SILENCE and self.stage_start_time != reported_start:
                reported_start = self.stage_start_time
                # `report` does not set this time, because _PROGRESS is None in this thread.
                self.last_line_time = now
                duration = now - self.stage_start_time
                report(f"{self.stage}, for {duration:.0f} s", printed=self.prints_lines)


# The progress of the fit of this thread; None unless the fit reports its progress.
_PROGRESS: ContextVar[_Progress | None] = ContextVar("progress", default=None)


def report(line: str, *, printed: bool) -> None:
    """Log a line of progress and, if ``printed``, print it."""
    if printed:
        print(line, flush=True)
    LOGGER.info(line)
    progress = _PROGRESS.get()
    if progress is not None:
        progress.last_line_time = time.monotonic()


def begin_stage(stage: str, *, line: str | None = None) -> None:
    """Begin a stage of the fit.

    Parameters
    ----------
    stage : str
        Description of the stage, which is reported after ten seconds without a line.
    line : str, optional
        Line that is reported at once, such as the result of the stage before.
    """
    progress = _PROGRESS.get()
    if progress is not None:
        progress.stage = stage
        progress.stage_start_time = time.monotonic()
        if line is not None:
            report(line, printed=progress.prints_lines)


def add_note(text: str) -> None:
    """Keep a text about an event, for the next line about a pass or a call of partial_fit."""
    progress = _PROGRESS.get()
    if progress is not None:
        progress.notes.append(text)


def take_notes() -> list[str]:
    """Return the texts of :func:`add_note` that no line has included yet, and remove them."""
    progress = _PROGRESS.get()
    if progress is None:
        return []
    notes, progress.notes = progress.notes, []
    return notes


@contextmanager
def reporting_stages(verbose: int) -> Iterator[None]:
    """Report stages within a ``with`` block, if lines are printed or logged.

    A thread watches for silences while the block runs.
    """
    if not are_lines_reported(verbose):
        yield
        return
    progress = _Progress(verbose > 0)
    context_token = _PROGRESS.set(progress)
    watcher = Thread(target=progress.report_silences, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        progress.has_ended.set()
        _PROGRESS.reset(context_token)
