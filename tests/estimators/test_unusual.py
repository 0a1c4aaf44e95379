"""The report of unusual rows has scores by densities and names planted rows."""

from copy import copy

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.metrics import roc_auc_score

import skvt
from skvt._results import unusual
from skvt.components import Categorical, Gaussian, Hurdle, NegativeBinomial, Poisson
from skvt.models.mixture import Mixture


@pytest.fixture(scope="module")
def table():
    """Two kinds of people: height depends on sex, and so does a count."""
    rng = np.random.default_rng(0)
    is_tall = rng.integers(2, size=300)
    return pd.DataFrame(
        {
            "height": 165 + 15 * is_tall + 4 * rng.normal(size=300),
            "sex": np.where(is_tall == 1, "m", "f"),
            "games": rng.poisson(3 + 6 * is_tall),
        }
    )


@pytest.fixture(scope="module")
def mixture(table):
    return skvt.MemoizedDPMixture(max_components=4, random_state=0).fit(table)


def test_the_score_is_a_density_and_a_ratio_to_independent_columns(mixture, table):
    alone = []
    for column in table:
        others = table.copy()
        for other in table.columns.drop(column):
            others[other] = None if other == "sex" else np.nan
        alone.append(mixture.score_samples(others))
    expected = sum(alone) / 3.0 - mixture.score_samples(table)
    report = skvt.unusual_rows(mixture, table, n=1000)
    assert mixture.n_components_ == 2 and len(report) == len(table)
    assert report["score"].is_monotonic_decreasing
    np.testing.assert_allclose(report["score"], (expected - expected.mean())[report["row"]])


def test_rows_of_few_categories_are_in_order_of_scores():
    """If most rows are equal, quantiles of their scores are equal, and so is their distance."""
    rng = np.random.default_rng(0)
    rare = {"a": 0.03, "b": 0.02, "c": 0.05}
    rows = pd.DataFrame({name: np.where(rng.random(400) < p, "x", "y") for name, p in rare.items()})
    mixture = skvt.MemoizedDPMixture(max_components=2, random_state=0).fit(rows)
    report = skvt.unusual_rows(mixture, rows, n=30)
    assert report["score"].is_monotonic_decreasing and report["score"].nunique() > 2


def test_a_slip_and_a_wrong_combination_are_named(mixture, table):
    rows = table.copy()
    rows.loc[5, "height"] = 17.0
    rows.loc[9, ["height", "sex", "games"]] = [180.0, "f", 9]
    report = skvt.unusual_rows(mixture, rows, n=5).set_index("row")
    assert report.loc[5, "column"] == "height" and report.loc[5, "value"] == 17.0
    assert abs(report.loc[5, "expected"] - table.loc[5, "height"]) < 15.0
    assert tuple(report.loc[9, ["column", "value", "expected"]]) == ("sex", "f", "m")


@pytest.mark.parametrize("missing", ["ignore", "informative"])
def test_an_amount_that_is_far_too_small_is_unusual_by_its_logarithm(missing):
    rng = np.random.default_rng(0)
    logs = pd.DataFrame(rng.normal(size=(400, 2)) + 3 * rng.integers(2, size=(400, 1)))
    logs.columns = names = ["income", "rent"]
    logs.loc[7, "income"] = logs["income"].mean() - np.log(1000.0)
    logs.loc[20:60, "rent"] = np.nan
    reports = []
    for table, log in (np.exp(logs), names), (logs, None):
        numbers = Gaussian("full", log=log, missing=missing)
        components = [("numbers", numbers, names)]
        mixture = skvt.MemoizedDPMixture(components=components, random_state=0).fit(table)
        reports.append(skvt.unusual_rows(mixture, table, n=400))
    of_amounts, of_logs = reports
    assert tuple(of_amounts.loc[0, ["row", "column"]]) == (7, "income")
    np.testing.assert_allclose(of_amounts["score"], of_logs["score"])
    np.testing.assert_array_equal(of_amounts["row"], of_logs["row"])


@pytest.mark.filterwarnings("ignore::skvt.ColumnWarning", "ignore:X does not have valid")
@pytest.mark.parametrize("convert", [lambda rows: rows, pd.DataFrame.to_numpy])
def test_a_level_that_the_fit_did_not_have_is_shown_as_it_is(mixture, table, convert):
    rows = table.copy()
    rows.loc[5, "sex"] = "male"
    found = skvt.unusual_rows(mixture, convert(rows), n=300).set_index("row").loc[5]
    assert tuple(found[["column", "value", "expected"]]) == ("sex", "male", table.loc[5, "sex"])


def test_levels_that_count_as_missing_are_not_at_fault(mixture, table):
    rows = table.copy()
    rows.loc[5, "sex"] = "male"
    lenient = skvt.MemoizedDPMixture(2, moves=(), random_state=0, handle_unknown="missing")
    lenient.fit(table)
    report = skvt.unusual_rows(lenient, rows, n=300)
    rows.loc[5, "sex"] = None
    as_missing = skvt.unusual_rows(lenient, rows, n=300)
    pd.testing.assert_frame_equal(report, as_missing)


def test_missing_values_do_not_make_a_row_usual_or_unusual(mixture, table):
    """Rows with missing values are as often among the worst half as other rows are."""
    rows, specs = table.copy(), {"height": Gaussian(), "sex": Categorical()}
    rows.loc[::2, "games"] = np.nan
    for missing in ("ignore", "informative"):
        specs["games"] = Poisson(missing=missing)
        columns = [(name, spec, [name]) for name, spec in specs.items()]
        fit = skvt.MemoizedDPMixture(2, components=columns, moves=(), random_state=0).fit(rows)
        worst = skvt.unusual_rows(fit, rows, n=150)["row"]
        assert 0.35 < np.mean(worst % 2 == 0) < 0.65


def test_new_rows_are_compared_with_the_rows_of_a_reference(mixture, table):
    def scores(rows, **options):
        return skvt.unusual_rows(mixture, rows, n=1000, **options).sort_values("row")["score"]

    new, known = table[:8].assign(height=lambda rows: rows["height"] + 90.0), table[8:]
    np.testing.assert_allclose(scores(known, reference=known), scores(known))
    of_new = scores(new, reference=known)
    np.testing.assert_allclose(of_new[:1], scores(new[:1], reference=known))
    assert of_new.min() > scores(known).max()
    assert scores(new[:1]).tolist() == [0.0]
    # The calibration of missing values takes them from rows of the reference.
    with_missing = known.assign(games=known["games"].where(known.index > 40))
    np.testing.assert_allclose(scores(with_missing, reference=with_missing), scores(with_missing))


@pytest.mark.parametrize("value", [1e4, 1e14, 1e17, 1e20])
def test_a_count_that_is_far_too_large_is_unusual(mixture, table, value):
    rows = table.assign(games=table["games"].astype(float).where(table.index != 7, value))
    counts = [("all", Poisson(), ["games"]), ("size", Gaussian(), ["height"])]
    for components in ([("all", NegativeBinomial(), ["games"]), counts[1]], counts):
        fitted = skvt.MemoizedDPMixture(2, components=components, moves=(), random_state=0)
        worst = skvt.unusual_rows(fitted.fit(table), rows, n=1, reference=table)
        assert tuple(worst.loc[0, ["row", "column"]]) == (7, "games")
        assert np.isfinite(worst.loc[0, "score"])


def test_rows_of_a_small_component_are_unusual():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3)) + 10 * rng.integers(2, size=400)[:, None]
    X[:8, 1] += 40.0
    fit = skvt.MemoizedDPGMM(max_components=4, random_state=0).fit(X)
    # The slips have a component of their own.
    assert max(fit.score_samples(X[:8])) > -10.0
    worst = skvt.unusual_rows(fit, X, n=8)
    assert set(worst["row"]) == set(range(8)) and set(worst["column"]) == {1}


def test_rows_of_a_rare_group_are_usual_and_their_errors_are_not():
    rng = np.random.default_rng(0)
    is_rare = np.arange(1000) < 30
    X = rng.normal(size=(1000, 3)) + 12.0 * is_rare[:, None]
    X[[4, 500], [1, 2]] += [9.0, 9.0]
    fit = skvt.MemoizedDPGMM(random_state=0).fit(X)
    worst = skvt.unusual_rows(fit, X, n=10)
    assert set(worst["row"][:2]) == {4, 500}
    assert np.count_nonzero(worst["row"] < 30) <= 3


def test_the_unit_of_a_column_with_a_point_mass_does_not_matter():
    """Hours of work, in hours or in thousands of hours."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    X[:, 0] = np.where(rng.random(300) < 0.4, 0.0, 1000.0 + 200.0 * X[:, 0] + 200.0 * X[:, 1])
    blocks = [("work", Hurdle(Gaussian("diag")), [0]), ("rest", Gaussian("diag"), [1, 2])]
    reports = []
    for unit in (1.0, 1000.0):
        rows = X / [unit, 1.0, 1.0]
        mixture = skvt.MemoizedDPMixture(components=blocks, random_state=0).fit(rows)
        reports.append(skvt.unusual_rows(mixture, rows, n=30))
    for name in ("row", "column"):
        assert reports[0][name].tolist() == reports[1][name].tolist()
    np.testing.assert_allclose(reports[0]["score"], reports[1]["score"], atol=1e-6)


def test_sparse_rows_are_reported_as_dense_ones():
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=200)
    X = (rng.random((200, 16)) < np.where(kind, 0.95, 0.05)[:, None]).astype(float)
    X[:10] = rng.integers(2, size=(10, 16))
    fit = skvt.StructuredBernoulliMixture(8, random_state=0).fit(X)
    dense = skvt.unusual_rows(fit, X, n=200)
    pd.testing.assert_frame_equal(dense, skvt.unusual_rows(fit, sp.csr_array(X), n=200))
    score = dense.set_index("row")["score"].sort_index()
    assert roc_auc_score(np.arange(200) < 10, score) > 0.95


def test_single_wrong_values_in_many_columns_come_first():
    rng = np.random.default_rng(0)
    X = 2.0 * rng.normal(size=(2, 80))[rng.integers(2, size=200)] + rng.normal(size=(200, 80))
    X[np.arange(5), 16 * np.arange(5)] += 7.0
    fit = skvt.MemoizedDPGMM(covariance_type="diag", random_state=0).fit(X)
    report = skvt.unusual_rows(fit, X, n=200)
    assert sorted(report["row"][:5]) == [0, 1, 2, 3, 4]
    assert report.set_index("row")["column"][:5].sort_index().tolist() == [0, 16, 32, 48, 64]
    # The sum over all columns varies so much that a wrong value need not have a large score.
    assert report["score"][:5].min() < report["score"][5:].max()


def test_a_row_without_values_names_no_column(mixture, table):
    rows = table.copy().astype(object)
    rows.loc[3] = None
    with pytest.warns(UserWarning, match="1 of 300 rows have NaN only"):
        report = skvt.unusual_rows(mixture, rows, n=300).set_index("row")
    assert report.loc[3, "column"] is None and abs(report.loc[3, "score"]) < 2.0


def test_illegal_numbers_and_other_estimators_are_refused(mixture, table):
    for n in (0, 2.5, "all"):
        with pytest.raises(ValueError, match=r"n must be an int in the range \[1, inf\)"):
            skvt.unusual_rows(mixture, table, n=n)
    # A request without records has n=len(rows).
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        skvt.unusual_rows(mixture, table.iloc[:0], n=0)
    with pytest.raises(
        TypeError, match=r"unusual_rows takes a MemoizedDPMixture.*Got.*TemperedLDA"
    ):
        skvt.unusual_rows(skvt.TemperedLDA(), table)


def test_the_density_of_equal_values_is_computed_once(mixture, table, monkeypatch):
    """Of all rows, each column alone, no column, and the rows without each column."""
    n_rows, log_predictive = [], Mixture.log_predictive

    def counted(model, X, *args):
        n_rows.append(len(X))
        return log_predictive(model, X, *args)

    monkeypatch.setattr(Mixture, "log_predictive", counted)
    skvt.unusual_rows(mixture, table, n=len(table))
    alone = [table[column].nunique() for column in table]
    others = [len(table.drop(columns=column).drop_duplicates()) for column in table]
    assert sum(n_rows) == len(table.drop_duplicates()) + sum(alone) + 1 + sum(others)


@pytest.mark.parametrize(("most", "n_calls"), [(2**21, 1), (2 * 300 * 3, 2), (1, 3)])
def test_worst_rows_without_each_column_are_scored_at_once(
    mixture, table, monkeypatch, most, n_calls
):
    expected = skvt.unusual_rows(mixture, table, n=300)
    calls, log_predictive = [], Mixture.log_predictive
    monkeypatch.setattr(unusual, "ENTRIES_AT_ONCE", most)
    monkeypatch.setattr(
        Mixture, "log_predictive", lambda *args: calls.append(args) or log_predictive(*args)
    )
    pd.testing.assert_frame_equal(skvt.unusual_rows(mixture, table, n=300), expected)
    # All columns, no column and each of the three columns alone take five calls.
    assert len(calls) == 5 + n_calls


def test_the_search_reports_its_progress_as_a_fit_does(mixture, table, slow_down, capsys):
    slow_down(Mixture, "log_predictive", 0.1)
    skvt.unusual_rows(mixture, table, n=1)
    assert capsys.readouterr().out == ""
    loud = copy(mixture).set_params(verbose=1)
    skvt.unusual_rows(loud, table, n=1)
    line = "unusual rows: computing densities of each column, 1 of 3 done, for 0 s\n"
    assert line in capsys.readouterr().out
