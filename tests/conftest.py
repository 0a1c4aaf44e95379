import os
from pathlib import Path

import pytest

# The tests draw figures but never show them. Set before anything imports matplotlib.
os.environ.setdefault("MPLBACKEND", "Agg")

# Workers share the cores: threads of matrix products would wait for each other, spinning.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """No workers for single files or ``-k``: to start them takes longer than most of these run.

    None is xdist's own answer, one worker a core.
    """
    folders = all(Path(arg).is_dir() for arg in config.args)
    return None if folders and not config.option.keyword else 0


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Two workers begin with different loops, so that both do not compile the same ones at once.

    Each takes a half: while the first compiles all loops, those of topic models the longest, the
    second has mixtures, which need few.
    """
    mixtures, others = [], []
    for item in items:
        known = item.path.stem in ("test_mixtures", "test_tables", "test_clusters")
        (mixtures if known else others).append(item)
    half = len(items) // 2
    items[:] = others[:half] + mixtures + others[half:]
