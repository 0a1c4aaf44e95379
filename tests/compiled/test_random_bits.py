"""Random numbers of compiled loops follow the laws of SciPy and are independent.

A p value below 1e-5 fails. About a hundred are computed, so that one seed in a thousand fails.
"""

from itertools import islice

import numpy as np
import pytest
from _entrances import entrance
from scipy import stats as laws

from skvt._compiled import _random_bits as bits
from skvt.models.lda import _sampling as sampling

fill_normals, draw_gamma = entrance(bits.fill_normals), entrance(bits.draw_gamma)
normal_pair, make_normals = entrance(bits.draw_normal_pair), entrance(bits.make_normals)
propose_gamma, _draw_gammas_exactly = (
    entrance(bits.propose_gamma),
    entrance(bits.draw_gammas_exactly),
)
resample, uniform = entrance(bits.resample), entrance(bits.uniform)
make_uniform_float32, make_uniform_pair = (
    entrance(bits.make_uniform_float32),
    entrance(bits.make_uniform_pair),
)

N = 20_000
ALARM = 1e-5


def draw_gammas_exactly(shapes, drawn, normals, out):
    n = shapes.size
    numbers, words, places = np.empty((5, n)), np.empty((2, n), np.uint64), np.empty((2, n), int)
    numbers[0], numbers[1], words[0] = shapes, normals, drawn
    _draw_gammas_exactly(n, numbers, words, places)
    out[:] = numbers[2]


def follows(x, law):
    assert laws.kstest(x, law).pvalue > ALARM


def unrelated(*columns):
    """Columns, their distances from the median and neighbours in a column are uncorrelated."""
    ranks = laws.rankdata(columns, axis=1) / len(columns[0]) - 0.5
    for values in (ranks, np.abs(ranks)):
        both = np.concatenate([values[:, 1:], values[:, :-1]])
        correlation = np.corrcoef(both) - np.eye(len(both))
        assert np.abs(correlation).max() < 4.5 / len(columns[0]) ** 0.5


def words(seed, n=N):
    """n words of 64 random bits, as SplitMix64 makes them of a seed (Steele et al. 2014)."""
    z = np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15) * np.arange(1, n + 1, dtype=np.uint64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def test_random_bits_are_those_of_splitmix64():
    states = np.uint64(7) + bits.GOLDEN * np.arange(1, 51, dtype=np.uint64)
    np.testing.assert_array_equal([bits.mix(state) for state in states], words(7, 50))
    # The published program gives this number for the seed 1234567.
    assert words(1234567, 1)[0] == 6457827717110365317


@pytest.mark.parametrize("seed", [0, 1, 2**63])
def test_random_bits_give_uniform_numbers(seed):
    drawn = words(seed)
    double, single = ([function(x) for x in drawn] for function in (uniform, make_uniform_float32))
    assert all(0.0 <= x < 1.0 for x in (*double, *single))
    first, second = np.transpose([make_uniform_pair(x) for x in drawn])
    assert min(*first, *second) > 0.0 and max(*first, *second) <= 1.0
    for x in (double, single, first, second):
        follows(x, "uniform")
    unrelated(double, second)
    # The last digits vary, too.
    follows(np.array(double) * 2.0**20 % 1.0, "uniform")
    follows(np.array(second) * 2.0**10 % 1.0, "uniform")


def test_the_smallest_and_largest_uniform_numbers_are_as_documented():
    none, every = np.uint64(0), np.uint64(2**64 - 1)
    assert uniform(none) == make_uniform_float32(none) == 0.0
    assert uniform(every) == 1.0 - 2.0**-53 and make_uniform_float32(every) == 1.0 - 2.0**-24
    # A logarithm is taken of these numbers.
    assert make_uniform_pair(none) == (2.0**-24, 2.0**-24) and make_uniform_pair(every) == (
        1.0,
        1.0,
    )


def test_neighbouring_seeds_give_independent_numbers():
    seeds = sampling.seed_rows(np.uint64(3), np.arange(N))
    assert len(set(seeds.tolist())) == N
    other = sampling.seed_rows(np.uint64(4), np.arange(N))
    columns = [
        [uniform(np.uint64(bits.mix(state))) for state in some + bits.GOLDEN]
        for some in (seeds, other)
    ]
    for x in columns:
        follows(x, "uniform")
    unrelated(*columns)


@pytest.mark.slow
def test_normal_variates_follow_the_normal_law():
    pairs, state = np.empty((N, 2)), np.uint64(5)
    for pair in pairs:
        pair[0], pair[1], state = normal_pair(np.uint64(state))
    of_bits = np.array([make_normals(x) for x in words(6)])
    for x in (*pairs.T, *of_bits.T):
        follows(x, "norm")
    # The radius and the angle of a pair are independent.
    for x, y in (pairs.T, of_bits.T):
        follows(np.hypot(x, y), laws.rayleigh.cdf)
        follows(np.arctan2(y, x) / (2.0 * np.pi) + 0.5, "uniform")
        unrelated(x, y)


def test_a_row_is_filled_with_normal_variates_except_an_odd_entry():
    out = np.full((N // 8, 9), 7.0, np.float32)
    for row, state in zip(out, words(8), strict=False):
        fill_normals(state, row)
    assert np.all(out[:, 8] == 7.0)
    follows(out[:, :8].ravel(), "norm")
    unrelated(*out[:, :8].T)


@pytest.mark.slow
@pytest.mark.quick_cases("0.3")
@pytest.mark.parametrize("a", [1e-6, 0.3, 4.0, 1e3, 1e9])
def test_gamma_variates_follow_the_gamma_law(a):
    one, state = np.empty(N), np.uint64(9)
    for i in range(N):
        one[i], state = draw_gamma(a, np.uint64(state))
    law = laws.gamma(a + 1.0)
    follows(one, law.cdf)
    unrelated(one)
    # Many variates are drawn together from given proposals.
    rng = np.random.default_rng(10)
    drawn, normals = words(11), rng.standard_normal(N).astype(np.float32)
    many = np.empty(N)
    draw_gammas_exactly(np.full(N, a), drawn, normals, many)
    follows(many, law.cdf)
    # The remaining bits turn it into a variate of shape a, and must be independent of it.
    boost = np.array([make_uniform_pair(x)[0] for x in drawn], float)
    unrelated(many, boost)
    if a < 1e3:
        logs = np.log(many) + np.log(boost) / a
        floor = -600.0
        below = laws.gamma(a).cdf(np.exp(floor))
        u = np.where(logs < floor, below * rng.random(N), laws.gamma(a).cdf(np.exp(logs)))
        # A number of 24 bits may be almost 1.
        assert laws.kstest(u, "uniform").pvalue > ALARM


def test_proposals_that_pass_the_cheap_test_are_accepted():
    rng = np.random.default_rng(12)
    shapes = rng.choice([0.01, 0.5, 3.0, 200.0], size=N)
    normals = rng.standard_normal(N).astype(np.float32)
    drawn, out = words(13), np.empty(N)
    draw_gammas_exactly(shapes, drawn, normals, out)
    n_sure = 0
    for a, x, z, settled in islice(zip(shapes, drawn, normals, out, strict=True), 4_000):
        value, doubtful = propose_gamma(a, z, make_uniform_pair(x)[1])
        if not doubtful:
            n_sure += 1
            assert value == pytest.approx(settled, rel=1e-6)
    assert n_sure > 3_400


@pytest.mark.parametrize("a", [1e-6, 2.0])
def test_variates_after_a_refusal_follow_the_gamma_law(a):
    # The refusal of a first proposal says much about its random numbers.
    n = 1_000_000
    drawn, normals = words(14, n), np.random.default_rng(15).standard_normal(n).astype(np.float32)
    # This is the condition of Marsaglia and Tsang (2000) for the second number of the bits.
    test = ((drawn >> np.uint64(16)) & np.uint64(0xFFFFFF)).astype(float) / 2.0**24
    d, z = a + 2.0 / 3.0, normals.astype(float)
    v = np.maximum(1.0 + z / np.sqrt(9.0 * d), 1e-9) ** 3
    refused = np.log(np.maximum(test, 1e-9)) > 0.5 * z**2 + d - d * v + d * np.log(v) + 1e-6
    drawn, normals = drawn[refused], normals[refused]
    assert 10_000 < drawn.size < 0.1 * n
    out = np.empty(drawn.size)
    draw_gammas_exactly(np.full(drawn.size, a), drawn, normals, out)
    follows(out, laws.gamma(a + 1.0).cdf)


def test_a_gamma_variate_of_shape_nan_is_nan():
    value, _ = draw_gamma(np.nan, np.uint64(1))
    assert np.isnan(value)


@pytest.mark.parametrize("u", [0.0, 0.3, 0.999])
def test_resampling_is_systematic(u):
    weight = np.array([0.5, 0.0, 2.0, 0.25, 0.0, 1.0, 4.0, 0.25])
    source = np.full(8, -1)
    resample(weight, u, source)
    cumulative = np.cumsum(weight) / weight.sum()
    np.testing.assert_array_equal(source, np.searchsorted(cumulative, (np.arange(8) + u) / 8.0))
