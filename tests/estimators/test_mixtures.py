"""Mixtures find components, give labels, densities and draws, and make moves."""

import re
import tracemalloc
import warnings
from functools import partial
from itertools import product

import numpy as np
import pytest
from estimators._registry import (
    ENTRIES,
    Interrupter,
    assert_same_fit,
    every_mixture,
    every_pair,
    is_mixture,
    published,
    refusal,
    refused,
    rows,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture

from skvt import (
    AnnealedFactorialMixture,
    CAVIGaussianMixture,
    MemoizedDPGMM,
    MemoizedDPMixture,
    MemoizedHDP,
    StructuredBernoulliMixture,
    load,
    save,
)
from skvt.components import Gaussian
from skvt.datasets import make_edge_patches
from skvt.expfam import NormalWishart
from skvt.fitting import check_memoized, choose_max_components
from skvt.inference import MemoizedInference
from skvt.models.mixture.components import cluster_along_line
from skvt.moves import Birth, compute_bound
from skvt.temperature import ConstantTemperature, LinearAnnealing

SHAPES = ["full", "diag", "spherical"]
each_kind = pytest.mark.parametrize(
    "kind",
    [
        *({"covariance_type": shape, "mean_type": "full"} for shape in SHAPES),
        {"covariance_type": "full", "mean_type": "zero"},
    ],
    ids=lambda kind: "-".join(kind.values()),
)


# Priors given by the data, none of them learned.
PUBLISHED = dict.fromkeys(
    ("mean_prior", "mean_precision_prior", "degrees_of_freedom_prior", "covariance_prior")
)


def with_room(n_components=1, **params):
    """With room for one more than three components: births take less time."""
    room = {"max_components": max(4, n_components + 1)} if isinstance(n_components, int) else {}
    return MemoizedDPGMM(n_components, **(room | params))


def clusters(n=300, seed=0, *, D=2, distance=9.0):
    """Three clusters far apart, and their labels."""
    rng = np.random.default_rng(seed)
    means = distance * np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    means = np.pad(means, [(0, 0), (0, D - 2)]) if D > 1 else means[:, :1] + 0.5 * means[:, 1:]
    labels = rng.integers(3, size=n)
    return means[labels] + rng.standard_normal((n, D)), labels


# ------------------------------------------------------------------------------ known answers
@pytest.mark.slow
def test_eight_orientations_of_edges_are_found_from_one_component():
    X, labels, _, _ = make_edge_patches(20_000, random_state=0)
    mixture = MemoizedDPGMM(mean_type="zero", random_state=0).fit(X)
    assert mixture.n_components_ == 8
    found = mixture.predict(X)
    assert adjusted_rand_score(labels, found) > 0.99
    for k in range(8):
        part = X[labels == np.bincount(labels[found == k]).argmax()]
        covariance = part.T @ part / len(part)
        error = np.linalg.norm(mixture.covariances_[k] - covariance)
        # The prior counts as 25 rows of 2,500.
        assert error < 0.02 * np.linalg.norm(covariance)


@every_pair("shape, kind", ["full", "diag"], ["dirichlet_process", "dirichlet_distribution"])
def test_fixed_components_are_those_of_scikit_learn(shape, kind):
    # Each row certainly belongs to one component, so that equal priors have equal posteriors.
    X, _ = clusters(distance=60.0)
    covariance = np.diag([1.5, 0.8]) if shape == "full" else np.array([1.5, 0.8])
    priors = {
        "covariance_type": shape, "weight_concentration_prior_type": kind,
        "weight_concentration_prior": 0.7, "reg_covar": 0.2, "mean_precision_prior": 0.5,
        "mean_prior": np.array([1.0, -1.0]), "degrees_of_freedom_prior": 3.5,
        "covariance_prior": covariance, "random_state": 0,
    }  # fmt: skip
    ours = with_room(3, moves=(), n_init=5, **priors).fit(X)
    theirs = BayesianGaussianMixture(n_components=3, n_init=5, tol=1e-8, **priors).fit(X)
    places, order = (np.argsort(-mixture.weights_) for mixture in (ours, theirs))
    for name in ("means_", "covariances_", "precisions_", "precisions_cholesky_", "weights_",
                 "mean_precision_", "degrees_of_freedom_"):  # fmt: skip
        np.testing.assert_allclose(
            getattr(ours, name)[places], getattr(theirs, name)[order], rtol=1e-6, atol=1e-9,
            err_msg=name,
        )  # fmt: skip
    of_weights = [np.asarray(mixture.weight_concentration_) for mixture in (ours, theirs)]
    first = [np.sort(values.reshape(-1, 3)[0]) for values in of_weights]
    np.testing.assert_allclose(*first, rtol=1e-9)
    assert ours.weight_concentration_prior_ == pytest.approx(0.7)
    found = np.argsort(places)[ours.predict(X)]
    np.testing.assert_array_equal(found, np.argsort(order)[theirs.predict(X)])


def test_a_finite_dirichlet_has_its_components_throughout():
    X, labels = clusters()
    mixture = MemoizedDPGMM(
        7, weight_concentration_prior_type="dirichlet_distribution", random_state=0
    ).fit(X)
    assert mixture.n_components_ == mixture.weights_.size == len(mixture.means_) == 7
    assert mixture.weight_concentration_prior_ == pytest.approx(1.0 / 7.0)
    assert mixture.move_log_["move"] == []
    # Labels of fewer components leave the others without rows.
    mixture.set_params(labels_init=labels).fit(X)
    assert mixture.n_components_ == 7 and mixture.n_active_components_ == 3
    assert adjusted_rand_score(labels, mixture.predict(X)) == 1.0
    np.testing.assert_allclose(mixture.means_[5], mixture.mean_prior_, atol=0.1)
    mixture.partial_fit(X[:50])
    assert mixture.n_components_ == 7
    with pytest.raises(ValueError, match=r"'weight_concentration_prior' parameter .* Got 'auto'"):
        mixture.set_params(weight_concentration_prior="auto").fit(X)


@pytest.mark.quick_cases("full-full", "tied")
@pytest.mark.parametrize(
    ("shape", "mean_type"), [("full", "zero"), *product([*SHAPES, "tied"], ["full"])]
)
def test_no_variance_falls_below_the_regularisation(shape, mean_type):
    X, _ = clusters(distance=60.0)
    # Nearly all rows are alike.
    X = np.round(X, -1) + np.array([0.0, 70.0])
    free, floored = (
        MemoizedDPGMM(3, covariance_type=shape, mean_type=mean_type, mean_prior=None,
                      mean_precision_prior=None, degrees_of_freedom_prior=None,
                      covariance_prior=None, reg_covar=floor, random_state=0).fit(X)
        for floor in (0.0, 9_000.0)
    )  # fmt: skip
    least = [
        np.linalg.eigvalsh(mixture.covariances_).min()
        if shape in ("full", "tied")
        else mixture.covariances_.min()
        for mixture in (free, floored)
    ]
    assert least[0] < 9_000.0 <= least[1] * (1.0 + 1e-9)
    # The bound is that of rows measured with such an error, and each pass raises it.
    elbos = np.array(floored.history_["elbo"])
    assert np.all(np.diff(elbos) > -1e-9 * np.abs(elbos[:-1]))
    assert np.isfinite(floored.score(X))


def test_printed_lines_name_the_start_the_components_and_the_moves(capsys):
    X, _ = clusters()
    mixture = MemoizedDPGMM(verbose=1, n_init=2, max_iter=4, tol=0.0, random_state=0).fit(X)
    lines = [line for line in capsys.readouterr().out.splitlines() if "pass" in line]
    parts = [re.match(r"start (\d) of 2, pass (\d): .* nats, (\d+) comp", line) for line in lines]
    assert [part.groups()[:2] for part in parts] == [*product("12", "1234")]
    best = 4 * int(mixture.restart_elbos_.argmax())
    shown = [int(part.group(3)) for part in parts[best : best + 4]]
    assert shown == mixture.history_["n_components"]
    log = mixture.move_log_
    sums = log.to_frame().groupby(["n_iter", "move"], sort=False)[["proposed", "accepted"]].sum()
    told = {n_iter: "" for n_iter in range(1, 5)}
    for (n_iter, move), (tried, kept) in zip(sums.index, sums.to_numpy(), strict=True):
        added = f"{kept} component{'s' if kept != 1 else ''} added"
        words = f"births {tried} tried, {added}" if move == "birth" else f"{move} {kept} of {tried}"
        told[n_iter] += f"{words}, "
    assert any("births" in words for words in told.values())
    assert "nats, 1 component, " in lines[0]
    for line, words in zip(lines[best : best + 4], told.values(), strict=True):
        assert re.search(r"components?, " + re.escape(words) + r"\d", line)


# ------------------------------------------------------------------------------------ densities
@every_mixture
def test_labels_are_the_most_probable_components(entry):
    X = entry.data()
    mixture = entry.make(**entry.still).fit(X)
    chances = mixture.predict_proba(X)
    assert chances.shape == (40, mixture.n_components_)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(mixture.predict(X), chances.argmax(axis=1))
    np.testing.assert_array_equal(entry.make(**entry.still).fit_predict(X), mixture.predict(X))
    np.testing.assert_array_equal(mixture.labels_, mixture.predict(X))
    # Rows of weight 0 have labels, too.
    mixture.fit(X, sample_weight=np.arange(len(X)) % 2)
    np.testing.assert_array_equal(mixture.labels_, mixture.predict(X))


@every_mixture
def test_labels_after_a_call_of_a_stream_are_those_of_its_rows(entry):
    # Small calls are gathered, but each has its own labels.
    X, stream = entry.data(), entry.make()
    for part, weights in ((X[:9], None), (X[9:12], None), (X[12:], np.arange(28) % 2)):
        stream.partial_fit(part, sample_weight=weights)
        np.testing.assert_array_equal(stream.labels_, stream.predict(part))


# ---------------------------------------------------------------------------------------- draws
@each_kind
def test_draws_come_from_the_components_in_use(kind):
    X, _ = clusters(200, distance=5.0)
    mixture = with_room(3, random_state=0, moves=(), **kind).fit(X)
    drawn, labels = mixture.sample(20_000, random_state=1)
    assert drawn.shape == (20_000, 2) and labels.shape == (20_000,)
    assert np.all(np.diff(labels) >= 0)
    shares = np.bincount(labels, minlength=3) / 20_000
    error = np.sqrt(mixture.weights_ * (1.0 - mixture.weights_) / 20_000)
    assert np.all(np.abs(shares - mixture.weights_) < 4.5 * error)
    for k in range(3):
        part = drawn[labels == k]
        error = part.std(axis=0) / np.sqrt(len(part))
        assert np.all(np.abs(part.mean(axis=0) - mixture.means_[k]) < 4.5 * error)
    for seed in (1, None):
        one, other = (mixture.sample(5, random_state=seed)[0] for _ in range(2))
        np.testing.assert_array_equal(one, other)


# ------------------------------------------------------------------------------------ posteriors
@each_kind
def test_the_posterior_is_in_the_coordinates_of_the_data(kind):
    X, _ = clusters(200)
    X = X + 100.0
    mixture = with_room(3, random_state=0, moves=(), **kind, **PUBLISHED).fit(X)
    mean = mixture.posterior_.mean()
    assert set(mean) == {"weights", "components"}
    a, b = mixture.weight_concentration_
    np.testing.assert_allclose(mean["weights"], a / (a + b))
    if kind["mean_type"] == "full":
        means, precisions = mean["components"]
        np.testing.assert_allclose(np.squeeze(means), mixture.means_, rtol=1e-10)
    else:
        precisions = mean["components"]
    np.testing.assert_allclose(precisions, mixture.precisions_, rtol=1e-6)


# --------------------------------------------------------------------------- missing values
@pytest.mark.quick_cases("full-full", "full-zero")
@pytest.mark.filterwarnings("ignore:1 of 300 rows have NaN only:UserWarning")
@each_kind
def test_missing_values_are_left_out(kind):
    X, labels = clusters(300, D=4)
    mean_type = kind["mean_type"]
    if mean_type == "zero":
        X = X - X.mean(axis=0)
    gaps = np.random.default_rng(1).random(X.shape) < 0.2
    gaps[:, :2] = False
    held = np.where(gaps, np.nan, X)
    held[7] = np.nan
    mixture = with_room(**kind, random_state=0).fit(held)
    if mean_type == "full":
        assert mixture.n_components_ == 3
        others = np.delete(np.arange(300), 7)
        assert adjusted_rand_score(labels[others], mixture.predict(held)[others]) == 1.0
    assert all(np.isfinite(value).all() for value in mixture.history_.values())
    scores = mixture.score_samples(held)
    assert np.isfinite(scores).all()
    assert scores[7] == pytest.approx(0.0, abs=1e-12)


def fits_with_an_empty_column(**settings):
    """Clusters, a fit of them, and a fit of them beside a column without any value."""
    X, labels = clusters()
    X = X if settings.get("mean_type") != "zero" else X - X.mean(axis=0)
    empty = np.column_stack([X, np.full(300, np.nan)])
    settings = PUBLISHED | {"random_state": 0} | settings
    one = with_room(**settings).fit(X)
    with pytest.warns(UserWarning, match=r"1 of 3 columns have NaN only.*columns 2\)"):
        other = with_room(**settings).fit(empty)
    return X, empty, labels, one, other


@pytest.mark.filterwarnings("ignore:1 of 3 columns have NaN only:UserWarning")
@pytest.mark.parametrize("shape, prior", [("diag", None), ("spherical", 1.0)])
def test_a_column_without_any_value_changes_nothing(shape, prior):
    X, empty, _, one, other = fits_with_an_empty_column(
        covariance_type=shape, degrees_of_freedom_prior=2.0, covariance_prior=prior
    )
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(empty), rtol=1e-9)
    np.testing.assert_allclose(one.score_samples(X), other.score_samples(empty), rtol=1e-9)
    assert one.elbo_ == pytest.approx(other.elbo_, rel=1e-9)


@pytest.mark.filterwarnings("ignore:1 of 3 columns have NaN only:UserWarning")
@pytest.mark.parametrize("mean_type", ["full", "zero"])
def test_full_covariances_have_none_with_a_column_without_any_value(mean_type):
    _, empty, labels, one, other = fits_with_an_empty_column(mean_type=mean_type)
    # The prior variance of the column is the mean of those of the others.
    variance = np.mean(np.append(np.diagonal(one.covariance_prior_), 0.0))
    prior = other.covariance_prior_
    np.testing.assert_allclose(prior[:-1, :-1], one.covariance_prior_, rtol=1e-4)
    np.testing.assert_allclose(prior[-1], [0.0, 0.0, variance], rtol=1e-4, atol=1e-9)
    if mean_type == "full":
        assert adjusted_rand_score(labels, other.predict(empty)) == 1.0
    assert np.isfinite(other.score_samples(empty)).all()


# -------------------------------------------------------------------- where and how data lie
@pytest.mark.quick_cases("moves3", "moves1")
@pytest.mark.parametrize(
    "shape, moves",
    [("full", ()), ("diag", ()), ("spherical", ()), ("full", ("birth", "merge", "delete"))],
)
def test_a_far_origin_changes_nothing(shape, moves):
    X = rows(n_rows=200)
    settings = {"covariance_type": shape, "moves": moves, "random_state": 0, "batch_size": 50}
    near = with_room(3, **settings).fit(X)
    far = with_room(3, **settings).fit(X + 1e8)
    np.testing.assert_allclose(far.means_ - 1e8, near.means_, atol=1e-6)
    np.testing.assert_allclose(far.covariances_, near.covariances_, rtol=1e-6, atol=1e-6)
    assert far.elbo_ == pytest.approx(near.elbo_, rel=1e-6)
    np.testing.assert_allclose(far.predict_proba(X + 1e8), near.predict_proba(X), atol=1e-5)
    np.testing.assert_allclose(far.score_samples(X + 1e8), near.score_samples(X), atol=1e-5)
    drawn = [mixture.sample(50, random_state=0)[0] for mixture in (near, far)]
    np.testing.assert_allclose(drawn[1] - 1e8, drawn[0], atol=1e-5)


@pytest.mark.quick_cases("full-full")
@pytest.mark.parametrize("shape, mean_type", [("full", "full"), ("full", "zero"), ("diag", "full")])
def test_units_of_columns_change_nothing(shape, mean_type):
    X, unit = rows(n_rows=200), np.array([1e-6, 1.0, 1e6])
    settings = {"covariance_type": shape, "mean_type": mean_type, "random_state": 0}
    one, other = with_room(3, **settings).fit(X), with_room(3, **settings).fit(X * unit)
    assert one.n_components_ == other.n_components_ > 1
    np.testing.assert_allclose(other.means_ / unit, one.means_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(other.predict_proba(X * unit), one.predict_proba(X), atol=1e-7)
    shift = np.log(unit).sum()
    np.testing.assert_allclose(
        other.score_samples(X * unit), one.score_samples(X) - shift, atol=1e-7
    )
    assert other.elbo_ == pytest.approx(one.elbo_ - 200 * shift, rel=1e-8)


@pytest.mark.parametrize("shape", ["full", "spherical"])
def test_a_rotation_changes_nothing(shape):
    X = rows(n_rows=200)
    Q = np.linalg.qr(np.random.default_rng(3).standard_normal((3, 3)))[0]
    settings = {"covariance_type": shape, "random_state": 0, "init_params": "random_from_data"}
    # Fits begin with one component, because a rotation changes the order in which rows are drawn.
    one = with_room(moves=("merge",), **settings).fit(X)
    other = with_room(moves=("merge",), **settings).fit(X @ Q)
    # What keeps the default prior of collinear columns positive definite makes a small difference.
    assert other.elbo_ == pytest.approx(one.elbo_, rel=1e-8)
    np.testing.assert_allclose(other.score_samples(X @ Q), one.score_samples(X), rtol=1e-6)
    np.testing.assert_allclose(other.means_, one.means_ @ Q, atol=1e-9)
    grown = [with_room(**settings).fit(clusters()[0] @ R) for R in (np.eye(2), Q2)]
    assert grown[0].n_components_ == grown[1].n_components_ == 3
    assert grown[0].elbo_ == pytest.approx(grown[1].elbo_, rel=1e-6)


Q2 = np.array([[0.6, 0.8], [-0.8, 0.6]])


@pytest.mark.parametrize(
    "n_dependent, start", [(3, {}), (2, {"n_components": 6, "moves": ("merge", "delete")})]
)
def test_dependent_columns_do_not_hide_the_clusters(n_dependent, start):
    rng = np.random.default_rng(0)
    means = np.array([[-5.0, 0.0, 0.0], [0.0, 5.0, 0.0], [5.0, 0.0, 3.0]])
    labels = np.arange(600) % 3
    X = means[labels] + rng.standard_normal((600, 3))
    X = np.c_[X, X @ rng.standard_normal((3, n_dependent))]
    mixture = with_room(random_state=0, **start).fit(X)
    assert mixture.n_components_ == 3
    assert adjusted_rand_score(labels, mixture.predict(X)) > 0.95


@pytest.mark.parametrize(
    "make",
    [
        partial(with_room, covariance_type="full"), partial(with_room, covariance_type="diag"),
        partial(
            MemoizedDPMixture, max_components=4,
            components=[("a", Gaussian(), [0, 1]), ("b", Gaussian(), slice(2, None))],
        ),
    ],
    ids=["full", "diag", "a block of constants"],
)  # fmt: skip
def test_constant_columns_do_not_hide_the_clusters(make):
    X, labels = clusters(600)
    X = np.c_[X, np.tile([3.0, 0.0, -7.0, 1e-3], (600, 1))]
    mixture = make(random_state=0).fit(X)
    assert mixture.n_components_ == 3
    assert adjusted_rand_score(labels, mixture.predict(X)) > 0.95


EXTREMES = {
    "one row": lambda X: X[:1], "two rows": lambda X: X[:2], "one column": lambda X: X[:, :1],
    "all rows the same": lambda X: np.repeat(X[:1], 60, axis=0), "zeros": lambda X: 0.0 * X,
    "a constant column": lambda X: np.column_stack([X, np.full(len(X), 3.0)]),
    "a column twice": lambda X: np.column_stack([X, X[:, 0]]),
    "each row three times": lambda X: np.repeat(X, 3, axis=0),
    "fewer rows than columns": lambda X: np.random.default_rng(0).standard_normal((5, 20)),
    "scales far apart": lambda X: X * np.geomspace(1e-6, 1e6, X.shape[1]),
    "integers": lambda X: np.round(X).astype(int), "large": lambda X: 1e12 * X,
    "an outlier": lambda X: np.concatenate([X, [1e6 * (-1.0) ** np.arange(X.shape[1])]]),
}  # fmt: skip


# Each class meets all extremes, and each extreme meets one of the other engines in turn.
MIXTURES = [entry for entry in ENTRIES if is_mixture(entry)]
OTHER_ENGINES = [entry for entry in MIXTURES if entry.alike]


@pytest.mark.quick_cases("float64")
@every_pair(
    "entry, extreme, dtype, n_components",
    MIXTURES,
    list(EXTREMES),
    ["float32", "float64"],
    [1, 3],
    legal=lambda entry, extreme, *_: (
        not entry.alike
        or OTHER_ENGINES.index(entry) == list(EXTREMES).index(extreme) % len(OTHER_ENGINES)
    ),
)
def test_extreme_rows_give_finite_answers(entry, extreme, dtype, n_components):
    X = EXTREMES[extreme](entry.data()).astype(dtype)
    mixture = entry.make(n_components=min(n_components, len(X)), **entry.unwatched).fit(X)
    for name, value in published(mixture).items():
        if name in (*entry.shown, "elbo_", "restart_elbos_", "weight_concentration_"):
            assert np.isfinite(value).all(), name
    assert all(np.isfinite(value).all() for value in mixture.history_.values())
    assert all(np.isfinite(answer).all() for answer in entry.answers(mixture, X))
    drawn, _ = mixture.sample()
    assert np.isfinite(drawn).all() and drawn.shape == (1, X.shape[1]) and drawn.dtype == dtype
    assert np.isfinite(mixture.partial_fit(X).score(X))
    np.testing.assert_allclose(mixture.weights_.sum(), 1.0, rtol=1e-6)


# ------------------------------------------------------------------------------- what is recorded
@pytest.mark.parametrize(
    "shape, learning_method", [("full", "memoized"), ("diag", "batch"), ("spherical", "online")]
)
def test_the_history_the_moves_and_the_bound_agree(shape, learning_method):
    X, labels = clusters()
    mixture = with_room(
        covariance_type=shape, learning_method=learning_method, batch_size=100, max_iter=12,
        random_state=0,
    ).fit(X)  # fmt: skip
    history, log = mixture.history_, mixture.move_log_
    assert mixture.lower_bounds_ == history["elbo"] and mixture.lower_bound_ == mixture.elbo_
    assert list(log) == [
        "n_iter", "move", "target", "tried", "proposed", "accepted", "gain", "reason"
    ]  # fmt: skip
    if learning_method == "online":
        assert all(column == [] for column in log.values())
        return
    assert adjusted_rand_score(labels, mixture.labels_) == 1.0
    # The bound is exact, but components that dissolve at the very end may cost a little.
    assert history["elbo"][-1] - 1.0 < mixture.elbo_ <= mixture.elbo(X) + 1e-9
    assert set(log["move"]) <= {"delete", "merge", "birth"}
    assert log["n_iter"] == sorted(log["n_iter"]) and set(log["n_iter"]) <= {*history["n_iter"]}
    for row in log.to_frame().itertuples():
        assert row.gain > 0.0 or not row.accepted
        assert row.proposed >= 1 and row.reason.endswith(".") and row.tried
        if row.accepted and row.move != "birth":
            assert row.accepted == row.proposed == 1
        if row.move == "merge":
            assert len(set(row.target.split(", "))) == 2
    # The text has a line for the names and one for each proposal.
    lines = repr(log).splitlines()
    assert lines[0].split() == list(log) and lines[-1].endswith(log["reason"][-1])
    assert len(lines) == len(log["move"]) + 1


@pytest.mark.parametrize("moves", [("merge",), ["delete"], ("birth",), ("merge", "delete"), ()])
def test_only_the_moves_asked_for_are_made(moves):
    X = rows(n_rows=100)
    mixture = with_room(4, moves=moves, random_state=0).fit(X)
    assert set(mixture.move_log_["move"]) <= set(moves)
    if not moves:
        assert mixture.history_["n_components"] == [4] * mixture.n_iter_
        assert mixture.n_components_ == 4
    elif "birth" not in moves:
        assert np.all(np.diff([4, *mixture.history_["n_components"]]) <= 0)


def test_there_are_no_more_components_than_allowed():
    X, _ = clusters()
    mixture = with_room(max_components=2, batch_size=100, random_state=0).fit(X)
    assert mixture.n_components_ == max(mixture.history_["n_components"]) == 2
    stream = with_room(max_components=2, random_state=0)
    for part in np.array_split(X, 3):
        assert stream.partial_fit(part).n_components_ <= 2


# --------------------------------------------------------------------------------- temperatures
@pytest.mark.quick_cases("diag")
@pytest.mark.parametrize(
    "shape, temperature",
    [("full", LinearAnnealing(2.0)), ("diag", LinearAnnealing(5.0, replication=1))],
)
def test_an_annealed_fit_ends_cold_and_makes_moves_then(shape, temperature):
    X, _ = clusters()
    mixture = with_room(
        3, temperature=temperature, covariance_type=shape, max_iter=40, batch_size=100, tol=0.0,
        random_state=0,
    ).fit(X)  # fmt: skip
    hot = np.array(mixture.history_["temperature"]) > 1.0
    assert hot[0] and not hot[-1]
    last_hot = np.flatnonzero(hot)[-1] + 1
    assert min(mixture.move_log_["n_iter"]) > last_hot
    elbo, objective = (np.array(mixture.history_[name]) for name in ("elbo", "objective"))
    np.testing.assert_array_equal(elbo[~hot], objective[~hot])
    assert mixture.n_components_ == 3
    # At T = 1, all rows count once.
    assert (mixture.weight_concentration_[0] - 1.0).sum() == pytest.approx(300.0, rel=1e-12)


def test_components_that_heat_makes_equal_differ_again_after_it():
    X, labels = clusters()
    mixture = with_room(
        3, temperature=LinearAnnealing(300.0, n_passes=15.0, replication=1.0), moves=(),
        max_iter=60, batch_size=100, random_state=0, covariance_type="spherical",
    ).fit(X)  # fmt: skip
    assert adjusted_rand_score(labels, mixture.predict(X)) == 1.0


def test_at_a_constant_temperature_above_one_no_move_is_made():
    X, _ = clusters()
    mixture = with_room(3, temperature=ConstantTemperature(1.5), random_state=0).fit(X)
    assert mixture.move_log_["move"] == []
    assert mixture.converged_ and mixture.n_components_ == 3
    objective = np.array(mixture.history_["objective"])
    assert np.all(np.diff(objective) > -1e-9 * np.abs(objective[0]))


# ------------------------------------------------------------------------------------- streams
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
# For each layout, the centres, the number of rows of each, and the type of covariance.
LAYOUTS = {
    "in a row": (10.0 * np.c_[np.arange(6), np.zeros(6)], 60, "full"),
    "in two of twenty columns": (np.pad(10.0 * CORNERS, [(0, 0), (0, 18)]), 100, "diag"),
    "on two scales": (
        (100.0 * CORNERS[:3, None] + 8.0 * CORNERS[:3]).reshape(-1, 2), 40, "full"
    ),
    "of more rows than births take": (12.0 * np.arange(5)[:, None], 3_000, "spherical"),
}  # fmt: skip


@pytest.mark.quick_cases("columns")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_clear_clusters_are_found_by_default(layout):
    centres, size, shape = LAYOUTS[layout]
    # The rows are sorted, as files often are.
    labels = np.repeat(np.arange(len(centres)), size)
    rng = np.random.default_rng(0)
    X = centres[labels] + rng.standard_normal((len(labels), centres.shape[1]))
    mixture = MemoizedDPGMM(covariance_type=shape, random_state=0).fit(X)
    assert mixture.n_components_ == len(centres)
    assert adjusted_rand_score(labels, mixture.predict(X)) > 0.99
    known = MemoizedDPGMM(covariance_type=shape, labels_init=labels, random_state=0).fit(X)
    assert mixture.elbo_ > known.elbo_ - 2.0


@pytest.mark.slow
def test_a_large_cluster_beside_a_small_one_stays_whole():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((20_040, 3))
    X[20_000:, 0] += 9.0
    mixture = MemoizedDPGMM(random_state=2).fit(X)
    assert np.bincount(mixture.predict(X)).tolist() == [20_000, 40]


def test_a_cluster_first_seen_beside_another_leaves_no_component_between_them():
    rng, y = np.random.default_rng(0), np.repeat(np.arange(5), 100)
    X = 20.0 * y[:, None] + rng.standard_normal((500, 1))
    mixture = MemoizedDPGMM(random_state=0)
    for part in np.split(X, 5):
        mixture.partial_fit(part)
    assert mixture.n_components_ == 5
    np.testing.assert_allclose(mixture.weights_, 0.2, atol=0.003)


@pytest.mark.slow
@pytest.mark.parametrize("diagonal", [False, True])
def test_many_clusters_in_a_line_are_found_beside_columns_of_noise(diagonal):
    labels, rng = np.repeat(np.arange(30), 40), np.random.default_rng(0)
    X = rng.standard_normal((labels.size, 2 if diagonal else 4))
    X[:, : 1 + diagonal] += 8.0 * labels[:, None] / np.sqrt(1.0 + diagonal)
    mixture = MemoizedDPGMM(random_state=0).fit(X)
    assert mixture.n_components_ == 30
    assert adjusted_rand_score(labels, mixture.labels_) > 0.99


def test_rounded_values_are_no_clusters_in_a_line():
    X = np.random.default_rng(0).integers(0, 20, (1000, 1)).astype(np.float64)
    assert cluster_along_line(X, np.ones(1000)).max() == 0
    X[:, 0] += np.random.default_rng(1).normal(0.0, 0.02, 1000)
    assert cluster_along_line(X, np.ones(1000)).max() == 19


LINES = {
    "six": ([(15.0 * i, -9.0 * i, 0.0) for i in range(6)], [100] * 6),
    "nine": ([(12.0 * i, 0.0) for i in range(9)], [80] * 9),
    "fourteen": ([(12.0 * i,) for i in range(14)], [60] * 14),
    "uneven": ([(15.0 * i, -9.0 * i, 0.0) for i in range(6)], [800, 400, 200, 100, 60, 40]),
    "grid": ([(12.0 * i, 12.0 * j) for i in range(4) for j in range(4)], [120] * 16),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, size",
    # A call of 300 rows has fewer than 20 rows of a cluster of the grid.
    [("six", 300), ("nine", 100), ("fourteen", 100), ("uneven", 300), ("grid", 300)],
)
def test_a_stream_of_clusters_in_a_line_ends_near_the_bound_of_a_fit(name, size):
    rng, (centres, sizes) = np.random.default_rng(0), LINES[name]
    X = np.repeat(centres, sizes, axis=0)
    X = rng.permutation(X + rng.standard_normal(X.shape))
    fit, stream = MemoizedDPGMM(random_state=0).fit(X), MemoizedDPGMM(random_state=0)
    for start in range(0, len(X), size):
        stream.partial_fit(X[start : start + size])
    state, model = stream._fitted.state, stream._fitted.model
    assert compute_bound(model, state.memos.total()) > fit.elbo_ - 0.01 * abs(fit.elbo_)


@pytest.mark.slow
@pytest.mark.quick_cases("True")
@pytest.mark.parametrize(
    "size, unit, named", [(15, 1.0, False), (15, 1.0, True), (100, 1e-3, False), (600, 1.0, False)]
)
def test_calls_of_any_size_find_clusters_that_come_one_after_the_other(size, unit, named):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 600 if size == 600 else 70)
    X = unit * (20.0 * np.c_[labels, -labels] + rng.standard_normal((len(labels), 2)))
    stream = with_room(random_state=0)
    for start in [*range(0, len(X), size)] * (1 + named):
        stream.partial_fit(X[start : start + size], batch_id=start if named else None)
    # Calls with an id remain batches of their own.
    assert not named or sorted(stream._fitted.memos) == list(range(0, len(X), size))
    assert (stream.weight_concentration_[0] - 1.0).sum() == pytest.approx(len(X))
    # One component may be left over, which a merge has yet to take.
    assert stream.n_components_ in (3, 4)
    assert adjusted_rand_score(labels, stream.predict(X)) > 0.95
    assert stream.elbo(X) == pytest.approx(with_room(random_state=0).fit(X).elbo_, rel=0.01)


@pytest.mark.parametrize("named", [False, True])
def test_gathered_calls_are_a_batch_and_are_saved(named, tmp_path):
    parts = np.array_split(clusters(200)[0], 10)
    ids = ["0123456789"[i] if named else None for i in range(10)]
    stream = with_room(random_state=0)
    for part, key in zip(parts[:5], ids, strict=False):
        stream.partial_fit(part, batch_id=key)
    save(stream, tmp_path / "stream")
    loaded = load(tmp_path / "stream")
    for part, key in zip(parts[5:], ids[5:], strict=True):
        stream.partial_fit(part, batch_id=key)
        loaded.partial_fit(part, batch_id=key)
    assert_same_fit(stream, loaded)
    assert (stream.weight_concentration_[0] - 1.0).sum() == pytest.approx(200.0)
    assert set(stream._fitted.state.memos) == (set(ids) if named else {0})
    if not named:
        # A batch with a name of its own ends the gathering.
        stream.partial_fit(parts[0], batch_id="other").partial_fit(parts[1])
        assert len(stream._fitted.state.memos) == 3


def test_a_call_computes_the_expectations_of_components_once(monkeypatch):
    computed = []

    def count(eta):
        computed.append(len(eta))
        return expectation(eta)

    expectation = NormalWishart.expectation
    X = np.random.default_rng(0).normal(size=(40, 2))
    stream = MemoizedDPGMM(moves=(), random_state=0).partial_fit(X[:20])
    monkeypatch.setattr(NormalWishart, "expectation", staticmethod(count))
    for start in (20, 30):
        # The call before has computed them for its labels.
        stream.partial_fit(X[start : start + 10])
    stream.predict(X[:1])
    assert computed == [1, 1]


@pytest.mark.parametrize("whom", ["A warm start", "partial_fit"])
def test_an_array_of_a_prior_that_was_written_to_is_refused_by_name(whom):
    prior, X = np.zeros(2), clusters(60)[0]
    fitted = MemoizedDPGMM(mean_prior=prior, max_components=2, warm_start=True, random_state=0)
    go_on = fitted.fit if whom == "A warm start" else fitted.partial_fit
    go_on(X)
    prior[0] = 3.0
    with pytest.raises(ValueError, match=rf"{whom} .*mean_prior=array\(\[0\., 0\.\]\)\. Got"):
        go_on(X)


def test_rows_of_a_call_that_is_not_gathered_are_not_kept_in_memory():
    stream = with_room(random_state=0).partial_fit(clusters(500)[0])
    assert stream._fitted.gathered is None
    # Calls of fewer rows are gathered until there are 500 rows.
    stream.partial_fit(clusters(400)[0])
    assert stream._fitted.gathered.X.shape == (400, 2)
    stream.partial_fit(clusters(400)[0])
    assert stream._fitted.gathered is None and len(stream._fitted.memos) == 2


def test_births_of_small_calls_are_tried_whenever_the_rows_have_grown_by_half(monkeypatch):
    tried, within = {}, Birth.change_within_batch

    def noted(birth, model, batch, *args):
        tried[batch.n_rows] = True
        return within(birth, model, batch, *args)

    monkeypatch.setattr(Birth, "change_within_batch", noted)
    stream, X = MemoizedDPGMM(max_components=1), np.random.default_rng(0).normal(size=(500, 1))
    for part in np.split(X, 25):
        stream.partial_fit(part)
    assert list(tried) == [20, 40, 60, 100, 160, 240, 360, 500]


def test_births_of_small_calls_wait_if_new_rows_are_like_the_others(monkeypatch):
    tried, birth_within = [], Birth._try_birth_within

    def noted(birth, trial, target):
        tried.append(trial.batch.n_rows)
        return birth_within(birth, trial, target)

    monkeypatch.setattr(Birth, "_try_birth_within", noted)
    stream, X = MemoizedDPGMM(random_state=0), np.random.default_rng(0).normal(size=(1030, 1))
    for part in np.split(X[:1000], 50):
        stream.partial_fit(part)
    assert tried == [60, 240, 500, 500]
    # Rows that differ get a component at once.
    assert stream.partial_fit(X[1000:] + 20.0).n_components_ == 2


def test_rows_that_change_their_component_are_compared_with_the_others():
    rng = np.random.default_rng(0)
    clusters_, noise = 6 * rng.integers(2, size=(300, 1)), rng.uniform(-20, 20, (60, 2))
    X = rng.permutation(np.concatenate([rng.normal(size=(300, 2)) + clusters_, noise]))
    stream = MemoizedDPGMM(background=True, random_state=0)
    for part in np.split(X, 18):
        stream.partial_fit(part)
    assert stream.n_components_ == 2


def test_a_small_call_with_an_id_is_visited_once(monkeypatch):
    visited, visit = [], MemoizedInference.visit

    def counted(engine, model, batches, *args):
        visited.extend(batch.n_rows for batch in batches)
        return visit(engine, model, batches, *args)

    monkeypatch.setattr(MemoizedInference, "visit", counted)
    stream = MemoizedDPGMM(random_state=0).partial_fit(clusters(10)[0], batch_id="first")
    assert visited == [10] and list(stream._fitted.memos) == ["first"]


def test_births_that_end_at_the_default_limit_are_named(monkeypatch):
    """A limit that the user gives is a decision, and needs no warning."""
    X, _ = clusters(150)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for most in (2, 4):
            MemoizedDPGMM(max_components=most, random_state=0).fit(X)
    monkeypatch.setattr(MemoizedDPGMM, "_default_max_components", 2)
    with pytest.warns(ConvergenceWarning, match="default maximum of 2 components"):
        MemoizedDPGMM(random_state=0).fit(X)


@pytest.mark.parametrize("make", [MemoizedDPGMM, MemoizedDPMixture, MemoizedHDP])
def test_the_maximum_number_of_components_rises_with_the_number_at_first(make):
    usual = choose_max_components(make())
    assert choose_max_components(make(usual // 2)) == usual
    many = make(usual + 1)
    check_memoized(many)
    assert choose_max_components(many) == 2 * (usual + 1)


def test_batches_without_ids_are_all_remembered():
    # Calls of 600 rows are too large to be gathered.
    parts = np.array_split(rows(n_rows=2400), 4)
    stream = with_room(moves=("merge", "delete"), random_state=0)
    for n, part in enumerate(parts):
        stream.partial_fit(part)
        assert (stream.weight_concentration_[0] - 1.0).sum() == pytest.approx(600.0 * (n + 1))
    named = with_room(moves=("merge", "delete"), random_state=0)
    for name, part in zip(range(4), parts, strict=True):
        named.partial_fit(part, batch_id=name)
    assert_same_fit(stream, named)
    # A batch of another size may take the place of one.
    named.partial_fit(parts[0][:20], batch_id=2)
    assert (named.weight_concentration_[0] - 1.0).sum() == pytest.approx(1820.0)


@pytest.mark.parametrize("batch_id", ["a", ("file", 3), -1, 2.5])
def test_only_hashable_values_are_names_of_batches(batch_id):
    parts = np.array_split(rows(n_rows=100), 2)
    mixture = with_room(moves=(), random_state=0).partial_fit(parts[0], batch_id=batch_id)
    mixture.partial_fit(parts[1]).partial_fit(parts[0], batch_id=batch_id)
    assert (mixture.weight_concentration_[0] - 1.0).sum() == pytest.approx(100.0)
    with refused(mixture, TypeError, match="unhashable"):
        mixture.partial_fit(parts[0], batch_id=[1])


def test_a_batch_of_fit_can_be_seen_again():
    X = rows(n_rows=200)
    mixture = with_room(3, moves=(), n_batches=4, max_iter=3, tol=0.0, random_state=0).fit(X)
    elbo = mixture.elbo(X)
    for key, part in enumerate(np.array_split(X, 4)):
        mixture.partial_fit(part, batch_id=key)
    assert (mixture.weight_concentration_[0] - 1.0).sum() == pytest.approx(200.0, rel=1e-9)
    assert mixture.elbo(X) >= elbo - 1e-9 * abs(elbo)
    # Other rows with the same id take the place of a batch of the fit.
    mixture.partial_fit(rows(5), batch_id=0)
    assert (mixture.weight_concentration_[0] - 1.0).sum() == pytest.approx(190.0, rel=1e-9)


def test_a_failure_amid_the_moves_of_a_batch_leaves_no_trace(monkeypatch):
    X, more = clusters(60)[0], clusters(60, seed=1)[0] + [0.0, 40.0]
    interrupter = Interrupter(monkeypatch, MIXTURES[0])

    def start():
        interrupter.arm(None, None)
        return with_room(random_state=0).partial_fit(X)

    whole = start()
    n_components = whole.n_components_
    points = interrupter.points_of_failure(lambda: whole.partial_fit(more))
    assert interrupter.count > 6 and whole.n_components_ > n_components
    for point in points:
        mixture = start()
        memos = dict(mixture._fitted.state.memos)
        interrupter.arm(point, RuntimeError)
        with refused(mixture, RuntimeError):
            mixture.partial_fit(more)
        interrupter.arm(None, None)
        kept = mixture._fitted.state.memos
        assert kept.keys() == memos.keys() and all(kept[key] is memos[key] for key in memos)
        # The mixture goes on as if nothing had happened.
        assert_same_fit(mixture.partial_fit(more), whole)


def test_moves_may_begin_later_in_a_stream():
    parts = np.array_split(rows(n_rows=300), 3)
    stream = with_room(4, moves=(), random_state=0).partial_fit(parts[0])
    assert stream.n_components_ == 4
    stream.set_params(moves=("birth", "merge", "delete"))
    for part in parts[1:]:
        stream.partial_fit(part)
    # Batches seen without moves keep merges waiting until they are seen again.
    stream.partial_fit(parts[0], batch_id=0)
    assert np.isfinite(stream.score(parts[0]))
    assert "merge" in stream.move_log_["move"]


def test_n_batches_and_batch_size_divide_fit_and_not_a_stream():
    X = rows(n_rows=60)
    for params, n_batches in (
        ({"n_batches": 6}, 6),
        ({"batch_size": 25}, 3),
        ({"batch_size": 100}, 1),
        ({}, 1),
        ({"learning_method": "batch", "n_batches": 6}, 1),
    ):
        assert with_room(moves=(), max_iter=1, **params).fit(X).n_batch_iter_ == n_batches
    # The batches of a stream are the calls.
    assert with_room(n_batches=100, moves=()).partial_fit(X).n_batch_iter_ == 1


# ---------------------------------------------------------------------------------- warm starts
@pytest.mark.parametrize("learning_method", ["memoized", "batch"])
def test_a_warm_start_on_other_rows_begins_with_what_was_learned(learning_method):
    X, _ = clusters()
    other, labels = clusters(500, seed=1)
    settings = {"learning_method": learning_method, "moves": (), "batch_size": 100}
    warm = with_room(3, warm_start=True, random_state=0, **settings).fit(X)
    n_before = warm.n_iter_
    warm.fit(other)
    assert adjusted_rand_score(labels, warm.predict(other)) == 1.0
    # Nothing of the first data is left.
    assert (warm.weight_concentration_[0] - 1.0).sum() == pytest.approx(500.0, rel=1e-9)
    assert warm.n_iter_ <= n_before + 4


# ------------------------------------------------------------------------------------ parameters
def test_priors_are_published_as_they_are_used():
    given = {"weight_concentration_prior": 0.2, "mean_prior": [0, 1, 2]}
    mixture = with_room(moves=(), random_state=0, **PUBLISHED | given).fit(rows())
    assert mixture.weight_concentration_prior_ == 0.2
    np.testing.assert_array_equal(mixture.mean_prior_, [0.0, 1.0, 2.0])
    assert (mixture.mean_precision_prior_, mixture.degrees_of_freedom_prior_) == (1.0, 3.0)
    np.testing.assert_allclose(mixture.covariance_prior_, np.cov(rows().T, ddof=0), rtol=1e-4)


@pytest.mark.parametrize(
    "params, message",
    [
        ({"n_components": 41}, r"n_components = 41, n_samples = 40"),
        ({"n_components": 5, "max_components": 4}, r"'max_components' .* = \[5, inf\)\. Got 4"),
        ({"n_batches": 2, "batch_size": 9}, "n_batches or batch_size, not both"),
        ({"moves": ("birth", "split")}, r"'moves' .*'delete'.* Got 'split'"),
        ({"mean_prior": [0.0, 1.0]}, r"'mean_prior' .*\(3,\).*\(2,\)"),
        ({"mean_prior": [0.0, 1.0, np.nan]}, "'mean_prior' .* finite"),
        (
            {"degrees_of_freedom_prior": 2.0},
            r"'degrees_of_.*greater than 2, .*got 2\.000\..*\(n_features - 1, inf\)",
        ),
        ({"covariance_prior": 1.0}, r"'covariance_prior' .*\(3, 3\).*\(\)"),
        ({"covariance_prior": np.ones(3)}, r"type='full'.*'covariance_prior' .*\(3, 3\).*\(3,\)"),
        (
            {"covariance_prior": np.eye(3), "covariance_type": "diag"},
            r"'diag'.*'covariance_prior' .*\(3,\).*\(3, 3\)",
        ),
        (
            {"covariance_prior": np.ones(3), "covariance_type": "spherical"},
            r"'spherical'.*'covariance_prior' .*a number.*\(3,\)",
        ),
        ({"covariance_prior": np.eye(3) + np.eye(3, k=1)}, "positive definite"),
        ({"covariance_prior": np.ones((3, 3))}, "positive definite"),
        ({"covariance_prior": np.diag([1.0, np.inf, 1.0])}, "positive definite"),
        (
            {"covariance_prior": [1.0, 0.0, 1.0], "covariance_type": "diag"},
            "positive definite|positive numbers",
        ),
    ],
    ids=str,
)
def test_parameters_that_contradict_each_other_are_refused_with_a_remedy(params, message):
    assert re.search(message, refusal(partial(with_room, **params), rows()))


def test_more_batches_than_rows_are_refused_by_fit():
    mixture = with_room(n_batches=41)
    with refused(mixture, match=r"'n_batches' .*\[1, n_samples\] = \[1, 40\]\. Got 41"):
        mixture.fit(rows())


def test_degrees_of_freedom_below_the_columns_are_legal_without_covariances():
    for shape in ("diag", "spherical"):
        mixture = with_room(covariance_type=shape, degrees_of_freedom_prior=0.5, moves=())
        mixture.fit(rows())
        assert np.isfinite(mixture.elbo_)


@pytest.mark.parametrize("init_params", ["k-means++", "random", "random_from_data"])
def test_every_kind_of_start_finds_the_clusters(init_params):
    X, labels = clusters()
    mixture = with_room(3, init_params=init_params, random_state=0, batch_size=100).fit(X)
    assert adjusted_rand_score(labels, mixture.predict(X)) == 1.0


# ------------------------------------------------------------------- what a stream refuses
@pytest.mark.parametrize(
    "changed",
    [
        {"n_components": 4}, {"weight_concentration_prior": 2.0},
        {"mean_prior": [1.0, 1.0, 1.0]}, {"degrees_of_freedom_prior": 7.0},
        {"covariance_type": "diag"}, {"learning_method": "online"},
    ],
    ids=str,
)  # fmt: skip
def test_a_stream_refuses_a_change_of_what_the_model_is_built_on_by_name(changed):
    X, (name,) = rows(), changed
    stream = with_room(2, moves=(), random_state=0).partial_fit(X)
    stream.set_params(**changed)
    with refused(stream, match=rf"partial_fit continues .*had {name}=.*Got {name}="):
        stream.partial_fit(X)
    # A warm start by another method begins with the components.
    if name != "learning_method":
        with pytest.raises(ValueError, match=rf"A warm start continues .*had {name}="):
            stream.set_params(warm_start=True).fit(X)


def test_a_stream_compares_arrays_of_parameters_by_value():
    prior = np.zeros(rows().shape[1])
    stream = with_room(2, mean_prior=prior, random_state=0).partial_fit(rows())
    stream.set_params(mean_prior=prior.tolist()).partial_fit(rows())
    assert stream.n_iter_ == 2


def test_only_whole_numbers_of_rows_are_drawn():
    mixture = with_room(2, moves=(), max_iter=2, random_state=0).fit(rows())
    factorial = AnnealedFactorialMixture(2, max_iter=2, random_state=0).fit(rows())
    for model, n_samples in product((mixture, factorial), (1.5, 2.0, 0, -1, "3", None)):
        with pytest.raises(ValueError, match=r"n_samples must be an int .*\[1, inf\)\. Got "):
            model.sample(n_samples)
        assert len(model.sample(np.int32(3), random_state=0)[0]) == 3


def real_mixtures():
    rows = np.random.default_rng(0).standard_normal((60, 3))
    return rows, [
        with_room(covariance_type="diag", max_iter=20, random_state=0),
        CAVIGaussianMixture(2, random_state=0),
        AnnealedFactorialMixture(2, temperature=None, tol=1e3, random_state=0),
    ]


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("dtype, most", [(np.float32, 1e15), (np.float64, 1e100)])
def test_values_whose_squares_overflow_are_refused_and_lesser_ones_are_not(which, dtype, most):
    rows, mixtures = real_mixtures()
    mixture, rows = mixtures[which], rows.astype(dtype)
    large = rows.copy()
    large[3, 1] = -2.0 * most
    with pytest.raises(ValueError, match=rf"-?{2 * most:g}".replace("+", r"\+")):
        mixture.fit(large)
    mixture.fit(rows)
    of_rows = mixture.predict_proba if hasattr(mixture, "predict_proba") else mixture.transform
    for question in (of_rows, mixture.score_samples, mixture.elbo):
        large[3, 1] = -2.0 * most
        with pytest.raises(ValueError, match="squares"):
            question(large)
        large[3, 1] = 0.9 * most
        assert np.isfinite(question(large)).all()
    fitted = mixture.set_params(max_iter=3)
    # Variances that are given must not be negligible beside such values.
    if isinstance(fitted, CAVIGaussianMixture):
        fitted.set_params(noise_variance=0.01 * most**2, prior_variance=0.01 * most**2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted.fit(large)
    assert np.isfinite(fitted.elbo_)
    assert np.isfinite(getattr(fitted, "covariances_", 0.0)).all()


@pytest.mark.parametrize("which", range(4))
def test_rows_without_values_get_the_weights_and_are_counted(which):
    rows, mixtures = real_mixtures()
    if which == 3:
        rows = (rows > 0.0).astype(float)
        mixtures.append(StructuredBernoulliMixture(2, random_state=0))
    mixture = mixtures[which]
    holes = rows.copy()
    holes[[4, 9]] = np.nan
    holes[5, 0] = np.nan
    with pytest.warns(UserWarning, match="2 of 60 rows have NaN only"):
        mixture.fit(holes)
    of_rows = mixture.predict_proba if hasattr(mixture, "predict_proba") else mixture.transform
    with pytest.warns(UserWarning, match="1 of 3 rows") as caught:
        probabilities = of_rows(holes[4:7])
    assert len(caught) == 1
    if which in (0, 1):
        log_weights = mixture._fitted.model.row_globals(mixture._fitted.stats, None, None)[0]
        expected = np.exp(log_weights - log_weights.max())
        np.testing.assert_allclose(probabilities[0], expected / expected.sum(), rtol=1e-6)
    # Rows with some values have no warning, which would be an error here.
    of_rows(holes[5:7])


def test_labels_of_many_rows_need_no_table_of_all_responsibilities():
    rows, _ = real_mixtures()
    mixture = CAVIGaussianMixture(50, max_iter=100, tol=1e6, random_state=0).fit(rows)
    many = np.tile(rows, (1_000, 1))
    mixture.predict(many[:5_000])
    tracemalloc.start()
    labels = mixture.predict(many)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.3 * 8 * labels.size * 50
    np.testing.assert_array_equal(labels, mixture.predict_proba(many).argmax(axis=1))


@pytest.mark.parametrize("covariance_type", ["full", "diag", "low_rank"])
def test_priors_that_are_given_and_shown_are_copies(covariance_type):
    X = np.random.default_rng(0).normal(size=(60, 2))
    mean, scale = np.zeros(2), np.eye(2) if covariance_type == "full" else np.ones(2)
    mixture = MemoizedDPGMM(
        covariance_type=covariance_type, covariance_prior=scale, mean_prior=mean, random_state=0
    ).fit(X)
    expected, density = scale.copy(), mixture.score_samples(X)
    scale[:], mean[:] = 9.0, 9.0
    np.testing.assert_array_equal(mixture.covariance_prior_, expected)
    np.testing.assert_array_equal(mixture.mean_prior_, 0.0)
    np.testing.assert_array_equal(mixture.score_samples(X), density)
