"""What a fitted estimator holds can be found again by those who load it."""

import types
from pkgutil import resolve_name

import numpy as np
import pytest

from skvt import (
    AnnealedFactorialMixture,
    CAVIGaussianMixture,
    MemoizedDPGMM,
    StructuredBernoulliMixture,
    StructuredGaPNMF,
    StructuredLDA,
    TemperedLDA,
)
from skvt.temperature import GeometricAnnealing

ESTIMATORS = [
    TemperedLDA(2, temperature="annealed"), TemperedLDA(2, temperature="local"),
    TemperedLDA(2, temperature=GeometricAnnealing()), StructuredLDA(2), MemoizedDPGMM(2),
    CAVIGaussianMixture(2), StructuredBernoulliMixture(2), StructuredGaPNMF(2),
    AnnealedFactorialMixture(2),
]  # fmt: skip


def held(value, seen):
    """All objects that are sent with ``value``, itself included."""
    if id(value) in seen:
        return
    seen[id(value)] = value
    yield value
    if isinstance(value, dict):
        parts = [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        parts = value
    elif isinstance(value, type | types.ModuleType | np.ndarray):
        parts = ()
    else:
        state = value.__getstate__() if hasattr(value, "__dict__") else None
        parts = state.values() if isinstance(state, dict) else ()
    for part in parts:
        yield from held(part, seen)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
def test_all_that_is_held_is_found_under_its_own_name(estimator):
    X = (np.random.default_rng(0).random((40, 6)) < 0.5).astype(float)
    estimator.set_params(max_iter=3, random_state=0).fit(X)
    objects = list(held(estimator, {}))
    assert len(objects) > 30
    for value in objects:
        # a bound method would be looked for in the class of its object, in its own module
        assert not isinstance(value, types.MethodType | types.LambdaType), value
        cls = value if isinstance(value, type) else type(value)
        if cls is not type(None):
            assert resolve_name(f"{cls.__module__}:{cls.__qualname__}") is cls
