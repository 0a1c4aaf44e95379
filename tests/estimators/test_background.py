"""Mixtures of Gaussians may have a background, a component of constant density."""

import copy
import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import betaln, gammaln, logsumexp, xlogy
from sklearn.metrics import adjusted_rand_score

from skvt import MemoizedDPGMM, covariate_effects, load, outcome_by_cluster, save
from skvt._results._clusterings import compute_agreements
from skvt.io import FileError

CENTRES = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0], [8.0, 8.0], [4.0, 4.0]])


def noisy(share, n=600, seed=0):
    """Rows of five round Gaussians and uniform rows, whose label is -1."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n) < share, -1, rng.integers(5, size=n))
    X = CENTRES[y] + 0.6 * rng.standard_normal((n, 2))
    return np.where(y[:, None] < 0, rng.uniform(-4.0, 12.0, size=(n, 2)), X), y


def with_room(**settings):
    """A mixture that may have one component more than the five clusters."""
    usual = {"background": True, "max_components": 6, "random_state": 0}
    return MemoizedDPGMM(**(usual | settings))


@pytest.fixture(scope="module")
def fitted():
    X, y = noisy(0.3)
    return with_room(tol=1e-9).fit(X), X, y


# ------------------------------------------------------------------------------------ exactness
VALUES = np.array([-0.3, 0.1, 4.0, 9.8, 10.0, 10.1, 10.4])
KAPPA, MEAN, SHAPE, RATE, ALPHA = 0.1, 5.0, 1.5, 0.5, 1.0


def compute_log_joint(resp):
    """The log evidence of responsibilities (n, 3) in nats. The last column is the background.

    Components have normal-gamma priors, and the weights are sticks in the order of the counts.
    """
    counts, sums, squares = (resp.T @ VALUES**power for power in range(3))
    kappa, shape = KAPPA + counts, SHAPE + 0.5 * counts
    mean = (KAPPA * MEAN + sums) / kappa
    rate = RATE + 0.5 * (squares + KAPPA * MEAN**2 - kappa * mean**2)
    evidence = gammaln(shape) - gammaln(SHAPE) + SHAPE * np.log(RATE) - shape * np.log(rate)
    evidence += 0.5 * np.log(KAPPA / kappa) - 0.5 * counts * np.log(2.0 * np.pi)
    background = -counts[-1] * np.log(np.ptp(VALUES))
    ordered = np.sort(counts)[::-1]
    later = ordered.sum() - ordered.cumsum()
    sticks = (betaln(1.0 + ordered, ALPHA + later) - betaln(1.0, ALPHA)).sum()
    return evidence[:-1].sum() + background + sticks


def test_the_bound_is_exact():
    model = MemoizedDPGMM(
        background=True, covariance_type="diag", labels_init=[0, 0, -1, 1, 1, 1, 1], moves=(),
        mean_precision_prior=KAPPA, mean_prior=[MEAN], degrees_of_freedom_prior=2.0 * SHAPE,
        covariance_prior=[2.0 * RATE], max_iter=1000, tol=1e-14, random_state=0,
    ).fit(VALUES[:, None])  # fmt: skip
    resp = model.predict_proba(VALUES[:, None])
    resp = np.column_stack([resp, 1.0 - resp.sum(axis=1)])
    assert model.labels_.tolist() == [1, 1, -1, 0, 0, 0, 0]
    assert model.elbo_ == pytest.approx(compute_log_joint(resp) - xlogy(resp, resp).sum(), abs=1e-6)
    assert model.elbo(VALUES[:, None]) == pytest.approx(model.elbo_, abs=1e-6)
    # The bound is below the sum over all assignments, because q(z) is a product.
    assignments = itertools.product(range(3), repeat=VALUES.size)
    assert model.elbo_ < logsumexp([compute_log_joint(np.eye(3)[list(z)]) for z in assignments])


def test_the_bound_never_falls_and_does_not_depend_on_units():
    X, _ = noisy(0.3, 300)
    settings = {"n_components": 5, "moves": (), "n_batches": 3, "random_state": 0}
    fits = [MemoizedDPGMM(background=True, **settings).fit(c * X) for c in (1.0, 1000.0)]
    for model in fits:
        assert np.diff(model.history_["elbo"]).min() > -1e-8
    assert fits[0].labels_.tolist() == fits[1].labels_.tolist()
    shift = X.size * np.log(1000.0)
    assert fits[0].elbo_ - fits[1].elbo_ == pytest.approx(shift, abs=1e-3)


# -------------------------------------------------------------------------------------- results
@pytest.mark.slow
def test_noise_is_the_background_and_no_component(fitted):
    model, X, y = fitted
    is_noise = y < 0
    assert model.n_components_ == model.n_clusters_ == 5
    assert MemoizedDPGMM(max_components=12, random_state=0).fit(X).n_components_ > 7
    assert model.background_weight_ == pytest.approx(is_noise.mean(), abs=0.04)
    assert adjusted_rand_score(y[~is_noise], model.labels_[~is_noise]) > 0.93
    assert (model.labels_[is_noise] == -1).mean() > 0.7
    # The centre of a cluster belongs to the cluster, and a far row belongs to the background.
    first = np.abs(model.means_).sum(axis=1).argmin()
    assert model.predict([CENTRES[0], [100.0, 0.0]]).tolist() == [first, -1]


def test_probabilities_and_densities_of_components_and_background_add_up_to_1(fitted):
    model, X, _ = fitted
    rest = 1.0 - model.predict_proba(X).sum(axis=1)
    assert rest.sum() == pytest.approx(model.background_weight_ * len(X), rel=0.01)
    assert np.array_equal(rest > model.predict_proba(X).max(axis=1), model.labels_ < 0)
    # The predictive density of the components and of the box has the integral 1.
    axis = np.arange(-40.0, 48.0, 0.4) + 0.2
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    box = np.ptp(X, axis=0).prod()
    outside = (axis.size * 0.4) ** 2 - box
    total = 0.16 * np.exp(model.score_samples(grid)).sum()
    assert total == pytest.approx(1.0 + model.background_weight_ * outside / box, rel=5e-3)


def test_rows_of_the_background_are_in_no_cluster(fitted):
    model, X, _ = fitted
    for n_clusters in (2, "auto", 7):
        labels = model.predict(X, n_clusters=n_clusters)
        assert np.array_equal(labels < 0, model.labels_ < 0)
    assert np.unique(model.predict(X, n_clusters=7)).tolist() == [*range(-1, 7)]
    assert np.isnan(model.compare_clusterings(X, n_fits=0).clusterings_["refitted_bound"]).all()


def test_the_background_is_a_cluster_of_its_own_when_fits_are_compared():
    clusters = [np.zeros(2, int), np.arange(2)]
    joins = SimpleNamespace(n_components=2, all_component_clusters=lambda: clusters)
    labels, swapped = np.array([0, 0, 1, 1, -1, -1]), np.array([1, 1, 0, 0, -1, -1])
    assert compute_agreements(joins, labels, [(joins, swapped)]).tolist() == [1.0, 1.0]


def test_without_noise_the_bound_deletes_the_background():
    X, _ = noisy(0.0, 300)
    plain, model = (with_room(background=b).fit(X) for b in (False, True))
    assert model.background_weight_ == plain.background_weight_ == 0.0
    assert model.labels_.min() == 0
    assert model.elbo_ == pytest.approx(plain.elbo_, abs=0.5)


def test_all_rows_without_clusters_are_background(tmp_path):
    X = np.random.default_rng(0).uniform(size=(200, 2))
    model = with_room(n_components=2).fit(X)
    save(model, tmp_path / "fit.skvt")
    model = load(tmp_path / "fit.skvt")
    assert model.n_components_ == 1
    assert (model.labels_ == -1).all()
    assert model.background_weight_ > 0.95
    # A component without rows has the prior.
    assert model.means_[0] == pytest.approx(model.mean_prior_)


# ---------------------------------------------------------------------------------- more passes
def test_files_warm_starts_and_streams_keep_the_background(fitted, tmp_path):
    model, X, _ = fitted
    save(model, tmp_path / "fit.skvt")
    loaded = load(tmp_path / "fit.skvt")
    assert loaded.predict(X, "auto").tolist() == model.predict(X, "auto").tolist()
    assert loaded.background_weight_ == model.background_weight_
    again = loaded.set_params(warm_start=True).fit(X)
    assert again.elbo_ >= model.elbo_ - 1e-6
    assert again.background_weight_ == pytest.approx(model.background_weight_, abs=1e-3)
    more, y = noisy(0.3, seed=1)
    loaded.partial_fit(more)
    assert loaded.n_components_ == 5
    assert (loaded.labels_[y < 0] == -1).mean() > 0.7


def test_files_whose_box_has_no_volume_are_refused(fitted, tmp_path):
    model = copy.deepcopy(fitted[0])
    for high in model._fitted.model.low, model._fitted.model.low - 1.0:
        model._fitted = replace(model._fitted, model=replace(model._fitted.model, high=high))
        with pytest.raises(FileError, match="do not fit together"):
            save(model, tmp_path / "fit.skvt")


def test_births_find_clusters_among_the_rows_of_the_background():
    X, y = noisy(0.2, 400)
    model = with_room(warm_start=True).fit(X[y != 4])
    is_last = y == 4
    assert (model.predict(X[is_last]) == -1).mean() > 0.9
    assert model.fit(X).n_components_ == 5
    assert (model.labels_[is_last] == -1).mean() < 0.1


@pytest.mark.parametrize(
    "settings",
    [
        {"learning_method": "online", "batch_size": 200}, {"temperature": "annealed"},
        {"covariance_type": "spherical", "moves": ("merge", "delete")},
        {"covariance_type": "tied", "moves": ()},
        {"weight_concentration_prior": "auto", "moves": ()},
    ],
    ids=lambda settings: "-".join(map(str, settings)),
)  # fmt: skip
def test_other_fits_have_a_background(settings):
    X, y = noisy(0.3)
    model = with_room(max_iter=30, n_components=5, **settings).fit(X)
    assert model.background_weight_ == pytest.approx((y < 0).mean(), abs=0.08)


@pytest.mark.parametrize(
    ("settings", "column", "message"),
    [
        ({"use_labels": True}, 1.0, "use_labels=True"),
        ({"weight_concentration_prior_type": "dirichlet_distribution"}, 1.0, "dirichlet_dist"),
        ({}, 0.0, "two different values. All values of column 2 are equal"),
        ({}, np.nan, "Got NaN"),
    ],
)
def test_settings_and_values_that_a_background_excludes_are_refused(settings, column, message):
    X, y = noisy(0.3, 60)
    X = np.column_stack([X, np.append(np.arange(59.0) * np.nan_to_num(column, nan=1.0), column)])
    with pytest.raises(ValueError, match=message):
        MemoizedDPGMM(background=True, **settings).fit(X, y)


def test_streams_of_small_calls_find_the_clusters_of_a_fit():
    X, _ = noisy(0.3)
    X = np.random.default_rng(0).permutation(X)
    model = with_room()
    for rows in np.array_split(X, len(X) // 20):
        model.partial_fit(rows)
    assert model.n_components_ == 5
    assert model.background_weight_ == pytest.approx(0.3, abs=0.06)


def test_a_small_call_finds_a_cluster_among_rows_that_the_background_would_explain():
    X, y = noisy(0.3, 1000)
    is_last = y == 4
    model = with_room().fit(X[~is_last][:400])
    assert (model.predict(X[is_last]) == -1).mean() > 0.9
    model.partial_fit(X[is_last][:120])
    assert (model.predict(X[is_last]) == -1).mean() < 0.1


def test_the_learned_concentration_counts_the_background():
    X, _ = noisy(0.3)
    settings = {"n_components": 5, "moves": (), "covariance_type": "diag"}
    learned = with_room(weight_concentration_prior="auto", **settings).fit(X)
    for factor in (0.8, 1.25):
        alpha = float(factor * learned.weight_concentration_prior_)
        other = with_room(weight_concentration_prior=alpha, **settings).fit(X)
        assert other.elbo_ < learned.elbo_


def test_missing_values_in_new_rows_and_effects_are_refused(fitted):
    model, X, _ = fitted
    with pytest.raises(ValueError, match="Got NaN"):
        model.predict([[np.nan, 0.0]])
    for function in (covariate_effects, outcome_by_cluster):
        with pytest.raises(ValueError, match="fitted with background=False"):
            function(model, X, X[:, 0])
