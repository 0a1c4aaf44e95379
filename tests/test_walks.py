"""How far it is from ``fit(X)`` to the loop, for a reader who follows calls from file to file."""

import os
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import skvt

HERE = str(Path(skvt.__file__).parent) + os.sep
PAGE = (Path(__file__).parents[1] / "doc" / "walks.md").read_text(encoding="utf-8")
MAX_CALLS = {name: int(most) for name, most in re.findall(r"^\| `(\w+)` \| (\d+)", PAGE, re.M)}
# Mathematics, which a reader takes as given.
LEAVES = ("expfam/", "_compiled/", "rows.py", "ties.py")
# What the base, below the estimators, asks of every estimator, and of one that makes its restarts.
ASKED_OF_ALL = {"_build_model", "_plan"}
ASKED_OF_FACES = {"MemoizedHDP": ASKED_OF_ALL | {"_restarts", "next"}}

# Calls at most, and at most where columns are read by their types and likelihoods are chosen by
# short fits, which are a walk of their own.
LIMIT, LIMIT_OF_TABLES = 46, 183

rng = np.random.default_rng(0)
COUNTS, REALS = rng.poisson(1.0, (40, 12)), rng.normal(size=(40, 3))
BITS = (rng.random((40, 8)) < 0.4).astype(float)
FRAME = pd.DataFrame(
    {
        "length": rng.normal(size=40),
        "weight": rng.lognormal(sigma=2.0, size=40),
        "colour": np.array(["red", "blue"])[rng.integers(2, size=40)],
    }
)
FITS = [
    (skvt.TemperedLDA(3), COUNTS),
    (skvt.StructuredLDA(3), COUNTS),
    (skvt.MemoizedHDP(), COUNTS),
    (skvt.MemoizedDPGMM(), REALS),
    (skvt.MemoizedDPMixture(), FRAME),
    (skvt.StructuredBernoulliMixture(5), BITS),
    (skvt.StructuredGaPNMF(5), COUNTS),
    (skvt.AnnealedFactorialMixture(3), REALS),
    (skvt.CAVIGaussianMixture(3), REALS),
]


def is_ours(frame):
    """Whether a frame is of the package.

    Neither what stands in for newer scikit-learn nor lines that say where a fit is are followed.
    """
    file = frame.f_code.co_filename
    left_out = f"{HERE}_sklearn_private", f"{HERE}_stages.py"
    return file.startswith(HERE) and not file.startswith(left_out)


def frames(frame):
    """(file, function) of a frame and of those that called it, of the package alone."""
    while frame is not None:
        if is_ours(frame):
            file = frame.f_code.co_filename.removeprefix(HERE)
            yield file.replace(os.sep, "/"), frame.f_code.co_name
        frame = frame.f_back


def is_unseen(frame):
    """Whether a compiled loop makes this call, scikit-learn, or a dataclass for a default."""
    if frame.f_back is None:
        return True
    caller, name = frame.f_back.f_code.co_filename, frame.f_code.co_name
    of_scikit_learn = not {"sklearn", "_sklearn_private"}.isdisjoint(caller.split(os.sep))
    return of_scikit_learn or (caller == "<string>" and name != "__post_init__")


def hides(place, file):
    """Whether calls of ``file`` from this (file, function) are not followed."""
    caller, _ = place
    same_model = file.startswith("models/") and caller.split("/")[:2] == file.split("/")[:2]
    return same_model or caller.startswith(LEAVES)


class Reached(Exception):
    """The loop, before which a walk ends."""


def walk(estimator, X):
    """The calls from one file into another before the loop, each once: (caller, callee)."""
    calls = {}

    def look(frame, event, argument):
        if event != "call" or not is_ours(frame) or is_unseen(frame):
            return
        here, *above = frames(frame)
        file = here[0]
        if above and above[0][0] != file and not file.startswith(LEAVES):
            if not any(hides(place, file) for place in above):
                calls[above[0], here] = None
        if here == ("inference/_loop.py", "fit_loop"):
            raise Reached

    sys.setprofile(look)
    try:
        with pytest.raises(Reached):
            estimator.set_params(max_iter=2, random_state=0).fit(X)
    finally:
        sys.setprofile(None)
    return list(calls)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator, X", FITS, ids=lambda value: type(value).__name__)
def test_the_loop_is_a_few_calls_away(estimator, X):
    calls = walk(estimator, X)
    assert calls[-1][1] == ("inference/_loop.py", "fit_loop")
    most = MAX_CALLS[type(estimator).__name__]
    limit = LIMIT_OF_TABLES if isinstance(X, pd.DataFrame) else LIMIT
    assert len(calls) <= most <= limit, "\n".join(f"{one} -> {other}" for one, other in calls)
    climbs = [pair for pair in calls if not pair[0][0].startswith("_estimators/")]
    asked = {name for _, (file, name) in climbs if file.startswith("_estimators/")}
    assert asked == ASKED_OF_FACES.get(type(estimator).__name__, ASKED_OF_ALL)
