import logging
import os
import re
import time
from pathlib import Path

import pytest

# The tests draw figures but never show them. This is set before matplotlib is imported.
os.environ.setdefault("MPLBACKEND", "Agg")

# The level that pyproject.toml sets for all loggers would make each fit log its passes.
logging.getLogger("skvt").setLevel(logging.WARNING)

# Workers share the cores, on which the threads of matrix products would wait for each other.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """No workers for single files or ``-k``: to start them takes longer than most of these run.

    None is xdist's own answer, one worker a core.
    """
    folders = all(Path(arg).is_dir() for arg in config.args)
    return None if folders and not config.option.keyword else 0


def pytest_itemcollected(item):
    """Mark as slow the cases that plain ``pytest`` leaves out.

    Plain ``pytest`` runs tests of all estimators with one engine of each class, and of tests with
    `quick_cases` the named cases.
    """
    cases = getattr(item, "callspec", None)
    if getattr(cases and cases.params.get("entry"), "alike", False):
        item.add_marker(pytest.mark.slow)
    for mark in item.iter_markers("quick_cases"):
        if not any(name in cases.id for name in mark.args):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def slow_down(monkeypatch):
    """Return a function that prolongs the calls of a function of an object by some seconds.

    Silences are reported at once.
    """
    from skvt import _stages

    monkeypatch.setattr(_stages, "MAX_SILENCE", 0.02)

    def slow_down(owner, name, seconds):
        function = getattr(owner, name)

        def slow(*args, **options):
            result = function(*args, **options)
            time.sleep(seconds)
            return result

        monkeypatch.setattr(owner, name, slow)

    return slow_down


# The loops of topic models take long to compile.
LOOPS = re.compile(
    "lda|hdp|topic|collapsed|averaging|dirichlet|joint_laws|test_structured.py", re.I
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Sort the tests so that two workers begin with different loops to compile.

    Each worker takes a half, and only the first half has the loops of topic models.
    """
    items.sort(key=lambda item: not LOOPS.search(item.nodeid))
