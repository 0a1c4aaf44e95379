"""Categories may have levels that the rows of a fit did not have."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import cross_val_score

import skvt
from skvt.components import Categorical


def table():
    rng = np.random.default_rng(0)
    return pd.DataFrame({"c": rng.choice(list("aabc"), 60), "d": rng.choice(list("xy"), 60)})


def with_levels(levels):
    return pd.DataFrame({"c": levels, "d": "x"})


def fitted(prior=1.0, missing="ignore", **settings):
    blocks = [
        (name, Categorical(prior, missing=missing), [column])
        for name, column in (("first", "c"), ("second", "d"))
    ]
    settings = {"random_state": 0} | settings
    return skvt.MemoizedDPMixture(components=blocks, **settings).fit(table())


@pytest.mark.parametrize("missing", ["ignore", "informative"])
@pytest.mark.filterwarnings("ignore::skvt.ColumnWarning")
def test_an_unseen_level_has_the_share_of_one_more_level_of_the_prior(missing):
    rows = table()
    rows.loc[:1, "c"] = None
    one, other = Categorical(0.5, missing=missing), Categorical(1.0)
    blocks = [("first", one, ["c"]), ("second", other, ["d"])]
    settings = {"n_components": 2, "moves": (), "max_iter": 9, "tol": 1e-2, "random_state": 0}
    open_levels = skvt.MemoizedDPMixture(components=blocks, **settings).fit(rows)
    closed = skvt.MemoizedDPMixture(components=blocks, handle_unknown="error", **settings).fit(rows)
    # There are 58 values of three levels and 60 of two, and one more level of each.
    share, other_share = 0.5 / (58 + 4 * 0.5), 1.0 / (60 + 3 * 1.0)
    new = rows[2:9].assign(c="q")
    # Values that may be missing have a probability of being observed.
    levels = [closed.score_column(new.assign(c=level), "c") for level in "abc"]
    observed = np.logaddexp.reduce(levels)
    found = open_levels.score_column(new, "c")
    np.testing.assert_allclose(found, np.log(share) + observed, rtol=1e-9)
    # The levels of the fit have the rest of the probability.
    rest = np.log1p(-other_share) + np.where(rows["c"].isna(), 0.0, np.log1p(-share))
    found = open_levels.score_samples(rows) - closed.score_samples(rows)
    np.testing.assert_allclose(found, rest, rtol=1e-9)


@pytest.mark.parametrize("prior", [1.0, 0.2, "auto"])
@pytest.mark.filterwarnings("ignore::skvt.ColumnWarning")
def test_probabilities_of_all_levels_add_up_to_one_and_an_unseen_one_gains_nothing(prior):
    model = fitted(prior, n_components=3, moves=(), max_iter=20, tol=1e-3)
    levels = [(c, d) for c in "abcq" for d in "xyz"]
    density = model.score_samples(pd.DataFrame(levels, columns=["c", "d"])).reshape(4, 3)
    assert np.exp(density).sum() == pytest.approx(1.0, rel=1e-9)
    assert np.all(density[3] <= density[:3].min(axis=0) + 1e-12)
    assert np.all(density[:, 2] <= density[:, :2].min(axis=1) + 1e-12)


@pytest.mark.filterwarnings("ignore::skvt.ColumnWarning")
def test_a_fitted_model_may_begin_to_refuse_unseen_levels(tmp_path):
    model = fitted()
    density = model.score_samples(with_levels(["a", "q"]))
    model.set_params(handle_unknown="error")
    skvt.save(model, tmp_path / "strict.skvt")
    for strict in (model, skvt.load(tmp_path / "strict.skvt")):
        for refuse in (strict.predict, strict.impute, strict.partial_fit):
            with pytest.raises(ValueError, match="Unknown category 'q' in column 'c'"):
                refuse(with_levels(["a", "q"]))
        strict.partial_fit(table())
        strict.set_params(handle_unknown="prior").predict(with_levels(["q"]))
    with pytest.raises(ValueError, match=r"handle_unknown.*'prior', 'missing', 'error'.*'refuse'"):
        model.set_params(handle_unknown="refuse").predict(table())
    fresh = fitted().set_params(handle_unknown="error")
    assert fresh.score_samples(with_levels(["a"]))[0] == density[0]


def test_closed_levels_have_all_of_the_probability():
    model = fitted(handle_unknown="error")
    levels = [(c, d) for c in "abc" for d in "xy"]
    density = model.score_samples(pd.DataFrame(levels, columns=["c", "d"]))
    assert np.exp(density).sum() == pytest.approx(1.0, rel=1e-9)
    with pytest.raises(ValueError, match=r"Unknown category 'q' in column 'c'.*'prior'"):
        model.predict(with_levels(["q"]))


def test_each_call_warns_once_of_each_column():
    model = fitted(n_components=2, moves=(), max_iter=3, tol=1e-2)
    rows = pd.DataFrame({"c": ["q", "a", "r"], "d": ["z", "x", None]})
    calls = (
        model.predict, model.predict_proba, model.score_samples, model.score, model.impute,
        lambda X: model.score_column(X, "c"), lambda X: model.predict_column(X, "d"),
        model.partial_fit,
    )  # fmt: skip
    for call in calls:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", skvt.ColumnWarning)
            call(rows)
        texts = [str(one.message) for one in caught if one.category is skvt.ColumnWarning]
        assert [text[:10] for text in texts] == ["Column 'c'", "Column 'd'"]
        assert "'q' (2 of 3 rows)" in texts[0]
        assert caught[0].filename == __file__


def test_missing_fills_unseen_levels_in_and_makes_no_row_more_usual():
    rows = with_levels(["q", "a", "b", "c"])
    for missing in ("ignore", "informative"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = fitted(handle_unknown="missing", missing=missing, max_iter=5, tol=1e-2)
            density = model.score_samples(rows)
            filled = model.impute(rows)
        assert np.all(density[0] < density[1:])
        assert filled["c"].tolist() == ["a", "a", "b", "c"]
        drawn = model.impute(rows, n_draws=1, random_state=0)[0]
        assert drawn["c"][0] in {"a", "b", "c"}


def ratings():
    """Whole numbers that the default reads as categories, one of them in a single row."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.normal(40, 9, 90),
            "stars": np.r_[5, rng.integers(1, 5, 89)],
            "town": np.r_[["Ulm"], rng.choice(["Rom", "Bonn"], 89)],
        }
    )


@pytest.mark.filterwarnings("ignore::skvt.ColumnWarning")
def test_folds_and_streams_survive_levels_that_occur_once():
    model = skvt.MemoizedDPMixture(random_state=0, max_components=1, max_iter=2, tol=1.0)
    scores = cross_val_score(model, ratings(), cv=2, error_score="raise")
    assert np.isfinite(scores).all()
    for part in (ratings()[45:], ratings()[:45]):
        model.partial_fit(part)
    # Numbers between and beyond those of the fit are unseen levels as well.
    row = ratings()[60:61]
    known, between, beyond = (model.score(row.assign(stars=stars)) for stars in (2, 2.5, 7))
    assert np.isfinite(beyond) and beyond == between < known
