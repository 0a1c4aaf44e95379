"""Rounding errors do not change choices between tied values."""

import itertools

import numpy as np
import pytest
from _properties import quick
from hypothesis import given
from hypothesis import strategies as st

from skvt.ties import exceeds, first_of_order, stable_argmax, stable_order


def shaken(values, seed, size):
    """The values with relative errors of at most ``size``."""
    noise = np.random.default_rng(seed).uniform(-size, size, np.shape(values))
    return np.asarray(values) * (1.0 + noise)


def test_the_tolerance_is_relative_to_the_terms_of_a_difference():
    values = np.array([2e-6, 1e-6, 5.0])
    assert stable_order(values).tolist() == [1, 0, 2]
    assert stable_order(values, scale=1e4).tolist() == [0, 1, 2]
    assert stable_argmax([-1e-6, 1e-6], scale=1e4) == 0
    assert stable_argmax([[-1e-6, 1e-6]] * 2, scale=np.array([[1e4], [1.0]])).tolist() == [0, 1]
    assert exceeds(1e-6, 0.0) and not exceeds(1e-6, 0.0, scale=1e4)


def test_single_precision_has_a_tolerance_of_its_own():
    values = 1.0 + np.array([4e-7, 0.0])
    assert stable_order(values).tolist() == [1, 0]
    assert stable_order(values, dtype=np.float32).tolist() == [0, 1]
    assert stable_order(values.astype(np.float32)).tolist() == [0, 1]
    assert exceeds(*values) and not exceeds(*values, dtype=np.float32)
    assert not exceeds(*values.astype(np.float32))
    assert not exceeds(values.astype(np.float32), 1.0).any()


def test_infinite_values_are_ordered():
    values = np.array([np.inf, 1.0, -np.inf, 1.0])
    assert stable_order(values).tolist() == [2, 1, 3, 0]
    assert stable_argmax(values) == 0
    assert stable_argmax(np.full(3, -np.inf)) == 0
    assert exceeds(1.0, -np.inf) and not exceeds(-np.inf, 1.0)
    assert not exceeds(-np.inf, -np.inf) and not exceeds(np.nan, 1.0)
    assert stable_order(np.empty(0)).size == 0


# ---------------------------------------------------------------------------------- as properties
# Values at few levels, with distances of tenths of the tolerance, have many ties and chains.
_NEAR = st.builds(
    lambda level, steps, sign: sign * level * (1.0 + 1e-10 * steps),
    st.sampled_from([0.0, 1e-300, 1e-5, 1.0, 2.5, 1e40, np.inf]),
    st.integers(0, 60),
    st.sampled_from([-1.0, 1.0]),
)
_VALUES = st.lists(_NEAR, max_size=12).map(lambda values: np.array(values, float))


def groups_of(values):
    """The group of ties of each value, which ties between neighbours in order connect."""
    order, groups = sorted(range(values.size), key=lambda i: values[i]), np.zeros(values.size, int)
    for before, i in itertools.pairwise(order):
        a, b = values[before], values[i]
        largest = max(abs(x) if np.isfinite(x) else 0.0 for x in (a, b))
        apart = b > a and b - a > 1e-9 * largest
        groups[i] = groups[before] + apart
    return groups


@quick
@given(_VALUES)
def test_tied_values_keep_their_order(values):
    order = stable_order(values)
    np.testing.assert_array_equal(order, np.argsort(groups_of(values), kind="stable"))
    # Sorting the sorted values changes nothing.
    np.testing.assert_array_equal(stable_order(values[order]), np.arange(values.size))


@quick
@given(_VALUES, st.randoms(use_true_random=False))
def test_the_order_of_values_matters_only_within_ties(values, random):
    listed = np.array(random.sample(range(values.size), values.size), int)
    groups = groups_of(values)
    one, other = stable_order(values), listed[stable_order(values[listed])]
    np.testing.assert_array_equal(groups[one], groups[other])
    if values.size:
        best = values[listed][stable_argmax(values[listed])]
        assert not exceeds(values.max(), best)
        assert not np.any(exceeds(values, best))


@quick
@given(
    st.lists(st.tuples(st.integers(-4, 4), st.integers(-9, 9)), min_size=1, max_size=12),
    st.integers(0, 2**32 - 1),
)
def test_changes_below_the_tolerance_change_no_choice(levels, seed):
    # Values that are not tied differ by a hundred times the tolerance.
    values = np.array([level * (1.0 + 1e-7 * step) for level, step in levels])
    moved = shaken(values, seed, size=4e-10)
    np.testing.assert_array_equal(stable_order(moved), stable_order(values))
    assert stable_argmax(moved) == stable_argmax(values)
    np.testing.assert_array_equal(
        exceeds(moved[:, None], moved[None]), exceeds(values[:, None], values[None])
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_first_values_of_an_order_are_those_of_the_whole_order(dtype):
    rng = np.random.default_rng(0)
    for number in (1, 3, 19, 20, 30):
        # Neighbours in a chain are tied, but its ends are not.
        chain = 1.0 + 0.7e-6 * np.arange(5) if dtype == np.float32 else 1.0 + 7e-10 * np.arange(5)
        values = rng.permutation([*chain, *rng.integers(4, size=13), np.inf, -np.inf])
        values = values.astype(dtype)
        np.testing.assert_array_equal(first_of_order(values, number), stable_order(values)[:number])
