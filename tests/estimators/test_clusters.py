"""Components are joined to clusters."""

import warnings
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import combinations

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from estimators import test_tables as tables
from estimators._registry import bits
from scipy.cluster.hierarchy import cut_tree, is_monotonic, is_valid_linkage
from scipy.special import entr, softmax
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from skvt import (
    CAVIGaussianMixture,
    MemoizedDPGMM,
    MemoizedDPMixture,
    StructuredBernoulliMixture,
    load,
    save,
)
from skvt._results import _clusters as _clusters_mixin
from skvt._results._clusterings import explain_rejection
from skvt.components import Bernoulli, Gaussian, NegativeBinomial
from skvt.components.specs import GAUSSIAN_PRIORS
from skvt.models.mixture import Assignments, Joins, join_components, measure_valley
from skvt.models.mixture._pairs import _PositiveResp


def crosses(n=100, seed=1):
    """Two crosses, each of two long clusters, and a round cluster near one of them; (5 n, 2)."""
    rng = np.random.default_rng(seed)
    long, wide = np.array([4.0, 0.3]), np.array([0.3, 4.0])
    places = [([-9, 0], long), ([-9, 0], wide), ([9, 0], long), ([9, 0], wide), ([14.5, 4.5], 1.0)]
    return np.concatenate([at + size * rng.standard_normal((n, 2)) for at, size in places])


@pytest.fixture(scope="module")
def X():
    return crosses()


@pytest.fixture(scope="module")
def weights(X):
    return np.random.default_rng(1).integers(1, 4, size=len(X)).astype(float)


@pytest.fixture(scope="module")
def mixture(X, weights):
    """A fit of nine round components, all of which have rows."""
    round_ones = {"covariance_type": "spherical", "covariance_prior": 1.0, "moves": ()}
    mixture = MemoizedDPGMM(9, batch_size=70, random_state=0, **round_ones)
    return mixture.fit(X, sample_weight=weights)


def entropy(resp, weights):
    """The entropy of assignments in nats per row."""
    return weights @ entr(resp).sum(axis=1) / weights.sum()


def joined_one_by_one(resp, weights, *, relative):
    """The linkage matrix by trying all pairs in each step, from the responsibilities alone."""
    groups = {k: [k] for k in range(resp.shape[1])}
    linkage = []

    def of(*groups):
        return np.stack([resp[:, group].sum(axis=1) for group in groups], axis=1)

    start = now = entropy(resp, weights)
    while len(groups) > 1:
        gains = {}
        for a in groups:
            for b in groups:
                if a < b:
                    others = [g for name, g in groups.items() if name not in (a, b)]
                    after = entropy(of(*others, groups[a] + groups[b]), weights)
                    rows = weights @ of(groups[a], groups[b]) / weights.sum()
                    coin = entr(rows).sum() - entr(rows.sum())
                    gains[a, b] = (now - after) / (coin if relative else 1.0), after
        a, b = max(gains, key=lambda pair: gains[pair][0])
        now = gains[a, b][1]
        number = resp.shape[1] + len(linkage)
        groups[number] = groups.pop(a) + groups.pop(b)
        linkage.append([a, b, start - now, len(groups[number])])
    return np.array(linkage)


# -------------------------------------------------------------------------------- the hierarchy
@pytest.mark.parametrize("criterion", ["share", "entropy"])
def test_the_hierarchy_is_that_of_all_pairs_tried_in_each_step(X, weights, mixture, criterion):
    before = mixture.hierarchy_
    other = copy(mixture).join_components(X, weights, criterion=criterion)
    resp = mixture.predict_proba(X)
    expected = joined_one_by_one(resp, weights, relative=criterion == "share")
    np.testing.assert_array_equal(other.hierarchy_[:, [0, 1, 3]], expected[:, [0, 1, 3]])
    np.testing.assert_allclose(other.hierarchy_[:, 2], expected[:, 2], rtol=1e-6, atol=1e-9)
    assert is_valid_linkage(other.hierarchy_) and is_monotonic(other.hierarchy_)
    assert set(other.hierarchy_criteria_) == {"entropy"}
    # By default, joins follow the valleys and then the evidence, as they do in a fit.
    np.testing.assert_array_equal(mixture.hierarchy_, before)
    np.testing.assert_array_equal(other.join_components(X, weights).hierarchy_, before)
    assert set(other.hierarchy_criteria_) == {"valley", "evidence"}


def overlapping(n_rows, K):
    """Responsibilities of K components, of which those with near numbers overlap most, (n, K)."""
    rng = np.random.default_rng(0)
    logits = -0.5 * (rng.uniform(0.0, 0.2 * K, n_rows)[:, None] - 0.2 * np.arange(K)) ** 2
    return softmax(logits + 0.5 * rng.standard_normal(logits.shape), axis=1)


@pytest.fixture
def computed(monkeypatch):
    """A list that gets an item whenever the loss of entropy of a pair is computed."""
    items, loss_of = [], _PositiveResp.loss_with
    monkeypatch.setattr(_PositiveResp, "loss_with", lambda *args: items.append(1) or loss_of(*args))
    return items


@pytest.mark.parametrize("relative", [True, False])
def test_few_of_the_losses_of_many_pairs_are_computed(relative, computed):
    K, weights = 40, np.random.default_rng(1).random(300)
    resp = overlapping(weights.size, K)
    join_components(Assignments([(resp, weights, np.zeros(weights.size))]), is_relative=relative)
    # There are 780 pairs at first, and each join makes new ones.
    assert len(computed) < 4 * K
    resp = resp[:, :15] / resp[:, :15].sum(axis=1, keepdims=True)
    joins = join_components(Assignments([(resp, weights, weights)]), is_relative=relative)
    expected = joined_one_by_one(resp, weights, relative=relative)
    np.testing.assert_array_equal(joins.linkage[:, [0, 1, 3]], expected[:, [0, 1, 3]])
    np.testing.assert_allclose(joins.linkage[:, 2], expected[:, 2], rtol=1e-9)


def test_the_least_distinct_clusters_are_found_from_few_losses(computed):
    X = np.random.default_rng(0).normal(size=(1000, 4))
    mixture = MemoizedDPGMM(30, moves=(), max_iter=2, random_state=0).fit(X)
    assert list(mixture.hierarchy_criteria_).count("evidence") > 20
    # There are 435 pairs at first, and each join makes new ones.
    assert len(computed) < 300
    joins, K = mixture._fitted.joins, 30
    for (a, b, _, _), mass in zip(joins.linkage, joins.masses, strict=True):
        if min(a, b) >= K:
            assert mass == pytest.approx(joins.masses[int(a) - K] + joins.masses[int(b) - K])


def test_given_joins_are_made_without_losses_of_other_pairs(computed):
    resp = overlapping(300, 40)
    assignments = Assignments([(resp, np.ones(300), np.zeros(300))])
    linkage = join_components(assignments).linkage
    computed.clear()
    again = join_components(assignments, first_joins=linkage).linkage
    np.testing.assert_array_equal(again, linkage)
    assert not computed


def test_clusters_are_cut_from_the_hierarchy_and_probabilities_add_up(X, weights, mixture):
    mixture = copy(mixture).join_components(X, weights, criterion="share")
    resp, Z = mixture.predict_proba(X), mixture.hierarchy_
    K, n_apart = mixture.n_components_, 0
    plane = np.stack(np.meshgrid(np.linspace(-30, 30, 121), np.linspace(-20, 20, 81)), axis=-1)
    plane = plane.reshape(-1, 2)
    for n_clusters in range(1, K + 1):
        cut = cut_tree(Z, n_clusters)[:, 0]
        np.testing.assert_array_equal(mixture.component_clusters(n_clusters), cut)
        proba = mixture.predict_proba(X, n_clusters=n_clusters)
        np.testing.assert_allclose(proba, resp @ np.eye(n_clusters)[cut], atol=1e-12)
        np.testing.assert_array_equal(mixture.predict(X, n_clusters), proba.argmax(axis=1))
        lost = 0.0 if n_clusters == K else Z[K - n_clusters - 1, 2]
        np.testing.assert_allclose(entropy(proba, weights), Z[-1, 2] - lost, atol=1e-9)
        far = mixture.predict(plane, n_clusters)
        np.testing.assert_array_equal(far, mixture.predict_proba(plane, n_clusters).argmax(axis=1))
        n_apart += np.sum(far != cut[mixture.predict(plane)])
    # The most probable component of some rows is not in their most probable cluster.
    assert n_apart > 0
    best = mixture.predict(X, mixture.n_clusters_)
    np.testing.assert_array_equal(mixture.predict(X, "auto"), best)


@pytest.mark.parametrize("limit", [90, 70])
@pytest.mark.parametrize("cls", [CAVIGaussianMixture, MemoizedDPGMM])
def test_a_sample_of_many_rows_decides_on_the_hierarchy(X, cls, limit, monkeypatch):
    monkeypatch.setattr(_clusters_mixin, "MAX_ROWS", limit)
    monkeypatch.setattr(_clusters_mixin, "ROWS_PER_COMPONENT", 10)
    given = dict.fromkeys(GAUSSIAN_PRIORS) | {"moves": ()}
    given = given if cls is MemoizedDPGMM else {"noise_variance": 4.0}
    mixture = cls(8, random_state=0, **given).fit(X)
    rows = X[mixture._sample_rows(len(X))]
    assert len(np.unique(rows, axis=0)) == len(rows) == max(limit, 80)
    before, resp = mixture.hierarchy_, mixture.predict_proba(rows)
    np.testing.assert_array_equal(mixture.join_components(X).hierarchy_, before)
    mixture.join_components(X, criterion="share")
    expected = joined_one_by_one(resp, np.ones(len(rows)), relative=True)
    np.testing.assert_allclose(mixture.hierarchy_, expected, rtol=1e-6, atol=1e-9)


# --------------------------------------------------------------------------------- the evidence
GIVEN = {
    "weight_concentration_prior": 1.0, "mean_prior": np.zeros(2), "mean_precision_prior": 0.5,
    "degrees_of_freedom_prior": 4.0, "random_state": 0,
}  # fmt: skip


@pytest.mark.parametrize("shape", ["full", "diag", "spherical"])
def test_evidence_lost_is_that_of_fits_of_the_rows_joined(shape):
    """The bound of a mixture of one component is its exact evidence."""
    parts = np.repeat([0, 1, 2], [70, 60, 50])
    X = np.array([[0.0, 0.0], [80.0, 5.0], [0.0, 40.0]])[parts]
    X += np.random.default_rng(0).standard_normal(X.shape) * [3.0, 1.0]
    prior = {"full": np.eye(2), "diag": np.ones(2), "spherical": 1.0}[shape]
    given = GIVEN | {"covariance_type": shape, "covariance_prior": prior, "moves": ()}

    def evidence(*joined):
        rows = X[np.isin(parts, joined)]
        return MemoizedDPGMM(1, **given).fit(rows).elbo_ + np.log(
            len(rows) + 1.0
        )  # without its stick

    mixture = MemoizedDPGMM(3, labels_init=parts, **given).fit(X)
    np.testing.assert_array_equal(mixture.predict(X), parts)
    mixture.join_components(X, criterion="evidence")
    (a, b), last = mixture.hierarchy_[0, :2].astype(int), mixture.hierarchy_[:, 2] * len(X)
    assert last[0] == pytest.approx(evidence(a) + evidence(b) - evidence(a, b), rel=1e-4)
    assert last[1] == pytest.approx(sum(map(evidence, range(3))) - evidence(0, 1, 2), rel=1e-4)
    others = [evidence(i) + evidence(j) - evidence(i, j) for i, j in [(0, 1), (0, 2), (1, 2)]]
    assert last[0] == pytest.approx(min(others), rel=1e-4)


def test_evidence_lost_includes_that_of_a_shared_covariance():
    rng = np.random.default_rng(0)
    parts = np.arange(200) % 5
    X = rng.normal(0.0, 20.0, size=(5, 3))[parts] + rng.normal(size=(200, 3))
    mixture = MemoizedDPGMM(5, covariance_type="tied", labels_init=parts, moves=(), random_state=0)
    mixture.fit(X).join_components(X, criterion="evidence")
    (_, sums), component = mixture._fitted.stats.as_stats().arrays, mixture._fitted.model.component
    evidence = [
        component.log_evidence(np.array([sums[found == k].sum(axis=0) for k in range(n)])).sum()
        for n in range(5, 0, -1)
        for found in [mixture.component_clusters(n)]
    ]
    np.testing.assert_allclose(
        200.0 * mixture.hierarchy_[:, 2], evidence[0] - np.array(evidence[1:])
    )


def test_only_neighbours_of_many_components_are_compared(monkeypatch):
    labels = np.repeat(np.arange(24), 40)
    rng = np.random.default_rng(0)
    centres = 60.0 * rng.permutation(8)[:, None, None] + 4.0 * rng.standard_normal((1, 3, 2))
    X = centres.reshape(24, 2)[labels] + rng.standard_normal((labels.size, 2))
    mixture = MemoizedDPGMM(24, labels_init=labels, moves=(), random_state=0).fit(X)
    trees = []
    for most in (24, 23):
        monkeypatch.setattr(
            "skvt.models.mixture._distinctness._MAX_COMPONENTS_WITH_ALL_PAIRS", most
        )
        monkeypatch.setattr("skvt.models.mixture._distinctness._MIN_NEIGHBOURS", 4)
        trees.append(copy(mixture).join_components(X, criterion="evidence").hierarchy_)
    # The first joins are those of parts of one group, which are all neighbours.
    np.testing.assert_allclose(trees[1][:16], trees[0][:16], rtol=1e-9)
    # The loss of a join is exact once it is made, so that the sum does not depend on the order.
    assert trees[1][-1, 2] == pytest.approx(trees[0][-1, 2], rel=1e-9)


def test_evidence_of_mixed_columns_is_recomputed_from_summed_statistics():
    frame, _ = tables.table(share=0.1)
    fitted = tables.mixture(n_components=6, max_components=6, moves=()).fit(frame)
    assert fitted.clusterings_["valley"].isna().all()
    fitted.join_components(frame, criterion="evidence")
    model, stats = fitted._fitted.model, fitted._fitted.stats.as_stats()
    counts, sums = stats.arrays
    groups, lost, vacant = {k: [k] for k in range(6)}, [], fitted._fitted.joins.n_vacant

    def evidence(group):
        return float(model.component.log_evidence(sums[group].sum(axis=0, keepdims=True))[0])

    for step, (a, b, height, _) in enumerate(fitted.hierarchy_):
        losses = {
            (i, j): evidence(groups[i]) + evidence(groups[j]) - evidence(groups[i] + groups[j])
            for i, j in combinations(sorted(groups), 2)
        }
        if step >= vacant:
            assert min(losses, key=losses.get) == (a, b)
        lost.append(max(losses[a, b], 0.0))
        assert height * counts.sum() == pytest.approx(sum(lost), rel=1e-6, abs=1e-6)
        groups[6 + step] = groups.pop(a) + groups.pop(b)
    assert set(fitted.hierarchy_criteria_) == {"evidence"}


def test_the_hierarchy_follows_the_evidence_where_nothing_overlaps():
    """There are two groups of two clusters, and no row lies between clusters."""
    centres = np.array([[0.0, 0.0], [90.0, 0.0], [0.0, 20.0], [90.0, 20.0]])
    X, _ = around(centres, 4 * [50])
    mixture = known(centres, X)
    assert mixture.n_clusters_ == 4 and "valleys separate all" in mixture.n_clusters_reason_
    np.testing.assert_array_equal(mixture.component_clusters(2), [0, 1, 0, 1])
    assert set(mixture.hierarchy_criteria_) == {"evidence"}
    # The entropy alone would join the components in the order of their numbers.
    mixture.join_components(X, criterion="share")
    np.testing.assert_array_equal(mixture.component_clusters(2), [0, 0, 0, 1])


AUTO = dict.fromkeys(GAUSSIAN_PRIORS, "auto") | {"weight_concentration_prior": "auto"}


@pytest.mark.slow
def test_a_suggestion_of_one_cluster_of_several_components_comes_with_a_warning():
    X = np.random.default_rng(0).standard_t(3, size=(600, 2))
    mixture = MemoizedDPGMM(max_components=6, random_state=0, **AUTO).fit(X)
    K = mixture.n_components_
    assert K > 1 and mixture.n_clusters_ == 1
    reason = f"1 cluster of {K} components: no valley separates the components"
    assert mixture.n_clusters_reason_.startswith(reason)
    with pytest.warns(UserWarning, match=f"^All rows are in {reason}"):
        assert not mixture.predict(X, "auto").any()
    # A mixture of one component needs no warning.
    one = MemoizedDPGMM(moves=()).fit(X)
    assert not one.predict(X, "auto").any()
    assert one.n_clusters_reason_ == "1 cluster of 1 component: no other component has rows"


@pytest.mark.parametrize("n_columns", [20, 30])
def test_the_reason_for_one_cluster_names_factors_of_many_columns(n_columns):
    """Two factors of 30 columns hide two groups that differ by 1.5 in half of the columns."""
    rng = np.random.default_rng(0)
    loadings = rng.normal(size=(2, n_columns))
    X = rng.normal(size=(60, 2)) @ loadings + rng.normal(size=(60, n_columns))
    X[::2, ::2] += 1.5
    one = MemoizedDPGMM(covariance_type="low_rank", moves=()).fit(X)
    reason = "1 cluster of 1 component: no other component has rows"
    assert one.n_clusters_reason_.startswith(reason)
    assert ("common factors, which may hide groups" in one.n_clusters_reason_) == (n_columns > 20)
    blocks = [("sensors", Gaussian("low_rank"), slice(None))]
    mixture = MemoizedDPMixture(components=blocks, moves=()).fit(X)
    assert mixture.n_clusters_reason_ == one.n_clusters_reason_
    full = MemoizedDPGMM(moves=()).fit(X)
    assert full.n_clusters_reason_ == reason


def test_factors_that_components_share_are_named_whichever_component_is_first():
    rng = np.random.default_rng(0)
    X = 2.0 * rng.normal(size=(200, 3)) @ rng.normal(size=(3, 25)) + rng.normal(size=(200, 25))
    labels = np.arange(200) > 1  # The first component has two rows, which have no factors.
    mixture = MemoizedDPGMM(
        2, covariance_type="tied_low_rank", moves=(), labels_init=labels.astype(int),
        weight_concentration_prior_type="dirichlet_distribution", max_iter=5, tol=1e-2,
    ).fit(X)  # fmt: skip
    assert mixture.weights_[0] < 0.01 and mixture.n_clusters_ == 1
    assert "common factors, which may hide groups" in mixture.n_clusters_reason_


def test_classes_of_several_kinds_of_columns_may_overlap():
    rng = np.random.default_rng(0)
    y = rng.choice(3, 600, p=[0.5, 0.3, 0.2])
    ones = rng.random((3, 8))[y]
    X = np.column_stack([rng.normal(1.5 * y), rng.random((600, 8)) < ones])
    blocks = [("real", Gaussian("diag"), [0]), ("flags", Bernoulli(), slice(1, 9))]
    mixture = MemoizedDPMixture(components=blocks, max_components=4, random_state=0).fit(X)
    assert mixture.n_components_ == mixture.n_clusters_ == 3


def test_classes_of_answers_may_overlap():
    """No answer lies between yes and no, so that rows between classes need not be rarer."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=600)
    shares = np.array([0.1, 0.5, 0.9])[y, None]
    answers = pd.DataFrame(rng.random((600, 8)) < shares).add_prefix("q")
    mixture = MemoizedDPMixture(3, labels_init=y, moves=(), random_state=0).fit(answers)
    assert mixture.n_clusters_ == 3
    assert mixture.clusterings_["valley"].isna().all()


@pytest.mark.slow
def test_few_rows_in_many_columns_are_joined_by_the_elbow_of_the_evidence():
    """In many columns, the parts of a skewed class do not overlap."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=240)
    X = rng.gamma(1.0, 1.0, size=(240, 20)) * (1.0 + y[:, None]) + 8.0 * y[:, None]
    mixture = MemoizedDPGMM(covariance_type="diag", random_state=0, **AUTO).fit(X)
    assert mixture.join_components(X, criterion="share").n_clusters_ > 2
    mixture.join_components(X)
    assert mixture.n_clusters_ == 2
    assert "with few rows" in mixture.n_clusters_reason_
    assert adjusted_rand_score(y, mixture.predict(X, "auto")) == 1.0


@pytest.mark.parametrize("seed", range(3))
def test_the_elbow_of_the_evidence_leaves_a_rare_group_alone(seed):
    """Three skewed classes of four parts each, and ten rows beside one of them."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(4), [200, 200, 200, 10])
    centres = 2.5 * rng.integers(2, size=(4, 20))
    centres[3] = centres[0] - 2.0
    X = rng.gamma(1.0, 1.0, size=(610, 20)) + centres[y]
    parts = 4 * y + np.where(y < 3, (X - centres[y] > 0.7)[:, :2] @ [1, 2], 0)
    settings = {"covariance_type": "diag", "moves": (), "max_iter": 200}
    mixture = MemoizedDPGMM(13, labels_init=parts, random_state=0, **settings).fit(X)
    assert "by the elbow of the evidence" in mixture.n_clusters_reason_
    assert adjusted_rand_score(y, mixture.predict(X, "auto")) == 1.0
    # For fewer clusters, the rare group is joined to the nearest class.
    assert adjusted_rand_score(y % 3, mixture.predict(X, 3)) == 1.0


# ----------------------------------------------------------------------- the number of clusters
def around(centres, sizes, spread=1.0, seed=0):
    """Normal rows around centres, as many as ``sizes`` says, and the number of their centre."""
    centres, y = np.asarray(centres, float), np.repeat(np.arange(len(sizes)), sizes)
    noise = np.random.default_rng(seed).standard_normal((len(y), centres.shape[1]))
    return centres[y] + np.broadcast_to(spread, centres.shape)[y] * noise, y


def known(means, X):
    return CAVIGaussianMixture(len(means), means_init=means, max_iter=300, random_state=0).fit(X)


def labelled(X, y, **settings):
    """A fit of the components that the labels say."""
    settings = {"labels_init": y, "moves": (), "random_state": 0} | settings
    return MemoizedDPGMM(y.max() + 1, **settings).fit(X)


TRIANGLE = [[0.0, 0.0], [3.0, 0.0], [1.5, 2.6]]


@pytest.mark.parametrize("distance", [8.0, 12.0, 40.0])
@pytest.mark.parametrize("K", [1, 2, 3, 4, 6])
def test_separated_clusters_are_not_joined(K, distance):
    centres = distance * np.arange(K)[:, None]
    X, _ = around(centres, K * [100])
    mixture = known(centres, X)
    assert mixture.n_clusters_ == K
    assert mixture.hierarchy_.shape == (K - 1, 4)
    np.testing.assert_array_equal(mixture.predict(X, "auto"), mixture.predict(X))


def pairs_of_near_clusters():
    """Pairs of clusters are five deviations apart, and the pairs are far from each other."""
    return labelled(*around([[0.0], [5.0], [100.0], [105.0], [200.0], [205.0]], 6 * [150]))


def clusters_in_many_columns(sizes, distance):
    """Two clusters differ in twelve columns, by two or three standard deviations in each."""
    centres = distance * np.kron(np.eye(10)[:5], np.ones(6))
    return labelled(*around(centres, sizes), covariance_type="diag", max_iter=5, tol=0.1)


def crossing_and_nested_clusters():
    centres = [[0.0, 0.0], [0.0, 0.0], [200.0, 200.0], [200.0, 200.0]]
    spread = [[20.0, 0.2], [0.2, 20.0], [8.0, 8.0], [0.1, 0.1]]
    return labelled(*around(centres, 4 * [300], spread))


def ring_about_a_cluster():
    """Sixteen components lie on a ring about a round cluster."""
    angles, rng = np.arange(16) * np.pi / 8.0, np.random.default_rng(0)
    places = np.append(rng.uniform(0.0, 2.0 * np.pi, 800), np.zeros(200))
    radii, noise = np.repeat([10.0, 0.0], [800, 200]), rng.standard_normal((1_000, 2))
    X = np.c_[np.cos(places), np.sin(places)] * radii[:, None]
    X += np.repeat([0.5, 1.0], [800, 200])[:, None] * noise
    return known(np.concatenate([10.0 * np.c_[np.cos(angles), np.sin(angles)], [[0.0, 0.0]]]), X)


def touching_clusters():
    """Neighbours in a grid of sixteen round clusters are 4.5 deviations apart."""
    means = 4.5 * np.argwhere(np.ones((4, 4)))
    return known(means, around(means, 16 * [100])[0])


def clusters_with_a_shallow_valley():
    """The rows alone do not show one of the valleys between normal clusters."""
    X, _ = around(TRIANGLE, [267, 267, 266])
    mixture = MemoizedDPGMM(3, moves=(), random_state=0).fit(X)
    assert mixture.clusterings_["valley_test"].min() < 3.5
    # The entropy alone would join them.
    assert copy(mixture).join_components(X, criterion="share").n_clusters_ == 1
    return mixture


@pytest.mark.parametrize(
    ("mixture", "n_clusters"),
    [
        (pairs_of_near_clusters, 6),
        (partial(clusters_in_many_columns, (250, 170, 160, 10, 10), 2.0), 5),
        (partial(clusters_in_many_columns, (300, 250, 8, 7, 6), 3.0), 5),
        (crossing_and_nested_clusters, 4), (ring_about_a_cluster, 2), (touching_clusters, 16),
        (clusters_with_a_shallow_valley, 3),
    ],
)  # fmt: skip
def test_only_components_without_a_valley_between_them_are_joined(mixture, n_clusters):
    assert mixture().n_clusters_ == n_clusters


@pytest.mark.parametrize("n_apart", [0, 1, 2, 4])
def test_a_cluster_that_is_split_is_joined(n_apart):
    rng = np.random.default_rng(0)
    apart = 30.0 * (1.0 + np.arange(n_apart))[:, None]
    far = [at + rng.standard_normal((50, 1)) for at in apart]
    X = np.concatenate([rng.uniform(-2.5, 2.5, size=(200, 1)), *far])
    mixture = known(np.concatenate([apart, [[-1.0], [1.0]]]), X)
    assert mixture.n_clusters_ == n_apart + 1
    clusters = mixture.component_clusters(n_apart + 1)
    assert clusters[-1] == clusters[-2] and len(set(clusters)) == n_apart + 1


def joins(shares, lost, n_vacant=0, masses=None):
    K = len(shares) + 1
    chain = [[max(0, K + j - 1) if j else 0, j + 1, height, j + 2] for j, height in
             enumerate(np.cumsum(lost))]  # fmt: skip
    masses = np.full(K - 1, 0.3) if masses is None else np.asarray(masses)
    return Joins(np.array(chain), np.asarray(shares), masses, n_vacant)


@pytest.mark.parametrize(
    ("found", "n_joined"),
    [
        # Joins that lose a tenth or more are made, until one loses less.
        (joins([0.3, 0.11, 0.09, 0.3], [0.1, 0.1, 0.1, 0.1]), 2),
        # The joins before an elbow are made if they lose a hundredth or more.
        (joins([0.05] * 5 + [0.011, 1e-4, 1e-4], [0.1] * 6 + [1e-3] * 2), 6),
        (joins([0.05] * 5 + [0.009, 1e-4, 1e-4], [0.1] * 6 + [1e-3] * 2), 5),
        (joins([0.009] + [0.05] * 5 + [1e-4, 1e-4], [0.1] * 6 + [1e-3] * 2), 0),
        # There is no elbow unless the entropy falls four times as steeply before it.
        (joins([0.05, 0.05, 0.05, 0.05, 0.05], [0.1, 0.1, 0.1, 0.1, 0.1]), 0),
        (joins([0.05] * 5 + [0.03] * 2, [0.1] * 5 + [0.03] * 2), 0),
        (joins([0.05] * 5 + [0.02] * 2, [0.1] * 5 + [0.02] * 2), 5),
        # An elbow has at least five joins before it and two after it.
        (joins([0.05] * 5 + [1e-4], [0.1] * 5 + [1e-3]), 0),
        (joins([0.05] * 5 + [1e-4] * 2, [0.1] * 5 + [1e-3] * 2), 5),
        (joins([0.05] * 4 + [1e-4] * 3, [0.1] * 4 + [1e-3] * 3), 0),
        # The steepness is the loss per row that is joined.
        (joins([0.05] * 7, [0.1] * 5 + [0.01] * 2, masses=[0.3] * 5 + [0.03] * 2), 0),
        # Components without rows are joined first and do not count.
        (joins([0, 0, *[0.05] * 5, 1e-4, 1e-4], [0, 0, *[0.1] * 5, 1e-3, 1e-3], n_vacant=2), 7),
        (joins([0.0, 0.0], [0.0, 0.0], n_vacant=1), 1),
    ],
)
def test_the_rule_for_the_number_of_clusters(found, n_joined):
    assert found.n_clusters == found.n_components - n_joined


@pytest.mark.parametrize(("n_small", "n_joined"), [(0, 5), (1, 0)])
def test_components_of_a_few_rows_make_no_elbow(n_small, n_joined):
    found = joins([0.05] * 5 + [1e-4] * 2, [0.1] * 5 + [1e-3] * 2)
    counts = np.full(found.n_components, 100.0)
    counts[5 : 5 + n_small] = 2.0
    n_clusters = found.count_clusters_at_elbow(found.n_components, counts)
    assert n_clusters == found.n_components - n_joined


@pytest.mark.slow
def test_components_without_rows_are_no_clusters():
    profiles = np.random.default_rng(0).random((4, 40)) < 0.5
    labels = np.repeat(np.arange(4), 60)
    X = profiles[labels] ^ (np.random.default_rng(1).random((240, 40)) < 0.05)
    mixture = StructuredBernoulliMixture(15, learning_method="structured", random_state=0).fit(X)
    assert mixture.n_components_ == 15
    assert len(set(mixture.predict(X))) == mixture.n_clusters_ == 4
    joined = mixture.component_clusters()
    np.testing.assert_array_equal(mixture.predict(X, "auto"), joined[mixture.predict(X)])


# ----------------------------------------------------------------- the table of all numbers
@pytest.mark.parametrize("criterion", ["auto", "share", "evidence"])
def test_the_table_has_a_row_for_each_number_of_clusters(X, weights, mixture, criterion):
    mixture = copy(mixture).join_components(X, weights, criterion=criterion)
    table, K = mixture.clusterings_, mixture.n_components_
    columns = (
        "n_clusters how loss criterion valley valley_test bound refitted_bound agreement "
        "suggested_by suggested reason"
    )
    assert list(table) == columns.split()
    assert table["n_clusters"].tolist() == list(range(1, K + 1))
    assert table["how"].tolist() == ["joined"] * (K - 1) + ["components"]
    # The losses are the steps between the heights of the tree.
    last_first = table[::-1]
    np.testing.assert_allclose(last_first["loss"][:-1].cumsum(), mixture.hierarchy_[:, 2])
    assert last_first["criterion"].tolist() == [*mixture.hierarchy_criteria_, ""]
    assert table.loc[0, ["loss", "valley", "valley_test"]].isna().all()
    assert not table[["valley", "valley_test"]][1:].isna().any(axis=None)
    assert table["n_clusters"][table["suggested"]].tolist() == [mixture.n_clusters_]
    assert table["reason"][mixture.n_clusters_ - 1] == f"{mixture.n_clusters_reason_}."
    assert all(reason.endswith(".") for reason in table["reason"])


def test_the_table_says_what_each_join_loses(X, weights, mixture):
    table = mixture.clusterings_
    assert mixture.n_clusters_ < mixture.n_components_
    test = table["valley_test"].iloc[-1]
    assert f"fewer by only {test:.1f} standard errors" in table["reason"].iloc[-1]
    assert f"loses {table['loss'][1]:.3g} nats of evidence per row" in table["reason"][0]
    by_entropy = copy(mixture).join_components(X, weights, criterion="share")
    resp, Z = by_entropy.predict_proba(X), by_entropy.hierarchy_
    first = weights @ resp[:, Z[0, :2].astype(int)] / weights.sum()
    share = Z[0, 2] / (entr(first).sum() - entr(first.sum()))  # The largest loss is the divisor.
    reason = by_entropy.clusterings_["reason"].iloc[-1]
    assert f"joining them loses {share:.1%} of the entropy" in reason


@pytest.mark.parametrize("kind", ["full", "tied"])
def test_the_bound_of_a_clustering_is_that_of_its_responsibilities(X, weights, kind):
    settings = {"moves": (), "tol": 1e-8, "max_iter": 500, "random_state": 0}
    mixture = MemoizedDPGMM(4, covariance_type=kind, **settings).fit(X, sample_weight=weights)
    model, every = mixture._fitted.model, np.arange(len(X))
    bounds = []
    for n in range(1, mixture.n_components_ + 1):
        resp = mixture.predict_proba(X, n_clusters=n)
        resp = resp[:, np.argsort(-(weights @ resp))]  # Sticks prefer this order.
        stats = model.make_local_result(model.batch(X, every, weights), resp).stats
        bounds.append(model.collapsed_energy(stats) + weights @ entr(resp).sum(axis=1))
    np.testing.assert_allclose(mixture.clusterings_["bound"], bounds, atol=0.05)
    assert mixture.clusterings_["bound"].iloc[-1] == mixture.elbo_


def test_clusterings_are_compared_with_refits_and_other_fits(X, weights, mixture, tmp_path):
    before = mixture.clusterings_
    names = ["refitted_bound", "agreement", "suggested_by"]
    assert before[names].isna().all(axis=None)
    compared = copy(mixture).compare_clusterings(X, sample_weight=weights, max_refitted=5)
    table = compared.clusterings_
    pd.testing.assert_frame_equal(table.drop(columns=names), before.drop(columns=names))
    # Refits assign the rows again, so that no bound falls.
    assert (table["refitted_bound"][:5] > table["bound"][:5] - 0.05).all()
    assert table["refitted_bound"][1] > table["bound"][1] + 1.0
    assert table["refitted_bound"][5:].isna().all()
    assert table["agreement"][0] == 1.0 > table["agreement"].iloc[-1]
    save(compared, tmp_path / "compared.skvt")
    pd.testing.assert_frame_equal(load(tmp_path / "compared.skvt").clusterings_, table)


def test_agreement_is_the_adjusted_rand_index_with_fits_of_other_seeds():
    X = np.random.default_rng(0).normal(size=(60, 2))
    mixture = MemoizedDPGMM(3, moves=(), init_params="random", max_iter=5, random_state=0)
    table = mixture.fit(X).compare_clusterings(X, n_fits=2).clusterings_
    seeds = np.random.default_rng(mixture._fitted.state.seed).integers(2**31 - 1, size=2)
    others = [clone(mixture).set_params(random_state=int(seed)).fit(X) for seed in seeds]
    indices = [adjusted_rand_score(mixture.predict(X), other.predict(X)) for other in others]
    assert np.mean(indices) < 0.99
    assert table["agreement"][2] == pytest.approx(np.mean(indices))
    suggested = np.array([fit.n_clusters_ for fit in (mixture, *others)])
    shares = [np.mean(suggested == n) for n in (1, 2, 3)]
    np.testing.assert_allclose(table["suggested_by"], shares)


@pytest.mark.parametrize(
    ("test", "valley", "says"),
    [
        (np.inf, np.inf, "row, and they do not touch."),
        (np.nan, np.inf, "row, and no row lies between them."),
        (4.0, 0.5, "row, across a valley of 4.0 standard errors."),
    ],
)
def test_reasons_say_what_infinite_valleys_mean(test, valley, says):
    linkage, halves = np.array([[0.0, 1.0, 0.1, 2.0], [2.0, 3.0, 0.5, 3.0]]), np.full(2, 0.5)
    joins = Joins(linkage, halves, halves, 0, 1, 2, "", np.array([0.1, valley]), 1)
    joins = replace(joins, tests=np.array([4.0, test]))
    assert explain_rejection(joins, 1).endswith(says)
    # The test of parts of one cluster may be large.
    assert explain_rejection(joins, 3).endswith("parts of a cluster that no valley divides.")


# --------------------------------------------------------------------- valleys that rows show
@pytest.mark.parametrize(("n_left", "n_right"), [(10, 25), (30, 20)])
def test_a_valley_has_fewer_rows_than_chance_explains(n_left, n_right):
    at = np.repeat([0.0, 1.0], [n_left, n_right])
    # No row lies in three windows, which would have three times the rows of the lower peak.
    expected = np.sqrt(3 * min(n_left, n_right))
    assert measure_valley(at, np.ones(at.size)) == pytest.approx(expected)
    halves = np.repeat(at, 2)
    assert measure_valley(halves, np.full(halves.size, 0.5)) == pytest.approx(expected)


def test_rows_without_a_valley_seldom_show_one():
    rng = np.random.default_rng(0)
    tests = [measure_valley(rng.uniform(-0.5, 1.5, 200), np.ones(200)) for _ in range(500)]
    assert np.quantile(tests, 0.9) < 3.5


def test_a_given_number_keeps_the_clusters_that_most_rows_tell_apart():
    centres = np.pad([[0.0, 0.0], [4.0, 0.0], [0.0, 20.0], [8.0, 20.0]], ((0, 0), (0, 2)))
    X, y = around(centres, [500, 500, 20, 20])
    mixture = MemoizedDPGMM(6, covariance_type="spherical", random_state=0).fit(X)
    assert mixture.n_clusters_ == 4
    labels = mixture.predict(X, n_clusters=3)
    # The index would be 0 if the large clusters were joined.
    assert adjusted_rand_score(np.minimum(y, 2), labels) > 0.8


@pytest.mark.parametrize("n_noise", [200, 400])
def test_noise_does_not_connect_the_clusters_that_stand_in_it(n_noise):
    centres, sizes = [[0.0, 0.0], [8.0, 0.0], [4.0, 7.0]], np.array([[0.4], [0.6], [0.5]])
    X, y = around(centres, 3 * [120], sizes, seed=1)
    noise = np.random.default_rng(1).uniform(-4.0, 12.0, size=(n_noise, 2))
    X, labels = np.concatenate([X, noise]), np.append(y, np.full(n_noise, 3))
    assert adjusted_rand_score(y, labelled(X, labels).predict(X, "auto")[:360]) > 0.9


def test_a_valley_is_as_deep_as_the_density_between_two_clusters_is_low():
    # Each of three components has ten rows, four rows lie between the first two, and the fourth
    # component has no rows.
    resp = np.repeat(np.eye(4)[:3], 10, axis=0)
    resp = np.concatenate([resp, np.repeat([[0.5, 0.5, 0.0, 0.0]], 4, axis=0)])
    densities = np.repeat([-1.0, -1.2, -5.0, -2.0], [10, 10, 10, 4])
    assignments = Assignments([(resp, np.ones(34), densities)])
    valleys = assignments.valley_depths(join_components(assignments))
    assert np.isnan(valleys[0])
    np.testing.assert_allclose(valleys[1:], [-1.2 - -2.0, np.inf])


def test_the_valley_between_two_normal_clusters_is_that_of_their_density():
    X, _ = around([[0.0], [5.0]], 2 * [1_000])
    # It is half the square of 2.5 deviations, less the logarithm of two equal parts.
    expected = 2.5**2 / 2 - np.log(2)
    valley = known([[0.0], [5.0]], X).clusterings_["valley"][1]
    assert valley == pytest.approx(expected, abs=0.2)


# ------------------------------------------------------------ more clusters than components
def test_more_clusters_than_components_are_found_by_splits():
    rows, truth = around(12.0 * np.argwhere(np.ones((3, 2))), 6 * [30])
    mixture = MemoizedDPGMM(2, moves=(), random_state=0).fit(rows)
    density = mixture.score_samples(rows)
    assert adjusted_rand_score(truth, mixture.predict(rows, n_clusters=6)) == 1.0
    twice = np.repeat(rows, 2, axis=0)
    for n_clusters in (3, 9):
        labels = mixture.predict(rows, n_clusters=n_clusters)
        assert set(labels) == set(range(n_clusters))
        # Equal rows have the same label.
        doubled = mixture.predict(twice, n_clusters=n_clusters).reshape(-1, 2)
        assert set(doubled[:, 0]) == set(range(n_clusters)) and np.ptp(doubled, axis=1).max() == 0
    np.testing.assert_array_equal(mixture.score_samples(rows), density)
    assert mixture.n_components_ == 2


MIXED = [
    ("names", "categorical", ["colour", "grade"]),
    ("flags", "bernoulli", ["striped"]),
    ("real", Gaussian("diag"), ["size"]),
]


def mixed_rows(rng):
    return tables.table(n_rows=24, share=0.1)[0][["colour", "grade", "striped", "size"]]


@pytest.mark.parametrize(
    ("mixture", "rows"),
    [
        (MemoizedDPGMM(2, moves=(), max_iter=2), lambda rng: rng.normal(size=(25, 3))),
        (MemoizedDPMixture(components=MIXED, moves=(), max_iter=2), mixed_rows),
        (StructuredBernoulliMixture(2, max_iter=2), lambda rng: rng.random((40, 6)) < 0.4),
        (CAVIGaussianMixture(2), lambda rng: rng.normal(size=(20, 2))),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_there_are_as_many_clusters_as_rows_that_differ(mixture, rows):
    X = rows(np.random.default_rng(0))
    frame = pd.DataFrame(X)
    n_distinct = len(frame.drop_duplicates())
    mixture.set_params(random_state=0).fit(X)
    for n_clusters in (mixture.n_components_ + 1, n_distinct):
        assert set(mixture.predict(X, n_clusters=n_clusters)) == set(range(n_clusters))
    together = frame.groupby(list(frame), dropna=False, observed=True).ngroup()
    assert adjusted_rand_score(together, mixture.predict(X, n_clusters=n_distinct)) == 1.0
    message = f"rows of X that differ, {n_distinct}. Got {n_distinct + 1}"
    with pytest.raises(ValueError, match=message):
        mixture.predict(X, n_clusters=n_distinct + 1)
    with pytest.raises(ValueError, match="fit anew with n_components=k"):
        mixture.predict_proba(X, n_clusters=mixture.n_components_ + 1)


def test_sparse_rows_are_split_as_dense_ones():
    X = np.random.default_rng(0).random((40, 6)) < 0.4
    mixture = StructuredBernoulliMixture(2, max_iter=2, random_state=0).fit(X)
    stored = sp.csr_array(X.astype(float))
    stored.data[:3] = 0.0
    of_stored, of_dense = (mixture.predict(x, n_clusters=9) for x in (stored, stored.toarray()))
    np.testing.assert_array_equal(of_stored, of_dense)


# --------------------------------------------------------------------- streams and illegal input
def test_the_hierarchy_of_a_stream_is_that_of_given_rows():
    X = bits()
    mixture = StructuredBernoulliMixture(3, learning_method="memoized", moves=(), random_state=0)
    fitted = mixture.fit(X).n_clusters_
    assert fitted == mixture.n_clusters_
    mixture.partial_fit(bits(seed=1))
    for name in ("hierarchy_", "n_clusters_", "clusterings_"):
        with pytest.raises(AttributeError, match=r"after partial_fit: .* join_components\(X\)"):
            getattr(mixture, name)
    for method in (mixture.predict, mixture.predict_proba):
        with pytest.raises(ValueError, match=r"join_components\(X\) computes it"):
            method(X, n_clusters=2)
    assert mixture.predict(X).max() < 3
    mixture.join_components(X, criterion="share")
    expected = joined_one_by_one(mixture.predict_proba(X), np.ones(len(X)), relative=True)
    np.testing.assert_allclose(mixture.hierarchy_, expected, rtol=1e-6, atol=1e-9)
    assert mixture.predict(X, 2).max() == 1


@pytest.mark.parametrize("n_clusters", [0, 10.0, -1, True, "elbow"])
@pytest.mark.parametrize("method", ["predict", "predict_proba", "component_clusters"])
def test_an_illegal_number_of_clusters_is_named_with_its_range(X, mixture, method, n_clusters):
    args = () if method == "component_clusters" else (X,)
    message = rf"range \[1, n_components_\] = \[1, 9\]: .* Got {n_clusters!r}"
    with pytest.raises(ValueError, match=message):
        getattr(mixture, method)(*args, n_clusters=n_clusters)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda mixture, X: mixture.compare_clusterings(X, n_fits=-1), "n_fits == -1, must be >="),
        (lambda mixture, X: mixture.compare_clusterings(X, max_refitted=-1),
         "max_refitted == -1, must be >="),
        (lambda mixture, X: mixture.component_clusters(10), r"= \[1, 9\]: .* Got 10"),
        (lambda mixture, X: mixture.join_components(X, criterion="nats"),
         r"'entropy', 'evidence'\. Got 'nats'"),
        (lambda mixture, X: mixture.predict(da.from_array(X, chunks=(50, 2)), n_clusters=10),
         r"\[1, 9\] for rows in chunks, .* Got 10"),
        (lambda mixture, X: MemoizedDPGMM(labels="clusters", use_labels=True).fit(X, X[:, 0] > 0),
         r"use_labels=True .* labels='clusters'.* Set labels='components'"),
    ],
)  # fmt: skip
def test_illegal_calls_are_refused_with_the_remedy(X, mixture, call, message):
    with pytest.raises(ValueError, match=message):
        call(mixture, X)


def test_labels_are_those_of_clusters_if_the_user_asks_for_them():
    """BERTopic reads ``labels_`` and ``predict(X)`` without arguments."""
    centres = np.array([[0.0, 0.0], [0.0, 0.0], [18.0, 0.0], [18.0, 0.0]])
    X, y = around(centres, 4 * [250], [[4.0, 0.3], [0.3, 4.0]] * 2)  # There are two crosses.
    mixture = MemoizedDPGMM(max_components=5, labels="clusters", random_state=0)
    labels = mixture.fit_predict(X)
    assert (mixture.n_components_, mixture.n_clusters_) == (4, 2)
    assert adjusted_rand_score(y // 2, labels) > 0.97
    for other in (mixture.labels_, mixture.predict(X), mixture.predict(X, n_clusters=2)):
        np.testing.assert_array_equal(labels, other)
    assert mixture.predict_proba(X[:5]).shape == (5, 2)
    assert mixture.predict(X, n_clusters=4).max() == 3
    mixture.partial_fit(X[::2])  # This joins no components.
    assert mixture.labels_.max() == mixture.predict(X).max() == mixture.n_components_ - 1


@pytest.mark.parametrize("kind", ["counts", "sparse counts", "missing"])
def test_rows_that_say_nothing_are_no_overlap_of_components(kind):
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=300)
    rates = rng.gamma(1.0, 1.0, (3, 15))[y]
    X = rng.poisson(rng.gamma(4.0, 1.5, (300, 1)) * rates).astype(float)
    empty = np.zeros((100, 15))
    component = NegativeBinomial(exposure="row_total")
    if kind == "missing":
        X, empty, component = (
            rng.normal(6.0 * y[:, None], size=(300, 15)),
            empty + np.nan,
            Gaussian("diag"),
        )
    mixture = MemoizedDPMixture(components=component, random_state=0)
    assert mixture.fit(X).n_clusters_ == 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        rows = np.concatenate([X, empty])
        mixture.fit(sp.csr_array(rows) if kind == "sparse counts" else rows)
    assert mixture.n_components_ == mixture.n_clusters_ == 3
