"""Profiles show relevances of columns as colours, and estimates of components as texts."""

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import NotFittedError

from skvt import MemoizedDPGMM, MemoizedDPMixture, TemperedLDA
from skvt.components import Gaussian
from skvt.plotting import ProfilesDisplay


def frame(n_each=1, n_clusters=3, n_rows=240):
    """A mixture that is fitted to columns of four kinds, ``n_each`` columns of each kind."""
    rng = np.random.default_rng(0)
    kind = np.sort(rng.integers(n_clusters, size=n_rows))
    columns = {}
    for j in range(n_each):
        columns[f"length {j}"] = rng.normal(2_000.0 - 9.0 * kind, 1.5)
        columns[f"place {j}"] = np.array(["north", "a far away country", "south"])[kind % 3]
        columns[f"open {j}"] = rng.random(n_rows) < np.array([0.02, 0.5, 0.9])[(kind + j) % 3]
        columns[f"visits {j}"] = rng.poisson(np.array([1.0, 9.0, 40.0])[(kind - j) % 3])
    names = list(columns)
    blocks = [("sizes", Gaussian("diag"), names[::4]), ("places", "categorical", names[1::4]),
              ("flags", "bernoulli", names[2::4]), ("counts", "poisson", names[3::4])]  # fmt: skip
    mixture = MemoizedDPMixture(n_clusters, components=blocks, moves=(), max_iter=20)
    return mixture.set_params(random_state=0).fit(pd.DataFrame(columns))


@pytest.fixture(scope="module")
def mixture():
    return frame()


def shown(display):
    """The texts of the components, without ``texts_[0]``, which describes the whole table."""
    rows = [[None if text is None else text.get_text() for text in row] for row in display.texts_]
    return rows[1:]


def test_colours_are_relevances_and_texts_are_estimates(mixture):
    display = ProfilesDisplay.from_estimator(mixture)
    order = np.argsort(-mixture.weights_)
    np.testing.assert_array_equal(display.components_, order)
    names = [(block, name) for block, _, columns in mixture.blocks_ for name in columns]
    means = mixture.weights_ @ mixture.column_relevance_
    places = np.argsort(-means)
    assert display.columns_ == [names[j] for j in places]
    relevance = np.maximum(mixture.column_relevance_[order][:, places], 0.0)
    assert_allclose(abs(display.image_.get_array()[1:]), relevance, rtol=1e-6)
    assert not display.image_.get_array()[0].any()
    labels = [text.get_text() for text in display.ax_.get_xticklabels()]
    assert labels == [name for _, name in display.columns_]
    entries = mixture.describe().to_dict("records")
    table = {(e["component"], e["column"], e["quantity"]): e["estimate"] for e in entries}
    for k, row in zip(order, shown(display), strict=True):
        length, place, opened, visits = (row[list(places).index(j)] for j in range(4))
        # The rounding error is less than a standard deviation, and no digit is useless.
        deviation = table[k, "length 0", "standard deviation"]
        assert abs(float(length) - table[k, "length 0", "mean"]) < deviation / 3.0
        assert len(length) == len("1991.1")
        category, probability = place.split("\n")
        of_places = [e for e in entries if (e["component"], e["block"]) == (k, "places")]
        best = max(of_places, key=lambda e: e["estimate"])
        assert best["category"].startswith(category.removesuffix("…")) and len(category) > 4
        assert float(probability) == pytest.approx(best["estimate"], abs=0.005)
        assert float(opened) == pytest.approx(table[k, "open 0", "probability"], abs=0.005)
        assert float(visits) == pytest.approx(table[k, "visits 0", "rate"], abs=1.0)
    clusters = ProfilesDisplay.from_estimator(mixture, n_clusters=2)
    relevance = mixture.column_relevance(2).to_numpy()[clusters.components_][:, places]
    relevance = np.maximum(relevance, 0.0)
    order = [clusters.columns_.index(names[j]) for j in places]
    assert_allclose(abs(clusters.image_.get_array()[1:, order]), relevance)
    assert sorted(clusters.components_) == [0, 1]
    assert clusters.ax_.get_ylabel() == "cluster and its weight"
    again = ProfilesDisplay(mixture.describe().to_dict("list")).plot(
        components=[2, 0], columns=["visits 0", "place 0"], image_kw={"vmin": -1.0, "vmax": 2.0}
    )
    assert_allclose(abs(again.image_.get_array()[1:]), mixture.column_relevance_[[2, 0]][:, [3, 1]])
    assert again.image_.get_clim() == (-1.0, 2.0)


@pytest.mark.quick_cases("1-2")
@pytest.mark.parametrize(("n_each", "n_clusters"), [(1, 2), (12, 3), (2, 20)])
@pytest.mark.filterwarnings("ignore::skvt.ColumnWarning")
def test_texts_stay_in_their_cells_and_all_numbers_are_shown(n_each, n_clusters):
    fitted = frame(n_each, n_clusters, n_rows=40 * n_clusters)
    display = ProfilesDisplay.from_estimator(fitted)
    display.figure_.draw_without_rendering()
    cell = display.ax_.transData.transform([[-0.5, 0.5], [0.5, -0.5]])
    width, height = np.abs(np.diff(cell, axis=0))[0]
    for text in display.texts_.ravel():
        assert text is not None and text.get_fontsize() >= 6.0
        extent = text.get_window_extent()
        assert extent.width <= width and extent.height <= height
    # A text that does not fit is left out.
    _, ax = plt.subplots()
    large = ProfilesDisplay.from_estimator(fitted, ax=ax, text_kw={"fontsize": 99})
    assert large.ax_ is ax
    assert all(text is None for text in large.texts_.ravel())


def described(relevance, weights, means, names):
    """The table of ``describe`` for columns of counts in blocks of two columns."""
    entries = [
        (k, weight, f"block {j // 2}", name, "rate", None, means[k][j], relevance[k][j])
        for k, weight in enumerate(weights)
        for j, name in enumerate(names)
    ]
    header = ("component", "weight", "block", "column", "quantity", "category", "estimate",
              "relevance")  # fmt: skip
    return dict(zip(header, map(list, zip(*entries, strict=True)), strict=True))


def test_the_whole_table_is_on_top_and_the_most_relevant_columns_come_first():
    relevance = [[1.0, 2.0, 0.0, 5.0], [3.0, 2.5, -0.1, 1.0]]
    rates = [[10.0, 1.0, 4.0, 100.0], [20.0, 1.0, 8.0, 500.0]]
    table = described(relevance, [0.75, 0.25], rates, list("abcd"))
    display = ProfilesDisplay(table).plot()
    # The mean relevances are 1.5, 2.125, -.025 and 4.
    assert [name for _, name in display.columns_] == ["d", "c", "b", "a"]
    whole = [float(text.get_text()) for text in display.texts_[0]]
    assert_allclose(whole, [200.0, 5.0, 1.0, 12.5], rtol=0.05)
    assert [text.get_text() for text in display.ax_.get_yticklabels()][:1] == ["all"]
    # A rate below the mean of all rows has a minus sign, and a negative relevance no colour.
    assert_allclose(display.image_.get_array()[1], [-5.0, -0.0, 0.0, -1.0])
    assert_allclose(display.image_.get_array()[2], [1.0, 0.0, 0.0, 3.0])
    fewer = ProfilesDisplay(table).plot(max_columns=3)
    assert [name for _, name in fewer.columns_] == ["d", "b", "a"]
    assert fewer.ax_.get_xlabel() == "1 less relevant columns not shown"
    assert not display.ax_.get_xlabel()


def test_small_components_have_their_columns_among_few():
    # the large component has the three largest mean relevances, the small ones a column each
    relevance = np.array([[3.0, 2.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 4.0, 0.0], [0.01] * 5])
    relevance[2, 4] = 5.0
    table = described(relevance, [0.97, 0.02, 0.01], np.ones((3, 5)), list("abcde"))
    shown = {name for _, name in ProfilesDisplay(table).plot(max_columns=3).columns_}
    assert shown == {"a", "d", "e"}
    shown = {name for _, name in ProfilesDisplay(table).plot(max_columns=4).columns_}
    assert shown == {"a", "b", "d", "e"}
    of_two = ProfilesDisplay(table).plot(components=[0, 1], max_columns=3).columns_
    assert {name for _, name in of_two} == {"a", "b", "d"}


def test_rates_of_a_large_exposure_are_told_apart():
    rates = [[0.0135, 0.1], [0.0045, 1.0], [0.003, 4.0]]
    table = described(np.ones((3, 2)), [0.4, 0.3, 0.3], rates, ["a", "b"])
    texts = shown(ProfilesDisplay(table).plot(columns=["a", "b"]))
    assert_allclose([float(row[0]) for row in texts], [r[0] for r in rates], rtol=0.15)
    assert len({row[0] for row in texts}) == len({row[1] for row in texts}) == 3


def test_one_relevant_cell_does_not_make_the_others_pale():
    relevance = np.full((3, 4), 2.0)
    relevance[1, 2] = 5_000.0
    rates = np.ones((3, 4)) + np.eye(3, 4)
    usual = ProfilesDisplay(described(relevance, [0.4, 0.3, 0.3], rates, list("abcd"))).plot()
    assert usual.image_.norm(2.0) > 0.9 and usual.image_.norm(-2.0) < 0.1
    assert usual.image_.colorbar.extend == "both"
    relevance = np.full((3, 4), 0.001)
    relevance[1, 2] = 5_000.0
    noise = ProfilesDisplay(described(relevance, [0.4, 0.3, 0.3], rates, list("abcd"))).plot()
    assert noise.image_.norm(0.001) < 0.6


@pytest.mark.parametrize("n_columns", [20])
def test_long_names_leave_room_for_the_table(n_columns):
    names = [f"{j:02d} satisfied with the last journey"[:33] for j in range(n_columns)]
    table = described(np.ones((2, n_columns)), [0.5, 0.5], np.ones((2, n_columns)), names)
    fig, ax = plt.subplots(layout="constrained")
    display = ProfilesDisplay(table).plot(ax)
    fig.draw_without_rendering()
    assert ax.get_window_extent().height > 0.5 * fig.bbox.height
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert len(set(labels)) == n_columns and [name for _, name in display.columns_] == names


def test_names_do_not_overlap_and_are_horizontal_if_they_fit():
    names = [f"G{j:03d}" for j in range(50)]
    table = described(np.ones((2, 50)), [0.5, 0.5], np.ones((2, 50)), names)
    fig, ax = plt.subplots(figsize=(3.5, 2.6), layout="constrained")
    display = ProfilesDisplay(table).plot(ax)
    fig.draw_without_rendering()
    labels = ax.get_xticklabels()
    assert {label.get_rotation() for label in labels} == {90.0}
    boxes = [label.get_window_extent() for label in labels]
    assert all(a.x1 < b.x0 for a, b in pairwise(boxes))
    n_shown = len(display.columns_)
    assert 5 < n_shown < 50
    assert ax.get_xlabel() == f"{50 - n_shown} less relevant columns not shown"
    fig, ax = plt.subplots(figsize=(7.0, 2.6), layout="constrained")
    ProfilesDisplay(table).plot(ax, columns=names[:3])
    assert {label.get_rotation() for label in ax.get_xticklabels()} == {0.0}


def test_a_column_has_all_of_its_numbers_or_none():
    rng = np.random.default_rng(0)
    centres = np.array([[2.5, -2.5], [-1.5, 1.5]]).repeat(8, axis=1)
    X = centres[rng.integers(2, size=200)] + rng.normal(size=(200, 16))
    mixture = MemoizedDPGMM(2, covariance_type="diag", moves=(), random_state=0).fit(X)
    n_texts = set()
    for width in (3.5, 4.5, 5.5, 6.5):
        _, ax = plt.subplots(figsize=(width, 2.6), layout="constrained")
        display = ProfilesDisplay.from_estimator(mixture, ax=ax)
        n_texts |= set(np.sum(display.texts_ != None, axis=0).tolist())  # noqa: E711
    assert n_texts == {0, 3}


def test_components_without_means_show_their_deviations():
    X = np.random.default_rng(0).normal(size=(60, 2)) * [1.0, 1e4]
    mixture = MemoizedDPGMM(1, mean_type="zero", moves=(), random_state=0).fit(X)
    deviations = mixture.describe()["estimate"]
    texts = shown(ProfilesDisplay.from_estimator(mixture))[0]
    assert [text[0] for text in texts] == ["±", "±"]
    assert_allclose([float(text[1:]) for text in texts], deviations, rtol=0.2)


def test_profiles_refuse_bad_input(mixture):
    for draw, message in [
        (lambda: ProfilesDisplay.from_estimator(mixture, columns=["size"]), "Got 'size' instead"),
        (lambda: ProfilesDisplay.from_estimator(mixture, columns=[]), r"Got \[\] instead"),
        (lambda: ProfilesDisplay.from_estimator(mixture, components=[3]), r"range \[0, 3\)"),
        (lambda: ProfilesDisplay.from_estimator(
            TemperedLDA(2, max_iter=1).fit(np.ones((3, 2)))), "Pass a mixture that describes"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=message):
            draw()
    with pytest.raises(NotFittedError):
        ProfilesDisplay.from_estimator(MemoizedDPMixture())
    assert not plt.get_fignums(), "no empty figure"


@pytest.mark.parametrize("layout", ["constrained", "tight"])
def test_names_leave_room_for_the_table_in_a_column_of_a_paper(layout):
    long_name = "satisfaction with the way democracy works"
    relevance = np.abs(np.random.default_rng(0).normal(size=(4, 4)))
    table = described(relevance, [0.25] * 4, relevance, [long_name, "age", "votes", "children"])
    figure, ax = plt.subplots(figsize=(3.4, 2.6), layout=layout)
    ProfilesDisplay(table).plot(ax)
    figure.draw_without_rendering()
    assert ax.get_window_extent().height > 0.4 * figure.bbox.height
    rows = [label.get_window_extent().intervaly for label in ax.get_yticklabels()]
    assert all(above[0] > below[1] for above, below in pairwise(rows))
    # A slide has room for the 20 letters in a line that a figure of its own shows.
    _, ax = plt.subplots(figsize=(10.0, 5.6), layout=layout)
    slide, own = (ProfilesDisplay(table).plot(axes).ax_ for axes in (ax, None))
    names = [[label.get_text() for label in axes.get_xticklabels()] for axes in (slide, own)]
    assert names[0] == names[1] and max(map(len, names[0])) == 41
