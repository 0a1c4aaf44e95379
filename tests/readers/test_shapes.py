"""Counts, real numbers and evenly spread numbers are told apart by their likelihoods."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.metrics import adjusted_rand_score

import skvt
from skvt import MemoizedDPMixture
from skvt.components import Gaussian, NegativeBinomial
from skvt.components.logarithms import prefer_cube_roots
from skvt.components.shapes import are_evenly_spread, prefer_counts

N_ROWS = 400
RNG = np.random.default_rng(0)
NORMAL = RNG.normal(size=N_ROWS)
HALF = RNG.integers(2, size=N_ROWS)
COUNTS = {
    "poisson": RNG.poisson(2.0, N_ROWS),
    "overdispersed": RNG.poisson(RNG.gamma(2.0, 10.0, N_ROWS)),
    "clusters": RNG.poisson(np.where(HALF, 8.0, 2.0)),
    "symptoms": np.minimum(RNG.poisson(RNG.gamma(1.2, 5.0, N_ROWS)), 27),
    "minutes": RNG.exponential(40.0, N_ROWS).round(),
}
OTHER_RNG = np.random.default_rng(0)
DAYS = OTHER_RNG.negative_binomial(2, np.where(HALF, 0.13, 0.33))
COUNTS["absences"] = np.where(OTHER_RNG.random(N_ROWS) < 0.5, 0, DAYS)
COUNTS["absences and a wrong value"] = np.append(COUNTS["absences"], 365)
REAL = {
    "ages": RNG.integers(90, size=N_ROWS),
    "marks": np.append((65 + 20 * NORMAL[1:]).clip(0, 100).round(), 0.0),
    "hours": RNG.integers(24, size=N_ROWS),
    "rating": RNG.binomial(10, np.where(HALF, 0.9, 0.6)) * (RNG.random(N_ROWS) > 0.02),
    "gains": np.where(RNG.random(N_ROWS) < 0.8, 0.0, np.exp(8.0 + NORMAL)).round(),
    "pixels": np.where(HALF, 200.0 + 60.0 * NORMAL, 60.0 * NORMAL).clip(0, 255).round(),
    "narrow clusters": (np.where(HALF, 40.0, 8.0) + 3.0 * NORMAL).clip(0).round(),
}


REAL |= {f"{name} and a wrong value": np.append(REAL[name], 4500) for name in ("ages", "marks")}


@pytest.mark.parametrize("name", [*COUNTS, *REAL])
def test_counts_are_told_from_ages_marks_and_ratings(name):
    values = np.asarray((COUNTS | REAL)[name], float)
    has_point_mass = name in ("gains", "pixels") or name.startswith("absences")
    assert prefer_counts(values, has_point_mass=has_point_mass) == (name in COUNTS)


@pytest.mark.parametrize(
    ("values", "is_uniform"),
    [
        (RNG.uniform(-3.0, 5.0, N_ROWS), True), (RNG.integers(1, 366, N_ROWS), True),
        (RNG.integers(1, 13, N_ROWS), True), (NORMAL, False), (5.0 * HALF + NORMAL, False),
        (RNG.exponential(size=N_ROWS), False), (RNG.beta(2.0, 2.0, N_ROWS), False),
        (HALF, False), (RNG.integers(7, size=N_ROWS), True),
        (RNG.uniform(-3.0, 5.0, N_ROWS // 4), False),  # too few to divide groups
    ],
    ids=["place", "day", "month", "normal", "two clusters", "exponential", "beta", "bits",
         "weekday", "few places"],
)  # fmt: skip
def test_evenly_spread_numbers_are_told_from_clusters(values, is_uniform):
    assert are_evenly_spread(np.asarray(values, float)) == is_uniform


@pytest.mark.parametrize(
    ("values", "is_better"),
    [
        (np.random.default_rng(0).exponential(4.0, 1000), True),
        (np.random.default_rng(0).gamma(2.0, 3.0, 1000), True),
        (1e200 * np.random.default_rng(0).gamma(2.0, 3.0, 1000), True),
        (np.random.default_rng(0).gamma(2.0, 3.0, 1000) - 0.1, False),  # some are negative
        (np.exp(NORMAL), False), (50.0 + 10.0 * NORMAL, False),
        (np.exp(2.0 * HALF + 0.5 * NORMAL), False), (20.0 + 15.0 * HALF + 4.0 * NORMAL, False),
        (RNG.uniform(1.0, 100.0, 1000), False),
        # Groups of durations after cube roots were taken.
        (np.cbrt(np.random.default_rng(0).exponential([[1.0], [3.0], [9.0]], (3, 500)).ravel()),
         False),
    ],
    ids=["exponential", "gamma", "another unit", "negative", "lognormal", "normal",
         "two lognormals", "two normals", "uniform", "cube roots of three groups"],
)  # fmt: skip
def test_cube_roots_are_preferred_for_durations_only(values, is_better):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert prefer_cube_roots(values) == is_better


def test_a_warning_names_durations_which_cube_roots_keep_in_one_group():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.gamma(1.5, 3.0, (1000, 3)), columns=["stay", "wait", "talk"])
    table["bmi"] = np.exp(rng.normal(3.3, 0.2, 1000))
    mixture = MemoizedDPMixture(random_state=0)
    with pytest.warns(skvt.ColumnWarning, match=r"'stay' .*'wait' .*'talk' .*: cube roots are"):
        mixture.fit(table)
    assert mixture.n_components_ > 1
    assert mixture.table_report_["why"].tolist()[-2:] == ["skewed: try cube roots", "numbers"]
    assert mixture.fit(table.assign(**np.cbrt(table[["stay", "wait", "talk"]]))).n_components_ == 1


def test_a_warning_names_a_column_that_is_spread_evenly():
    table, _ = people(0)
    table["day"] = np.arange(len(table)) % 365 + 1
    table["weekday"] = table["day"] % 7  # not only a possible code
    mixture = MemoizedDPMixture(max_components=1, max_iter=1, random_state=0)
    named = r"'day' \(1 to 365\), 'weekday' \(0 to 6\): numbers are spread evenly"
    with pytest.warns(skvt.ColumnWarning, match=named):
        mixture.fit(table)
    assert mixture.table_report_["why"].tolist()[-1] == "evenly spread numbers"


def people(seed):
    """Three groups of people, and their groups: counts vary more than Poisson counts."""
    rng = np.random.default_rng(seed)
    group = rng.integers(3, size=900)
    frailty = rng.gamma(2.0, 0.5, size=900)
    table = {
        "age": rng.normal(np.array([30.0, 45.0, 62.0])[group], 6.0),
        "visits": rng.poisson(np.array([2.0, 8.0, 4.0])[group] * frailty),
        "pills": rng.poisson(np.array([1.0, 3.0, 9.0])[group]),
    }
    return pd.DataFrame(table), group


def test_groups_with_counts_are_not_divided_at_the_defaults():
    table, group = people(0)
    mixture = MemoizedDPMixture(random_state=0).fit(table)
    assert mixture.n_components_ == 3
    assert adjusted_rand_score(group, mixture.labels_) > 0.8
    assert [(type(spec), columns) for _, spec, columns in mixture.blocks_] == [
        (Gaussian, ["age"]), (NegativeBinomial, ["visits", "pills"]),
    ]  # fmt: skip
    report = mixture.table_report_.set_index("column")
    assert report.loc["visits", "why"] == "counts, by their distribution"


@pytest.mark.parametrize("convert", [lambda table: table, pd.DataFrame.to_numpy])
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_numbers_that_are_no_counts_are_missing_in_new_rows(convert):
    table, _ = people(0)
    mixture = MemoizedDPMixture(3, moves=(), random_state=0).fit(table)
    as_missing = mixture.score_samples(convert(table.assign(visits=np.nan)))
    with pytest.warns(skvt.ColumnWarning, match=r"'visits' was read as counts.* 2\.5 \(900 of 900"):
        scores = mixture.score_samples(convert(table.assign(visits=2.5)))
    np.testing.assert_array_equal(scores, as_missing)
    mixture.set_params(handle_unknown="error").fit(table)
    with pytest.raises(ValueError, match=r"'visits' must have counts.* Got -1"):
        mixture.predict(convert(table.assign(visits=-1.0)))


def test_a_table_of_words_takes_numbers_that_are_not_whole():
    words = np.random.default_rng(0).poisson(1.0, (30, 4))
    mixture = MemoizedDPMixture(2, moves=(), random_state=0).fit(sp.csr_array(words))
    assert mixture.predict_proba(words + 0.5).shape == (30, 2)


@pytest.mark.parametrize("how", ["given", "stream", "array"])
def test_whole_numbers_stay_numbers_where_counts_would_be_in_the_way(how):
    table, _ = people(1)
    table["size"] = np.random.default_rng(1).normal(size=len(table))
    mixture = MemoizedDPMixture(max_components=3, max_iter=2, moves=(), random_state=0)
    if how == "stream":
        mixture.partial_fit(table)
    elif how == "given":
        mixture.set_params(given="size").fit(table)
    else:
        mixture.fit(table.to_numpy())
    (block,) = mixture.blocks_
    assert type(block[1]) is Gaussian


@pytest.mark.parametrize("mean", [12.0, 3.0])
def test_counts_with_many_more_zeros_have_a_hurdle(mean):
    rng = np.random.default_rng(2)
    cigarettes = np.where(rng.random(600) < 0.4, 0, rng.poisson(mean, 600))
    table = pd.DataFrame({"age": rng.normal(40.0, 9.0, 600), "cigarettes": cigarettes})
    mixture = MemoizedDPMixture(random_state=0).fit(table)
    (spec,) = (spec for _, spec, columns in mixture.blocks_ if columns == ["cigarettes"])
    assert repr(spec) == "Hurdle(component=NegativeBinomial())"
    assert mixture.n_components_ == 1


@pytest.mark.parametrize("is_whole", [False, True])
def test_few_zeros_among_amounts_have_a_hurdle_and_make_no_group(is_whole):
    rng = np.random.default_rng(3)
    group = rng.integers(3, size=900)
    balance = np.exp(rng.normal(np.array([8.0, 12.0, 15.0])[group], 1.0))
    balance[rng.random(900) < 0.03] = 0.0
    age = rng.normal(40.0 + 10.0 * group, 4.0)
    table = pd.DataFrame({"balance": balance.round() if is_whole else balance, "age": age})
    mixture = MemoizedDPMixture(random_state=0).fit(table)
    assert [(name, columns) for name, _, columns in mixture.blocks_] == [
        ("numbers", ["age"]), ("amounts", ["balance"]),
    ]  # fmt: skip
    assert mixture.n_components_ == 3
    assert adjusted_rand_score(group, mixture.labels_) > 0.85
    # Logarithms gain little in columns that are hardly skewed, which stay with the others.
    little_skewed = np.where(balance > 0.0, rng.gamma(4.0, 1.0, 900), 0.0)
    few_passes = MemoizedDPMixture(max_iter=1, max_components=1, random_state=0)
    (block,) = few_passes.fit(table.assign(balance=little_skewed)).blocks_
    assert block[2] == ["balance", "age"]
