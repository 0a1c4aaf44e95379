"""Displays draw the results of estimators."""

import json
import re
import sys
import warnings
from itertools import combinations, pairwise

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from matplotlib.colors import to_rgba
from matplotlib.text import Text
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import pdist
from sklearn.base import clone
from sklearn.decomposition import NMF, LatentDirichletAllocation
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.pipeline import make_pipeline

from skvt import (
    CAVIGaussianMixture,
    MemoizedDPGMM,
    StructuredLDA,
    TemperedLDA,
    covariate_effects,
    top_words,
    topic_shares,
)
from skvt.datasets import make_topic_corpus
from skvt.plotting import (
    ClusterTreeDisplay,
    ComponentsDisplay,
    EffectsDisplay,
    ELBODisplay,
    MovesDisplay,
    TemperatureDisplay,
    TopicsDisplay,
    TopicSharesDisplay,
    prepare_arguments,
    save_pyldavis,
)
from skvt.plotting._axes import shorten


@pytest.fixture(scope="module")
def X():
    return make_topic_corpus(80, n_components=3, n_features=30, random_state=0).X


@pytest.fixture(scope="module")
def lda(X):
    return TemperedLDA(n_components=3, batch_size=20, max_iter=5, random_state=0).fit(X)


def overlapping(n=300, seed=0):
    """Rows of five clusters in the plane, some of which touch."""
    rng = np.random.default_rng(seed)
    means = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0], [2.5, 0.0], [6.0, 8.0]])
    noise = rng.standard_normal((n, 2)) @ np.array([[1.0, 0.6], [0.0, 0.5]])
    return means[rng.integers(5, size=n)] + noise


@pytest.fixture(scope="module")
def mixture():
    settings = {"covariance_prior": np.eye(2), "moves": (), "random_state": 1}
    return MemoizedDPGMM(10, **settings).fit(overlapping())


# ------------------------------------------------------------------------------------ histories
@pytest.mark.parametrize("x", ["n_iter", "seconds"])
def test_bounds_are_those_of_the_history(lda, x):
    display = ELBODisplay.from_estimator(lda, bounds="both", x=x)
    elbo, objective = display.lines_
    for line, name in ((elbo, "elbo"), (objective, "objective")):
        assert_array_equal(line.get_xdata(), lda.history_[x])
        assert_array_equal(line.get_ydata(), lda.history_[name])
    assert elbo.get_color() == objective.get_color()
    assert elbo.get_linestyle() != objective.get_linestyle()
    assert display.figure_ is display.ax_.figure
    names = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert names == ["TemperedLDA elbo", "TemperedLDA objective"]
    _, ax = plt.subplots()
    assert display.plot(ax, bounds="objective", n_samples=50.0) is display and display.ax_ is ax
    (line,) = display.lines_
    assert_allclose(line.get_ydata(), np.array(lda.history_["objective"]) / 50.0)
    assert ax.get_ylabel() == "objective (nats per sample)"


def test_several_estimators_share_axes_and_differ_in_colour(lda, mixture):
    first = ELBODisplay.from_estimator(lda, name="first")
    second = ELBODisplay.from_estimator(mixture, name="second", ax=first.ax_)
    assert second.ax_ is first.ax_ and len(first.ax_.lines) == 2
    assert first.lines_[0].get_color() != second.lines_[0].get_color()
    assert [text.get_text() for text in first.ax_.get_legend().get_texts()] == ["first", "second"]
    assert len(plt.get_fignums()) == 1


def test_accepted_moves_are_marked_on_the_bound_and_fits_share_their_names():
    history = {"elbo": [-9.0, np.nan, -5.0, -4.0], "n_iter": [1, 2, 3, 4], "seconds": [1, 2, 3, 5]}
    log = {"n_iter": [1, 3, 3, 4, 4], "move": ["birth", "birth", "birth", "birth", "merge"],
           "accepted": [0, 2, 1, 0, 1]}  # fmt: skip
    first = ELBODisplay(history, log, name="first").plot(x="seconds", n_samples=2.0)
    places = {kind: marks.get_offsets().tolist() for kind, marks in first.markers_.items()}
    assert places == {"birth": [[3.0, -2.5]], "merge": [[5.0, -2.0]]}
    ELBODisplay(history, log, name="second").plot(first.ax_)
    names = [text.get_text() for text in first.ax_.get_legend().get_texts()]
    assert names == ["first", "birth accepted", "merge accepted", "second"]
    mixture = MemoizedDPGMM(2, max_iter=4, tol=0.0, random_state=0).fit(overlapping())
    marks = ELBODisplay.from_estimator(mixture).markers_["birth"].get_offsets()
    births = mixture.move_log_.to_frame().query("move == 'birth' and accepted > 0")["n_iter"]
    assert marks[:, 0].tolist() == sorted({*births}) != []


def test_one_line_has_no_legend_and_numbers_of_components_are_whole(lda, mixture):
    assert ELBODisplay.from_estimator(lda, name="only").ax_.get_legend() is None
    history = {"n_components": [1, 2, 2], "n_iter": [1, 2, 3], "seconds": [0.1, 0.2, 0.3]}
    log = {"n_iter": [2], "move": ["birth"], "accepted": [1]}
    moves = MovesDisplay(history, log, name="fit").plot()
    ticks = moves.ax_.get_yticks()
    assert_array_equal(ticks, np.round(ticks))
    legend = moves.ax_.get_legend()
    assert legend.get_title().get_fontsize() == legend.get_texts()[0].get_fontsize()


def test_passes_without_a_bound_are_left_out_and_none_at_all_is_an_error(X):
    model = StructuredLDA(n_components=3, batch_size=40, max_iter=4, random_state=0)
    model.set_params(evaluate_every=2).fit(X)
    (line,) = ELBODisplay.from_estimator(model).lines_
    assert_array_equal(line.get_xdata(), [2, 4])
    assert_array_equal(line.get_ydata(), np.array(model.history_["elbo"])[[1, 3]])
    model.set_params(evaluate_every=-1).fit(X)
    with pytest.raises(ValueError, match="evaluate_every=1"):
        ELBODisplay.from_estimator(model, bounds="elbo")
    assert len(plt.get_fignums()) == 1, "no empty figure"
    display = ELBODisplay.from_estimator(model)
    assert_array_equal(display.lines_[0].get_ydata(), model.history_["objective"])
    assert display.ax_.get_ylabel() == "objective (nats)"


def test_the_first_pass_does_not_determine_the_scale():
    values = [-1000.0, -10.0, -8.0, -7.0, -6.5, -6.4]
    history = {"elbo": values, "n_iter": range(1, 7), "seconds": range(6)}
    assert ELBODisplay(history).plot().ax_.get_ylim()[0] > -11.0
    # Differences of rounding are not shown as jumps.
    history["elbo"] = [-4000.0, *(-3430.25 + 5e-13 * np.array([0, 1, -1, 2, 0]))]
    low, high = ELBODisplay(history).plot().ax_.get_ylim()
    assert low < -3430.26 and -3430.24 < high < -3430.0


def test_labels_of_the_axis_are_bounds_themselves():
    history = {"elbo": [-17931.0, -17930.6, -17930.5], "n_iter": range(1, 4), "seconds": range(3)}
    display = ELBODisplay(history).plot()
    display.figure_.draw_without_rendering()
    labels = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert all(label.replace("\N{MINUS SIGN}", "-").startswith("-1793") for label in labels), labels


def test_temperatures_are_those_of_the_history_in_the_style_asked_for(lda):
    display = TemperatureDisplay.from_estimator(lda, line_kw={"color": "red", "marker": "x"})
    (line,) = display.lines_
    assert_array_equal(line.get_xdata(), lda.history_["n_iter"])
    assert_array_equal(line.get_ydata(), lda.history_["temperature"])
    assert (line.get_color(), line.get_marker()) == ("red", "x")


@pytest.mark.slow
def test_moves_stand_at_the_passes_that_accepted_them():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(m, 1.0, size=(200, 2)) for m in (-6.0, 0.0, 6.0)])
    X = np.concatenate([X, 3.0 * rng.standard_t(2, size=(100, 2))])
    mixture = MemoizedDPGMM(3, random_state=0).fit(X)
    history, log = mixture.history_, mixture.move_log_
    accepted = {"birth": {}, "merge": {}, "delete": {}}
    for n_iter, move, number in zip(log["n_iter"], log["move"], log["accepted"], strict=True):
        if number:
            accepted[move][n_iter] = accepted[move].get(n_iter, 0) + number
    assert all(accepted.values()), "the data shall show all three"
    for x in ("n_iter", "seconds"):
        display = MovesDisplay.from_estimator(mixture, x=x)
        (line,) = display.lines_
        assert_array_equal(line.get_ydata(), history["n_components"])
        assert_array_equal(line.get_xdata(), history[x])
        assert set(display.markers_) == set(accepted)
        for move, marks in display.markers_.items():
            passes = accepted[move]
            expected = [(history[x][n - 1], history["n_components"][n - 1]) for n in passes]
            assert_array_equal(marks.get_offsets(), expected)
            areas = marks.get_sizes()
            assert_allclose(areas / areas[0], np.array(list(passes.values())) / passes[min(passes)])
            assert marks.get_label() == f"{move} ({sum(passes.values())})"


def test_a_stream_that_follows_a_fit_is_drawn_after_it():
    X = overlapping()
    model = MemoizedDPGMM(2, max_components=6, max_iter=2, random_state=0).fit(X)
    for seed in range(1, 6):
        model.partial_fit(overlapping(seed=seed) + (20.0 if seed > 2 else 0.0))
    (line,) = TemperatureDisplay.from_estimator(model).lines_
    assert_array_equal(line.get_xdata(), [1, 2, 3, 4, 5, 6, 7])
    log = model.move_log_
    accepted = {n for n, number in zip(log["n_iter"], log["accepted"], strict=True) if number}
    assert max(accepted) > 2
    markers = MovesDisplay.from_estimator(model).markers_
    drawn = {x for marks in markers.values() for x in marks.get_offsets()[:, 0]}
    assert drawn == accepted


# --------------------------------------------------------------------------------------- topics
def test_bars_show_the_most_probable_words_and_their_probabilities(lda):
    names = np.array([f"word{v}" for v in range(30)])
    display = TopicsDisplay.from_estimator(lda, feature_names=names, n_words=6, topics=[2, 0])
    probability = lda.components_ / lda.components_.sum(axis=1, keepdims=True)
    assert len(display.axes_) == len(display.bars_) == 2
    top = lda.top_words(6, names)
    for panel, bars, k in zip(display.axes_, display.bars_, [2, 0], strict=True):
        assert [text.get_text() for text in panel.get_yticklabels()] == top[k]
        assert_allclose([bar.get_width() for bar in bars], np.sort(probability[k])[::-1][:6])
        share = lda.components_[k].sum() / lda.components_.sum()
        assert panel.get_title(loc="left") == f"topic {k} ({share:.1%})"
        low, high = panel.get_ylim()
        assert low > high, "the most probable word is at the top"


def test_topics_are_ordered_by_share_and_have_one_scale(lda):
    shares = lda.components_.sum(axis=1) / lda.components_.sum()
    display = TopicsDisplay.from_estimator(lda, by="relevance", n_words=4)
    assert display.topics_.tolist() == np.argsort(-shares).tolist()
    assert len({panel.get_xlim() for panel in display.axes_}) == 1
    words = lda.top_words(4, by="relevance")
    for panel, k in zip(display.axes_, display.topics_, strict=True):
        shown = [text.get_text() for text in panel.get_yticklabels()]
        assert shown == [str(word) for word in words[k]]


def test_a_pipeline_provides_the_words():
    texts = ["ab", "bc", "cd", "de"]
    pipeline = make_pipeline(CountVectorizer(token_pattern="."), TemperedLDA(2, max_iter=1))
    pipeline.fit(texts)
    panel = TopicsDisplay.from_estimator(pipeline, n_words=5).axes_[0]
    assert {text.get_text() for text in panel.get_yticklabels()} == set("abcde")
    arguments = prepare_arguments(pipeline, texts)
    expected = prepare_arguments(pipeline[-1], pipeline[0].transform(texts), list("abcde"))
    assert_array_equal(arguments["vocab"], expected["vocab"])
    assert_array_equal(arguments["doc_topic_dists"], expected["doc_topic_dists"])


def test_names_of_columns_are_the_default_words(X, lda):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X.toarray(), columns=[f"w{v}" for v in range(30)])
    named = TemperedLDA(n_components=3, max_iter=1, random_state=0).fit(frame)
    for model, names in ((named, named.feature_names_in_), (lda, np.arange(30).astype(str))):
        display = TopicsDisplay.from_estimator(model, n_words=2)
        largest = np.argmax(model.components_.sum(axis=1))
        shown = [text.get_text() for text in display.axes_[0].get_yticklabels()]
        assert shown == list(names[np.argsort(-model.components_[largest])[:2]])


def test_panels_are_new_or_divide_axes_or_are_given(lda):
    made = TopicsDisplay.from_estimator(lda, n_columns=2)
    assert len(made.figure_.axes) == 3 and made.bounding_ax_ is None
    rows = {axes.get_subplotspec().rowspan.start for axes in made.axes_}
    assert rows == {0, 1}
    fig, (_, right) = plt.subplots(1, 2)
    divided = TopicsDisplay.from_estimator(lda, ax=right)
    assert divided.bounding_ax_ is right and divided.figure_ is fig
    assert all(axes.get_position().x0 >= right.get_position().x0 - 1e-9 for axes in divided.axes_)
    fig, axes = plt.subplots(2, 2)
    given = TopicsDisplay.from_estimator(lda, ax=axes)
    assert list(given.axes_) == list(axes.ravel()[:3])
    with pytest.raises(ValueError, match="3 panels, but 'ax' has 2 axes"):
        TopicsDisplay.from_estimator(lda, ax=axes[0])


def test_the_first_of_many_topics_are_shown_and_the_others_counted(monkeypatch):
    monkeypatch.setattr("skvt.plotting._topics.MAX_PANELS", 2)
    display = TopicsDisplay(np.full((5, 2), 0.5), ["a", "b"])
    assert len(display.plot(n_words=1).axes_) == 2
    assert display.axes_[-1].get_xlabel() == "3 more topics not shown"
    display.plot(topics=range(4), n_words=1)
    assert len(display.axes_) == 4 and not display.axes_[-1].get_xlabel()


# ----------------------------------------------------------------------------------- components
def test_components_are_shown_as_images(lda, mixture):
    display = ComponentsDisplay.from_estimator(lda, image_shape=(5, 6), components=[1, 2])
    assert len(display.images_) == 2 and not display.ellipses_
    for image, k in zip(display.images_, [1, 2], strict=True):
        assert_allclose(image.get_array(), lda.components_[k].reshape(5, 6))
    display = ComponentsDisplay.from_estimator(mixture, image_shape=(1, 2))
    for k, image in enumerate(display.images_):
        assert_allclose(image.get_array(), mixture.means_[k : k + 1])
        assert display.axes_[k].get_title() == f"{mixture.weights_[k]:.3f}"
    titles = list("abcdefghijkl"[: mixture.n_components_])
    display = ComponentsDisplay.from_estimator(mixture, values="covariances", titles=titles)
    for k, image in enumerate(display.images_):
        assert_allclose(image.get_array(), mixture.covariances_[k])
        assert display.axes_[k].get_title() == titles[k]


@pytest.mark.parametrize(
    "model",
    [
        MemoizedDPGMM(3, covariance_type="full", moves=(), max_iter=5),
        MemoizedDPGMM(3, covariance_type="spherical", moves=(), max_iter=5),
        BayesianGaussianMixture(n_components=3, covariance_type="diag"),
    ],
    ids=lambda model: model.covariance_type,
)
def test_ellipses_are_contours_of_the_components(model):
    model = clone(model).set_params(random_state=0).fit(overlapping())
    display = ComponentsDisplay.from_estimator(model, n_std=1.5, ellipse_kw={"linewidth": 3})
    assert len(display.ellipses_) == len(model.means_)
    for k, ellipse in enumerate(display.ellipses_):
        assert_allclose(ellipse.get_center(), model.means_[k])
        assert ellipse.get_linewidth() == 3
        covariance = model.covariances_[k]
        covariance = covariance if covariance.ndim == 2 else np.diag(covariance * np.ones(2))
        circle = np.linspace(0.0, 2.0 * np.pi, 40)
        unit = np.stack([np.cos(circle), np.sin(circle)], axis=1)
        contour = ellipse.get_patch_transform().transform(unit)
        off = contour - model.means_[k]
        distance = np.einsum("nd,de,ne->n", off, np.linalg.inv(covariance), off)
        assert_allclose(distance, 1.5**2)
        # The whole contour is visible.
        for limits, values in zip(
            (display.ax_.get_xlim(), display.ax_.get_ylim()), contour.T, strict=True
        ):
            assert limits[0] <= values.min() and values.max() <= limits[1]


def test_many_columns_are_a_table_of_standardised_means_or_ellipses_of_two():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    centres = 4.0 * rng.standard_normal((3, 36))
    rows = centres[rng.integers(3, size=400)] + rng.standard_normal((400, 36))
    rows = rows * np.linspace(0.1, 10.0, 36) + 5.0
    frame = pandas.DataFrame(rows, columns=[f"column {d}" for d in range(36)])
    mixture = GaussianMixture(3, covariance_type="diag", reg_covar=0.0, random_state=0).fit(frame)
    display = ComponentsDisplay.from_estimator(mixture, components=[2, 0])
    (table,) = display.images_
    # After a step of EM the first two moments of the mixture are those of the data.
    expected = (mixture.means_[[2, 0]] - rows.mean(axis=0)) / rows.std(axis=0)
    assert_allclose(table.get_array(), expected, rtol=1e-6)
    assert [text.get_text() for text in display.ax_.get_xticklabels()] == list(frame.columns)
    assert [text.get_text() for text in display.ax_.get_yticklabels()] == ["2", "0"]
    low, high = table.get_clim()
    assert low == -high, "the mean is white"
    display = ComponentsDisplay.from_estimator(mixture, features=[4, 1], n_std=1.0)
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("column 4", "column 1")
    for k, ellipse in enumerate(display.ellipses_):
        assert_allclose(ellipse.get_center(), mixture.means_[k, [4, 1]])
        assert_allclose(
            np.sort([ellipse.width, ellipse.height]),
            np.sort(2.0 * np.sqrt(mixture.covariances_[k, [4, 1]])),
        )


def test_ellipses_have_the_numbers_of_their_components_and_columns_theirs():
    means = np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, 8.0]])
    display = ComponentsDisplay(means=means, covariances=[np.eye(3)] * 3)
    display.plot(components=[2, 0], features=[0, 2])
    assert [text.get_text() for text in display.texts_] == ["2", "0"]
    assert_allclose([text.get_position() for text in display.texts_], means[[2, 0]][:, [0, 2]])
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("column 0", "column 2")


def test_images_and_ellipses_of_plain_arrays():
    images = np.arange(24.0).reshape(2, 3, 4)
    display = ComponentsDisplay(images).plot(image_kw={"cmap": "viridis", "vmax": 50.0})
    assert_array_equal([image.get_array() for image in display.images_], images)
    assert display.images_[0].get_cmap().name == "viridis"
    assert display.images_[0].get_clim()[1] == 50.0
    assert display.axes_[0].get_title() == ""
    display = ComponentsDisplay(means=[[1.0, 2.0]], covariances=[np.eye(2)])
    (ellipse,) = display.plot(ellipse_kw={"edgecolor": "red"}).ellipses_
    assert (ellipse.width, ellipse.height) == (4.0, 4.0)
    assert ellipse.get_edgecolor() == to_rgba("red")


# --------------------------------------------------------------------------------- cluster trees
def have_gaps(texts):
    """Whether texts from left to right do not overlap."""
    boxes = sorted((text.get_window_extent() for text in texts), key=lambda box: box.x0)
    return all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_texts_do_not_overlap_in_the_column_of_a_journal(lda):
    size = {"figsize": (3.5, 2.6), "layout": "constrained"}
    fig, ax = plt.subplots(**size)
    hierarchy = [[0, 1, 0.1, 2], [2, 7, 0.2, 3], [3, 8, 0.3, 4], [4, 9, 0.4, 5], [5, 10, 0.5, 6],
                 [6, 11, 0.6, 7]]  # fmt: skip
    weights = [0.34, 0.27, 0.19, 0.13, 0.06, 0.009, 0.001]
    tree = ClusterTreeDisplay(hierarchy, 7, weights=weights).plot(ax)
    fig.draw_without_rendering()
    labels = tree.ax_.get_xticklabels()
    assert have_gaps(labels)
    assert {"5: 1%", "6: <1%"} <= {label.get_text() for label in labels}
    _, loss_ax = tree.axes_
    legend = loss_ax.get_legend().get_window_extent()
    assert loss_ax.get_window_extent().x0 < legend.x0
    fig, ax = plt.subplots(**size)
    topics = np.eye(5, 8) + 1.0
    display = TopicsDisplay(topics, list("abcdefgh"), shares=[0.225, 0.2, 0.2, 0.2, 0.175]).plot(ax)
    fig.draw_without_rendering()
    first, second, *_ = display.axes_
    assert have_gaps([first._left_title, second._left_title])
    assert all(have_gaps(panel.get_xticklabels()) for panel in display.axes_)


def test_words_of_topics_do_not_overlap_in_the_column_of_a_journal():
    topics = np.random.default_rng(0).dirichlet(np.full(60, 0.05), 5)
    words = [f"parliament {j}" for j in range(60)]
    fig, ax = plt.subplots(figsize=(3.5, 2.6), layout="constrained")
    display = TopicsDisplay(topics, words).plot(ax, n_words=10)
    fig.draw_without_rendering()
    for panel in display.axes_:
        boxes = [label.get_window_extent() for label in panel.get_yticklabels()]
        assert 3 <= len(boxes) < 10
        assert all(upper.y0 > lower.y1 for upper, lower in pairwise(boxes))
        assert min(box.x0 for box in boxes) >= 0.0
    # The two lowest panels have the numbers of the common axis.
    have_numbers = [bool(panel.get_xticklabels()) for panel in display.axes_]
    assert have_numbers == [False, False, False, True, True]


def test_the_tree_of_clusters_is_the_hierarchy_coloured_by_cluster(mixture):
    K = mixture.n_components_
    n = K - np.count_nonzero(mixture.hierarchy_criteria_ != "evidence")
    assert 1 < n < K
    display = ClusterTreeDisplay.from_estimator(mixture, n_clusters=n)
    heights = mixture.hierarchy_[:, 2]
    drawn = [points[1] for points in display.dendrogram_["dcoord"]]
    assert_allclose(np.sort(drawn), heights)
    (line,) = display.lines_
    assert_array_equal(line.get_xdata(), np.arange(K, 0, -1))
    entropies = [
        -np.sum(proba * np.log(np.maximum(proba, 1e-300))) / len(proba)
        for proba in (mixture.predict_proba(overlapping(), number) for number in (None, n))
    ]
    lost = entropies[0] - entropies[1]
    assert_allclose(display.marker_.get_xydata(), [[n, lost]], rtol=1e-6)
    assert line.get_ydata()[K - n] == display.marker_.get_ydata()[0]
    # Links between clusters are grey, and links within a cluster have its colour.
    order = np.argsort(drawn, kind="stable")
    colors = np.array(display.dendrogram_["color_list"])[order]
    assert set(colors[K - n :]) == {"0.6"} and "0.6" not in colors[: K - n]
    sizes = np.bincount(mixture.component_clusters(n))
    assert len(set(colors[: K - n])) == np.sum(sizes > 1)


def test_the_number_of_clusters_is_marked_and_axes_are_shared(mixture):
    with plt.rc_context({"xtick.labelsize": 5.0}):
        fig, (_, right) = plt.subplots(1, 2)
        shared = ClusterTreeDisplay.from_estimator(
            mixture,
            ax=right,
            dendrogram_kw={"labels": list("abcdefghijkl"[: mixture.n_components_])},
            line_kw={"color": "blue"},
        )
    sizes = {label.get_fontsize() for axes in shared.axes_ for label in axes.get_xticklabels()}
    assert sizes == {5.0}
    assert shared.bounding_ax_ is right and shared.figure_ is fig
    assert shared.n_clusters == shared.marker_.get_xdata()[0] == mixture.n_clusters_
    assert set(shared.dendrogram_["ivl"]) <= set("abcdefghijkl")
    assert shared.lines_[0].get_color() == "blue"


# ------------------------------------------------------------------------------------- pyLDAvis
@pytest.mark.parametrize(
    ("cls", "container"),
    [
        (TemperedLDA, sp.csr_array),
        (TemperedLDA, np.asarray),
        (LatentDirichletAllocation, sp.csr_matrix),
    ],
)
def test_arguments_of_pyldavis_are_distributions_and_counts(cls, container):
    counts = make_topic_corpus(60, n_components=3, n_features=30, random_state=0).X.toarray()
    counts[:, 7] = 0  # No document contains this word.
    counts[11] = 0  # This document has no words.
    X = container(counts)
    model = cls(n_components=3, max_iter=3, random_state=0).fit(X)
    names = np.array([f"word{v}" for v in range(30)])
    arguments = prepare_arguments(model, X, names)
    assert list(arguments) == [
        "topic_term_dists", "doc_topic_dists", "doc_lengths", "vocab", "term_frequency", "mds",
    ]  # fmt: skip
    there, filled = counts.sum(axis=0) > 0, counts.sum(axis=1) > 0
    assert not there.all() and not filled.all()
    expected = model.components_[:, there]
    expected = expected / expected.sum(axis=1, keepdims=True)
    assert_allclose(arguments["topic_term_dists"], expected, rtol=1e-12)
    assert_allclose(arguments["doc_topic_dists"], model.transform(X)[filled], rtol=1e-12)
    assert_array_equal(arguments["doc_lengths"], counts.sum(axis=1)[filled])
    assert_array_equal(arguments["term_frequency"], counts.sum(axis=0)[there])
    assert_array_equal(arguments["vocab"], names[there])
    arrays = [value for name, value in arguments.items() if name != "mds"]
    assert all(isinstance(value, np.ndarray) for value in arrays)
    for name in ("topic_term_dists", "doc_topic_dists"):
        assert_allclose(arguments[name].sum(axis=1), 1.0)


def test_topics_without_words_and_documents_without_topics_are_left_out():
    X = np.random.default_rng(0).poisson(2.0, size=(12, 6))
    X[3:5] = np.eye(6)[0] * 4.0  # No topic contains their word.
    nmf = NMF(3, random_state=0).fit(X)
    nmf.components_ = np.outer([1.0, 0.0, 2.0], [0.0, 1.0, 1.0, 3.0, 1.0, 1.0])
    arguments = prepare_arguments(nmf, X)
    assert arguments["topic_term_dists"].shape == (2, 6)
    assert arguments["doc_topic_dists"].shape == (10, 2)
    assert_array_equal(arguments["doc_lengths"], np.delete(X, [3, 4], axis=0).sum(axis=1))
    for name in ("topic_term_dists", "doc_topic_dists"):
        assert_allclose(arguments[name].sum(axis=1), 1.0)
    with pytest.raises(ValueError, match="no document with words"):
        prepare_arguments(nmf, X[3:5])
    words = top_words(nmf, 6)
    assert [len(topic) for topic in words] == [5, 0, 5] and 0 not in words[0]
    display = TopicsDisplay.from_estimator(nmf, n_words=6)
    assert display.topics_.tolist() == [2, 0, 1]
    assert [len(bars) for bars in display.bars_] == [5, 5, 0]
    assert display.axes_[2].get_title(loc="left") == "topic 1 (0.0%): no words"


def test_topics_are_placed_by_their_divergences():
    topics = np.eye(4)[:3]  # The topics share no word, so that any two diverge by log 2.
    places = prepare_arguments(*_two_topics())["mds"](topics)
    assert places.dtype == np.float64 and places.shape == (3, 2)
    assert_allclose(pdist(places), np.log(2.0))
    # Equal topics share a place, and two topics lie on a line.
    place = prepare_arguments(*_two_topics())["mds"]
    assert_allclose(pdist(place(np.full((3, 4), 0.25))), 0.0, atol=1e-12)
    assert_allclose(place(np.eye(4)[:2])[:, 1], 0.0)
    assert_array_equal(place(np.full((1, 4), 0.25)), [[0.0, 0.0]])


def _two_topics():
    X = np.array([[3, 1, 0], [0, 2, 4]])
    return TemperedLDA(n_components=2, max_iter=1, random_state=0).fit(X), X


def test_the_page_of_pyldavis_can_be_written_and_read_back(tmp_path, lda, X):
    pytest.importorskip("pyLDAvis")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # They come from pyLDAvis and the packages that it uses.
        save_pyldavis(lda, X, None, tmp_path / "topics.html")
    page = (tmp_path / "topics.html").read_text(encoding="utf-8")
    assert not re.search(r"<(script|link)[^>]+(src|href)=", page)
    (data,) = re.findall(r'new LDAvis\("#topics", (.*)\);</script>', page)
    data = json.loads(data)
    order = np.array(data["topic.order"]) - 1
    arguments = prepare_arguments(lda, X)
    places = arguments["mds"](arguments["topic_term_dists"][order])
    drawn = np.stack([data["mdsDat"]["x"], data["mdsDat"]["y"]], axis=1)
    assert_allclose(pdist(drawn), pdist(places), atol=1e-10)
    share = arguments["doc_topic_dists"].T @ arguments["doc_lengths"]
    assert_allclose(data["mdsDat"]["Freq"], (100.0 * share / share.sum())[order])


# --------------------------------------------------------------------------------------- errors
@pytest.mark.parametrize(
    "draw",
    [
        ELBODisplay.from_estimator, TemperatureDisplay.from_estimator,
        MovesDisplay.from_estimator, TopicsDisplay.from_estimator,
        ComponentsDisplay.from_estimator, ClusterTreeDisplay.from_estimator,
        lambda model: ComponentsDisplay.from_estimator(model, image_shape=(2, 2)),
        lambda model: prepare_arguments(model, np.ones((2, 4))),
    ],
)  # fmt: skip
def test_displays_refuse_an_estimator_that_is_not_fitted(draw):
    for model in (TemperedLDA(), MemoizedDPGMM()):
        with pytest.raises(NotFittedError):
            draw(model)
    assert not plt.get_fignums()


def test_displays_refuse_bad_input(X, lda, mixture):
    stream = TemperedLDA(n_components=3, random_state=0).partial_fit(X)
    with pytest.raises(ValueError, match="partial_fit knows no bound of all rows"):
        ELBODisplay.from_estimator(stream)
    X3 = np.random.default_rng(0).normal(size=(30, 3))
    wide = MemoizedDPGMM(covariance_prior=None, moves=(), random_state=0).fit(X3)
    still = CAVIGaussianMixture(2, random_state=0).fit(np.arange(6.0)[:, None])
    for draw, message in [
        (lambda: ELBODisplay.from_estimator(lda, x="time"), "'n_iter', 'seconds'. Got 'time'"),
        (lambda: ELBODisplay.from_estimator(lda, bounds="kl"), "'objective', 'both'. Got 'kl'"),
        (lambda: MovesDisplay.from_estimator(still), "estimator that makes moves"),
        (lambda: TopicsDisplay.from_estimator(mixture), "Pass a fitted topic model"),
        (lambda: TopicsDisplay.from_estimator(lda, topics=[3]), r"range \[0, 3\). Got \[3\]"),
        (lambda: TopicsDisplay.from_estimator(lda, topics=[]), r"range \[0, 3\). Got \[\]"),
        (lambda: TopicsDisplay.from_estimator(lda, feature_names=["a"]), "30 names"),
        (lambda: ComponentsDisplay.from_estimator(lda), "image_shape for images"),
        (lambda: ComponentsDisplay.from_estimator(wide, features=[3]), r"range \[0, 3\)"),
        (lambda: ComponentsDisplay.from_estimator(wide, feature_names=["a"]), "be 3 names"),
        (lambda: ComponentsDisplay.from_estimator(lda, image_shape=(2, 3)), "with the product 30"),
        (lambda: ComponentsDisplay.from_estimator(lda, values="components"), "Got None"),
        (lambda: ComponentsDisplay.from_estimator(lda, values="topics"), "Got 'topics'"),
        (lambda: ComponentsDisplay().plot(), "pass images"),
        (lambda: ClusterTreeDisplay.from_estimator(lda), "Only mixtures have it, after fit or"),
        (lambda: ClusterTreeDisplay.from_estimator(wide), "a mixture with one component"),
        (lambda: ClusterTreeDisplay.from_estimator(still, n_clusters=3), r"= \[1, 2\]. Got 3"),
        (lambda: prepare_arguments(lda, 0 * X), "no words"),
    ]:
        with pytest.raises(ValueError, match=message):
            draw()
    assert not plt.get_fignums()


def test_an_error_names_matplotlib_if_it_is_missing(monkeypatch, lda):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        ELBODisplay.from_estimator(lda)


# ---------------------------------------------------------------------------- effects, shares
def ends_of(container):
    """Ends (2,) of the interval of a single point."""
    return container[2][0].get_segments()[0][:, 0]


def test_effects_are_points_with_intervals(X, lda):
    covariates = pd.DataFrame({"year": np.arange(80) % 7, "party": list("ab") * 40})
    display = EffectsDisplay.from_estimator(
        lda, X, covariates, topics=[2, 0], effects_kw={"random_state": 0}
    )
    table = covariate_effects(lda, X, covariates, random_state=0)
    assert [panel.get_title() for panel in display.axes_] == ["year", "party[T.b]"]
    points = iter(display.points_)
    for term in "year", "party[T.b]":
        rows = table[table["term"] == term].set_index("topic")
        for place, topic in enumerate([2, 0]):
            point, row = next(points), rows.loc[topic]
            assert_allclose(np.ravel(point[0].get_xydata()), [row["effect"], place])
            assert_allclose(ends_of(point), [row["low"], row["high"]])
            filled = to_rgba(point[0].get_markerfacecolor()) != to_rgba("white")
            assert filled == (row["low"] > 0.0 or row["high"] < 0.0)
    first, second = ([tick.get_text() for tick in p.get_yticklabels()] for p in display.axes_)
    assert first[0].startswith("2: ") and set(second) == {""}
    with pytest.raises(
        ValueError, match=r"terms must be a list of some of the terms \['Intercept', 'year'"
    ):
        display.plot(terms=["age"])


def test_shares_over_a_continuous_covariate_are_curves(X, lda):
    year = np.arange(80) % 7
    at = pd.DataFrame({"x0": [6.0, 0.0, 3.0]})
    display = EffectsDisplay.from_estimator(lda, X, year, at=at, effects_kw={"random_state": 0})
    table = covariate_effects(lda, X, year, at=at, random_state=0)
    assert display.x_name == display.axes_[0].get_xlabel() == "x0" and not display.points_
    for topic, (line, band) in enumerate(zip(display.lines_, display.bands_, strict=True)):
        rows = table[table["topic"] == topic]
        assert_allclose(line.get_xdata(), [0.0, 3.0, 6.0])
        assert_allclose(line.get_ydata(), rows["effect"].to_numpy()[[1, 2, 0]])
        edges = band.get_paths()[0].vertices[:, 1]
        assert_allclose([edges.min(), edges.max()], [rows["low"].min(), rows["high"].max()])


def test_options_of_effects_are_refused_before_any_work():
    with pytest.raises(TypeError, match=r"\['formula'\]. Pass parameters .* in effects_kw"):
        EffectsDisplay.from_estimator(None, None, None, formula="year")


def test_each_level_of_the_other_covariates_has_a_curve(X, lda):
    covariates = pd.DataFrame({"year": np.arange(80) % 7, "party": list("ab") * 40})
    at = pd.DataFrame({"year": [4, 0, 2, 1, 3], "party": list("babab")})
    options = {"at": at, "effects_kw": {"random_state": 0}}
    display = EffectsDisplay.from_estimator(lda, X, covariates, topics=[2, 0], **options)
    table = covariate_effects(lda, X, covariates, at=at, random_state=0)
    curves = iter(display.lines_)
    for topic in (2, 0):
        effects = table.loc[table["topic"] == topic, "effect"].to_numpy()
        for party, places in ("b", [2, 4, 0]), ("a", [1, 3]):
            line = next(curves)
            assert line.get_label() == party
            assert_allclose(line.get_xdata(), at["year"][places])
            assert_allclose(line.get_ydata(), effects[places])
    assert len({line.get_color() for line in display.lines_}) == 2
    names = [text.get_text() for text in display.axes_[0].get_legend().get_texts()]
    assert names == ["b", "a"] and display.axes_[1].get_legend() is None


@pytest.mark.parametrize("years", [True, False])
def test_shares_of_topics_by_group(X, lda, years):
    groups = np.tile([2003, 2001, 2002, 2004] if years else list("dabc"), 20)
    display = TopicSharesDisplay.from_estimator(lda, X, groups)
    table = topic_shares(lda, X, groups)
    assert len(display.lines_ if years else display.points_) == 3
    for topic in range(3):
        share = table.loc[table["topic"] == topic, "share"]
        if years:
            assert_allclose(display.lines_[topic].get_xydata().T, [range(2001, 2005), share])
        else:
            assert_allclose(display.points_[topic][0].get_xdata(orig=False), share)


@pytest.mark.parametrize("years", [True, False])
def test_the_letters_of_shares_grow_with_the_font_size(X, lda, years):
    groups = np.tile([2003, 2001, 2002, 2004] if years else list("dabc"), 20)
    sizes = []
    for size in (10.0, 20.0):
        with plt.rc_context({"font.size": size}):
            panel = TopicSharesDisplay.from_estimator(lda, X, groups).axes_[0]
        label = panel.yaxis.label if years else panel.xaxis.label
        assert label.get_text() == "share"
        texts = [label, panel.title, panel.get_xticklabels()[0], panel.get_yticklabels()[0]]
        sizes.append([text.get_fontsize() for text in texts])
    assert_allclose(sizes[1], 2.0 * np.array(sizes[0]))


def test_the_mark_of_a_tree_is_not_cut_at_the_border():
    """Without joins nothing is lost, so that the mark is on the axis."""
    display = ClusterTreeDisplay([[0, 1, 0.5, 2]], n_clusters=2).plot()
    assert display.marker_.get_ydata() == display.axes_[1].get_ylim()[0] == 0.0
    assert not display.marker_.get_clip_on()


# -------------------------------------------------------------------------- names and many panels
LONG = [f"share of the votes for the party in {2000 + k}" for k in range(40)]
MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September",
          "October", "November", "December"]  # fmt: skip


def shares_by(groups, n_topics):
    table = [
        (group, k, LONG[k], 0.2 + 0.01 * i, 0.1, 0.5)
        for i, group in enumerate(groups)
        for k in range(n_topics)
    ]
    return pd.DataFrame(table, columns=["group", "topic", "label", "share", "low", "high"])


def test_days_are_labelled_without_hours():
    days = pd.to_datetime(["2024-01-31", "2024-02-01"])
    panel = TopicSharesDisplay(shares_by(days, 1)).plot().axes_[0]
    assert {text.get_text() for text in panel.get_yticklabels()} == {"2024-01-31", "2024-02-01"}


def test_a_long_word_of_a_title_keeps_its_ends():
    table = shares_by(MONTHS, 6).assign(label="distribution, random, scale")
    _, ax = plt.subplots(figsize=(3.5, 2.6), layout="constrained")
    first, *_ = TopicSharesDisplay(table).plot(ax).axes_
    assert re.fullmatch(r"0:\Wd[a-z]*…[a-z]*n,\nr.*e", first.get_title())


def effects_of(n_topics):
    table = [
        (k, LONG[k], term, 0.1 * k, 0.1 * k - 0.3, 0.1 * k + 0.3)
        for k in range(n_topics)
        for term in ("year", LONG[0], LONG[1])
    ]
    return pd.DataFrame(table, columns=["topic", "label", "term", "effect", "low", "high"])


def tree_of(n_components):
    joins = [[0, 1, 0.1, 2]]
    joins += [[k, n_components + k - 2, 0.1 * k, k + 1] for k in range(2, n_components)]
    n_clusters = n_components // 2
    options = {"weights": np.full(n_components, 0.1), "cluster_labels": LONG[:n_clusters]}
    return ClusterTreeDisplay(joins, n_clusters, **options)


def means_of(n_components):
    means = np.random.default_rng(0).normal(size=(n_components, 30))
    ones = np.broadcast_to(np.eye(30), (n_components, 30, 30))
    return ComponentsDisplay(means=means, covariances=ones, feature_names=LONG[:30])


def topics_of(n_topics):
    topics = np.random.default_rng(0).dirichlet(np.full(40, 0.2), n_topics)
    return TopicsDisplay(topics, LONG, shares=np.full(n_topics, 1 / n_topics), titles=LONG)


MANY = {
    "months": lambda n: TopicSharesDisplay(shares_by(MONTHS, n)),
    "thirty_groups": lambda n: TopicSharesDisplay(shares_by(LONG[:30], n)),
    "curves": lambda n: TopicSharesDisplay(shares_by(range(200001, 200013), n)),
    "effects": lambda n: EffectsDisplay(effects_of(n)),
    "tree": tree_of, "means": means_of, "topics": topics_of,
}  # fmt: skip


def drawn_texts(figure, monkeypatch):
    """Return the bounding boxes of the texts that a figure draws, in pixels, by text."""
    texts, draw = {}, Text.draw

    def noted(text, *arguments):
        if text.get_visible() and text.get_text().strip():
            texts[text] = text.get_window_extent()
        return draw(text, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Text, "draw", noted)
        figure.canvas.draw()
    return texts


@pytest.mark.quick_cases("3.5-months-3", "3.5-effects-3", "3.5-tree-40")
@pytest.mark.parametrize("n", [3, 40])
@pytest.mark.parametrize("make", MANY.values(), ids=MANY)
@pytest.mark.parametrize("width", [3.5, 5.5, None])
def test_texts_of_many_long_names_neither_overlap_nor_leave_the_figure(make, width, n, monkeypatch):
    ax = None
    if width is not None:
        _, ax = plt.subplots(figsize=(width, 0.72 * width), layout="constrained")
    figure = make(n).plot(ax).figure_
    # A warning that a layout fails is an error.
    texts = drawn_texts(figure, monkeypatch)
    assert len(texts) > 3
    for text, box in texts.items():
        inside = [box.x0, figure.bbox.width - box.x1, box.y0, figure.bbox.height - box.y1]
        assert min(inside) > -1.0, text
    for (one, box), (other, next_box) in combinations(texts.items(), 2):
        x0, y0 = np.maximum(box.min, next_box.min)
        x1, y1 = np.minimum(box.max, next_box.max)
        # Boxes that share less than a pixel in height or width do not overlap.
        assert min(x1 - x0, y1 - y0) < 1.0, (one, other)


def test_names_are_broken_at_a_space_where_two_lines_have_room():
    assert shorten("od315 of all diluted wines", 2) == "od315 of all\ndiluted wines"
    # A line would be longer than 20 letters.
    assert shorten("ab concentrationsofnonflavanoids", 2) == "ab concentration\nsofnonflavanoids"
    assert shorten("abcdefgh", 1, 3) == "a…h" and shorten("abcdefgh", 1, 1) == "…"


def test_bars_of_topics_have_one_label_and_topics_without_room_are_counted():
    topics = np.random.default_rng(0).dirichlet(np.ones(8), 9)
    _, ax = plt.subplots(figsize=(3.5, 2.0), layout="constrained")
    for weights, name in ((topics, "probability"), (9.0 * topics, "weight")):
        display = TopicsDisplay(weights, list("abcdefgh")).plot(ax)
        *labels, last = (panel.get_xlabel() for panel in display.axes_)
        assert labels.count(name) == 1 and set(labels) == {"", name}
        assert last == f"{9 - len(display.axes_)} more topics not shown"
    assert len(display.plot(ax, topics=range(5)).axes_) == 5
