"""Mixtures use the labels of rows whose classes are known."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import betaln, xlogy

from skvt import MemoizedDPGMM, MemoizedDPMixture, components, load, save
from skvt.callbacks import Checkpoint

FINITE = {"weight_concentration_prior_type": "dirichlet_distribution"}


def drawn(seed, n=200, distance=4.0, share=0.3, n_classes=2):
    """Rows at corners of a triangle, their classes, and labels of a share of the first two."""
    rng = np.random.default_rng(seed)
    z = rng.integers(n_classes, size=n)
    X = rng.normal(size=(n, 2)) + distance * np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.87]])[z]
    return X, z, np.where((rng.random(n) < share) & (z < 2), z, -1)


def plain(**parameters):
    """A mixture with labels and without moves, of Gaussians with independent columns."""
    fixed = {"covariance_type": "diag", "moves": (), "random_state": 0, "use_labels": True}
    return MemoizedDPGMM(**fixed | parameters)


# ------------------------------------------------------------------------------------ exactness
BITS = np.array([[0, 0], [0, 1], [1, 1], [1, 0], [0, 0], [1, 1], [0, 1]])
CLASSES = np.array([0, 0, 1, 1, 0, -1, -1])


def energy(resp):
    """Log evidence of bits under uniform priors and sticks of concentration 1, in nats.

    Of responsibilities of two components, the larger one first, (n, 2).
    """
    counts, ones = resp.sum(axis=0), resp.T @ BITS
    sticks = betaln(1.0 + counts[0], 1.0 + counts[1]) + betaln(1.0 + counts[1], 1.0)
    of_bits = betaln(1.0 + ones, 1.0 + counts[:, None] - ones) - betaln(1.0, 1.0)
    return sticks - 2.0 * betaln(1.0, 1.0) + of_bits.sum()


def assigned(first, second):
    """Responsibilities with these shares of class 0 of the two rows without a label."""
    shares = np.append((CLASSES[:-2] == 0).astype(float), [first, second])
    return np.column_stack([shares, 1.0 - shares])


def test_the_bound_is_that_of_all_responsibilities_that_labels_allow():
    """The bound is the best over all responsibilities, and less than the evidence."""
    bits = [("bits", components.Bernoulli(1.0), [0, 1])]
    mixture = MemoizedDPMixture(
        components=bits, use_labels=True, moves=(), n_batches=1, tol=1e-13, max_iter=1000
    ).fit(BITS, CLASSES)
    assert mixture.component_classes_.tolist() == [0, 1]
    best, at, width = -np.inf, np.array([0.5, 0.5]), 0.5
    # The second grid is finer, about the best point of the first.
    for _ in range(2):
        grid = np.clip(at[:, None] + width * np.linspace(-1.0, 1.0, 21), 0.0, 1.0)
        for pair in itertools.product(*grid):
            resp = assigned(*pair)
            value = energy(resp) - xlogy(resp, resp).sum()
            best, at = max((best, at), (value, np.array(pair)), key=lambda found: found[0])
        width = 0.05
    assert mixture.elbo_ == pytest.approx(best, abs=1e-4)
    evidence = np.logaddexp.reduce(
        [energy(assigned(*pair)) for pair in itertools.product((0.0, 1.0), repeat=2)]
    )
    assert mixture.elbo_ <= evidence


def test_the_bound_of_labelled_rows_is_their_log_probability():
    bits = [("bits", components.Bernoulli(1.0), [0, 1])]
    mixture = MemoizedDPMixture(components=bits, use_labels=True, moves=())
    y = np.array([0, 0, 1, 1, 0, 1, 0])
    mixture.fit(BITS, y)
    assert mixture.elbo_ == pytest.approx(energy(np.eye(2)[y]), rel=1e-12)


# ------------------------------------------------------------------------------------ labels
def test_labels_are_ignored_unless_they_are_used():
    X, _, y = drawn(0)
    alone, beside = (plain(use_labels=False, n_components=2).fit(X, given) for given in (None, y))
    assert alone.elbo_ == beside.elbo_
    with pytest.raises(AttributeError, match="without labels of rows"):
        _ = beside.component_classes_


def test_classes_that_do_not_differ_stay_apart():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 2)), np.repeat([3, 7], 40)
    mixture = plain(moves=("merge", "delete")).fit(X, y)
    assert sorted(mixture.component_classes_) == [3, 7]
    assert np.array_equal(mixture.component_classes_[mixture.labels_], y)


NAMES = {
    "whole numbers": ([4, 9], -1, np.asarray),
    "floats": ([0.0, 1.0], -1.0, np.asarray),
    "strings and None": (["no", "yes"], None, lambda names: np.array(names, object)),
    "strings and NaN": (["no", "yes"], np.nan, lambda names: np.array(names, object)),
    "a list of strings and -1": (["no", "yes"], -1, list),
    "a list of strings": (["no", "yes"], "-1", list),
}


@pytest.mark.parametrize("kind", NAMES)
def test_rows_with_labels_belong_to_their_classes_and_a_file_keeps_them(kind, tmp_path):
    X, z, known = drawn(1, distance=2.0)
    names, unknown, container = NAMES[kind]
    mixture = plain(max_iter=30).fit(X, container([[*names, unknown][k] for k in known]))
    names, has = np.array(names), known >= 0
    found = mixture.component_classes_[mixture.labels_]
    assert np.array_equal(found[has], names[z[has]])
    # The optimal rule for rows without labels has the accuracy Phi(1) = 0.841, here of 200 rows.
    assert np.mean(mixture.component_classes_[mixture.predict(X)] == names[z]) > 0.78
    save(mixture, tmp_path / "mixture.skvt")
    again = load(tmp_path / "mixture.skvt")
    assert again.component_classes_.tolist() == mixture.component_classes_.tolist()
    assert np.array_equal(again.predict(X), mixture.predict(X))


def test_rows_of_weight_zero_have_labels_but_no_influence():
    X, _, y = drawn(2, distance=1.0)
    weights = np.where(np.arange(len(X)) % 3, 1.0, 0.0)
    mixture = plain(max_iter=10).fit(X, y, sample_weight=weights)
    used = weights > 0.0
    assert mixture.elbo_ == plain(max_iter=10).fit(X[used], y[used]).elbo_
    assert mixture.labels_.shape == (len(X),)
    assert np.array_equal(mixture.component_classes_[mixture.labels_][y >= 0], y[y >= 0])


@pytest.mark.parametrize("made", [np.asarray, sp.csr_array])
def test_counts_of_tokens_have_labels(made):
    rng = np.random.default_rng(0)
    z = rng.integers(2, size=100)
    X = rng.poisson(np.array([[5.0, 1.0, 2.0], [1.0, 5.0, 2.0]])[z])
    parts = [("words", "multinomial", [0, 1, 2])]
    mixture = MemoizedDPMixture(components=parts, use_labels=True, moves=(), random_state=0)
    mixture.fit(made(X), np.where(np.arange(100) < 10, z, -1))
    assert np.mean(mixture.component_classes_[mixture.predict(made(X))] == z) > 0.9


@pytest.mark.parametrize("parameters", [
    {"learning_method": "online", "batch_size": 50}, {"temperature": "annealed"},
    FINITE | {"n_components": 3}, {"covariance_type": "tied"},
])  # fmt: skip
def test_every_way_of_fitting_uses_labels(parameters):
    X, z, y = drawn(3)
    mixture = plain(max_iter=20, tol=1e-3, **parameters).fit(X, y)
    assert {0, 1} <= set(mixture.component_classes_.tolist())
    assert np.mean(mixture.component_classes_[mixture.predict(X)] == z) > 0.95


# ------------------------------------------------------------------ streams and warm starts
def test_calls_on_one_batch_end_where_a_fit_does():
    X, _, y = drawn(3)
    fit = plain(n_batches=1, tol=1e-12, max_iter=1000).fit(X, y)
    stream = plain()
    for _ in range(60):
        stream.partial_fit(X, y, batch_id=0)
    assert np.array_equal(stream.component_classes_, fit.component_classes_)
    assert stream.elbo(X) == pytest.approx(fit.elbo(X), rel=1e-7)
    assert np.array_equal(stream.component_classes_[stream.labels_[y >= 0]], y[y >= 0])


def in_calls(X, y):
    """Rows and labels of three calls, whose known classes are 0; 0 and 1; and 0, 1 and 2."""
    return [
        (X[rows], np.where(y[rows] < known, y[rows], -1))
        for known, rows in enumerate(np.split(np.arange(len(X)), 3), 1)
    ]


def of_three_classes(seed):
    """Rows of three classes, their classes, and labels of a fifth of them."""
    X, z, _ = drawn(seed, n=450, distance=5.0, n_classes=3)
    return X, z, np.where(np.random.default_rng(seed).random(450) < 0.2, z, -1)


@pytest.mark.slow
def test_components_get_the_classes_of_later_calls_even_after_a_file(tmp_path):
    """Births find all classes in the first call; later labels name them."""
    X, z, y = of_three_classes(3)
    mixture, calls = plain(moves=("birth", "merge")), in_calls(X, y)
    for (rows, labels), classes in zip(calls, ([-1, -1, 0], [-1, 0, 1], [0, 1, 2]), strict=True):
        mixture.partial_fit(rows, labels)
        assert sorted(mixture.component_classes_) == classes
        save(mixture, tmp_path / "mixture.skvt")
        mixture = load(tmp_path / "mixture.skvt")
    assert np.mean(mixture.component_classes_[mixture.predict(X)] == z) > 0.98
    for key, (rows, labels) in [*enumerate(calls)] * 2:
        mixture.partial_fit(rows, labels, batch_id=key)
    fit = plain(moves=("birth", "merge")).fit(X, np.concatenate([each for _, each in calls]))
    assert mixture.weights_ == pytest.approx(fit.weights_, rel=1e-3)


@pytest.mark.parametrize("method", ["memoized", "online"])
def test_a_stream_without_moves_gives_each_new_class_a_component(method):
    X, _, y = of_three_classes(3)
    mixture = plain(learning_method=method)
    for rows, labels in [(X[:9], np.full(9, -1)), *in_calls(X, y), (X, y), (X, y)]:
        mixture.partial_fit(rows, labels)
    classes = mixture.component_classes_
    assert {0, 1, 2} <= set(classes.tolist())
    assert np.array_equal(classes[mixture.labels_][y >= 0], y[y >= 0])


def test_a_warm_start_takes_labels_and_new_classes():
    X, _, y = of_three_classes(3)
    mixture = plain(warm_start=True, max_iter=20).fit(X, np.where(y < 2, y, -1))
    mixture.fit(X, y)
    assert mixture.component_classes_.tolist() == plain().fit(X, y).component_classes_.tolist()
    before = mixture.elbo_
    assert mixture.fit(X, y).elbo_ >= before - 1e-9 * abs(before)
    named = mixture.set_params(use_labels=False).fit(X)
    assert not hasattr(named, "component_classes_")


@pytest.mark.parametrize(("parameters", "later", "message"), [
    ({"max_components": 2}, [2], "The class 2 has no component.*to at least 3"),
    (FINITE | {"n_components": 3}, [2], "Pass all classes in y of the first call"),
    ({}, ["a"], r"one type.*\['int', 'str'\]"),
])  # fmt: skip
def test_classes_that_cannot_be_added_are_refused_before_any_work(parameters, later, message):
    X, _, y = drawn(5)
    mixture = plain(**parameters).partial_fit(X, y)
    before = mixture.weights_
    with pytest.raises(ValueError, match=message):
        mixture.partial_fit(X[:1], np.array(later, object))
    assert np.array_equal(mixture.weights_, before)


# ------------------------------------------------------------------------------------- errors
BAD = {
    "no y": ({}, lambda y: None, "Got None"),
    "wrong length": ({}, lambda y: y[1:], r"\(n_samples,\) = \(200,\)"),
    "all unknown": ({}, lambda y: np.full(len(y), -1), "at least one row"),
    "NaN": ({}, lambda y: np.where(y < 0, np.nan, y), "set y to -1"),
    "dates": ({}, lambda y: y.astype("M8[D]"), r"datetime64\[D\]; convert them"),
    "two types": ({}, lambda y: np.array([0, "a"] * 100, object), r"\['int', 'str'\]"),
    "starts": ({"labels_init": np.zeros(200)}, None, "cannot be combined with 'labels_init'"),
    "too many components": ({"n_components": 3}, None, r"\[1, 2\]"),
    "too little room": ({"max_components": 1}, None, "'max_components'"),
    "too few of a Dirichlet": (FINITE | {"n_components": 1}, None, r"\[2, inf"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_labels_are_refused_before_any_work(case):
    X, _, y = drawn(4)
    parameters, change, message = BAD[case]
    mixture = plain(**parameters)
    with pytest.raises(ValueError, match=message):
        mixture.fit(X, change(y) if change else y)
    assert not hasattr(mixture, "n_features_in_")


def test_each_class_needs_a_row_of_positive_weight():
    X, _, y = drawn(4)
    with pytest.raises(ValueError, match="a row of positive weight"):
        plain().fit(X, y, sample_weight=np.where(y == 1, 0.0, 1.0))


def test_resume_refuses_labels(tmp_path):
    X, _, y = drawn(6)
    mixture = plain(max_iter=3, tol=1.0)
    mixture.set_callbacks(Checkpoint(tmp_path / "part.skvt")).fit(X, y)
    part = load(tmp_path / "part.skvt")
    assert part.component_classes_.tolist() == mixture.component_classes_.tolist()
    with pytest.raises(ValueError, match="resume cannot use labels"):
        part.resume(X, y)


def test_refits_without_labels_have_no_bound_beside_that_with_labels():
    X, _, y = drawn(0, n=60)
    mixture = MemoizedDPGMM(use_labels=True, random_state=0).fit(X, y)
    table = mixture.compare_clusterings(X, y, n_fits=0).clusterings_
    assert np.isfinite(table["bound"]).all() and np.isnan(table["refitted_bound"]).all()


# --------------------------------------------------------------------------------------- goals
@pytest.mark.slow
def test_few_labels_of_overlapping_classes_are_enough():
    """The classes are two standard deviations apart: the optimal rule finds Phi(1) = 0.841."""
    lost = []
    for seed in range(5):
        X, _, y = drawn(seed, n=1500, distance=2.0, share=0.08)
        mixture = MemoizedDPGMM(use_labels=True, random_state=0).fit(X, y)
        other, z, _ = drawn(100 + seed, n=20_000, distance=2.0)
        found = mixture.component_classes_[mixture.predict(other)]
        lost.append(np.mean((other[:, 0] > 1.0) == z) - np.mean(found == z))
    assert max(lost) <= 0.02, lost


@pytest.mark.slow
def test_a_class_without_labels_is_found():
    """The three classes of 200 rows are five standard deviations apart."""
    found = []
    for seed in range(10):
        X, z, y = drawn(seed, n=600, distance=5.0, share=0.08, n_classes=3)
        mixture = MemoizedDPGMM(use_labels=True, random_state=0).fit(X, y)
        classes = mixture.component_classes_[mixture.predict(X)]
        found.append(np.mean(classes == np.where(z == 2, -1, z)) > 0.95)
    assert sum(found) >= 9, found
