"""The vectorisable special functions agree with those of SciPy."""

import gc
from types import SimpleNamespace

import numba as nb
import numpy as np
import pytest
import scipy.special
from numba.core import event

from skvt._compiled import _special
from skvt._compiled._special import digamma_array, gammaln_array


def looped(function):
    @nb.njit
    def loop(x, out):
        for i in range(x.size):
            out[i] = function(x[i])

    def apply(x):
        out = np.empty_like(x)
        loop(x, out)
        return out

    return apply


EXP, LOG = looped(_special.exp), looped(_special.log)
DIGAMMA, GAMMALN = looped(_special.digamma), looped(_special.gammaln)
PRECISIONS = [np.float64, np.float32]


def positive_numbers(dtype):
    rng = np.random.default_rng(0)
    return np.concatenate(
        [
            np.exp(rng.uniform(np.log(1e-5), np.log(1e9), 20_000)),
            rng.uniform(1e-3, 8.0, 20_000),
            # Recurrences end and signs change at whole numbers.
            (np.arange(1, 40)[:, None] + np.array([-1e-6, 0.0, 1e-6])).ravel(),
            [1e-5, 1.4616321449683623, np.sqrt(0.5), np.sqrt(2.0), 1e9],
        ]
    ).astype(dtype)


def error(value, reference):
    """The error, relative to large values and absolute near zero."""
    return np.max(np.abs(value - reference) / np.maximum(1.0, np.abs(reference)))


# The series leave out terms of 3617 / 8160 y^-16 (digamma) and 1 / 156 y^-13 (gammaln) where
# y >= 6: 2e-13 and 5e-13 at most. In float32 rounding decides, of digamma that of the result alone.
@pytest.mark.parametrize(
    ("function", "reference", "dtype", "tolerance"),
    [
        (LOG, np.log, np.float64, 1e-15),
        (LOG, np.log, np.float32, 2.5e-7),
        (DIGAMMA, scipy.special.digamma, np.float64, 5e-14),
        (DIGAMMA, scipy.special.digamma, np.float32, 1.2e-7),
        (GAMMALN, scipy.special.gammaln, np.float64, 4e-13),
        (GAMMALN, scipy.special.gammaln, np.float32, 8e-6),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_scalar_functions_agree_with_scipy(function, reference, dtype, tolerance):
    x = positive_numbers(dtype)
    value = function(x)
    assert value.dtype == dtype
    assert error(value.astype(np.float64), reference(x.astype(np.float64))) < tolerance


def test_log_of_one_is_exactly_zero():
    for dtype in PRECISIONS:
        assert LOG(np.ones(1, dtype))[0] == 0.0


@pytest.mark.parametrize(
    ("function", "reference", "tolerance"),
    [(digamma_array, scipy.special.digamma, 5e-14), (gammaln_array, scipy.special.gammaln, 4e-13)],
    ids=["digamma", "gammaln"],
)
def test_array_functions_agree_with_scipy_for_any_layout(function, reference, tolerance):
    x = positive_numbers(np.float64)[:3000].reshape(30, 100)
    for layout in (x, x.T, x[::2, ::3], np.asfortranarray(x), x.astype(np.float32)):
        value = function(layout)
        assert value.dtype == np.float64
        assert value.shape == layout.shape
        assert error(value, reference(layout.astype(np.float64))) < tolerance


@pytest.mark.parametrize("function", [digamma_array, gammaln_array], ids=["digamma", "gammaln"])
def test_array_functions_keep_the_shape_of_scalars_and_empty_arrays(function):
    assert np.shape(function(2.5)) == ()
    assert np.shape(function(np.float64(2.5))) == ()
    assert function(np.empty((0, 3))).shape == (0, 3)


@pytest.mark.parametrize(
    ("dtype", "lowest", "highest"), [(np.float64, -707.9, 709.0), (np.float32, -86.9, 88.0)]
)
def test_exp_agrees_with_numpy(dtype, lowest, highest):
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.uniform(lowest, highest, 20_000), rng.uniform(-2.0, 2.0, 20_000)])
    x = np.append(x, [0.0, lowest, highest]).astype(dtype)
    wide = x.astype(np.float64)
    relative = np.abs(EXP(x) / np.exp(wide) - 1.0)
    # in the range reduction, log 2 (whose parts the compiler may add) and, without fused products,
    # its multiple are rounded: by half an eps each at the size of x
    eps = np.finfo(dtype).eps
    assert np.all(relative < 8.0 * eps + eps * np.abs(wide) * (dtype == np.float64))


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_exp_is_zero_below_the_normal_numbers_and_never_denormal(dtype):
    tiny = np.finfo(dtype).tiny
    edge = np.log(np.float64(tiny))
    x = np.concatenate([np.linspace(edge - 60.0, edge + 10.0, 5000), [-1e4, -1e9, -1e30]])
    value = EXP(x.astype(dtype))
    assert np.all((value == 0.0) | (value >= tiny))
    assert np.all(value[x < edge - 0.01] == 0.0)
    assert np.all(value[x > edge + 1.0][:-1] > 0.0)


def compiling(function):
    """Numba's event for the compilation of a function."""
    return event.trigger_event(
        "numba:compile", data={"dispatcher": SimpleNamespace(py_func=function)}
    )


def test_garbage_is_not_collected_while_functions_of_skvt_are_compiled():
    with compiling(lambda: None):
        assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), compiling(digamma_array):
        with compiling(gammaln_array):
            assert not gc.isenabled()
        assert not gc.isenabled()
        raise ZeroDivisionError
    assert gc.isenabled()
    gc.disable()
    try:
        with compiling(digamma_array):
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
