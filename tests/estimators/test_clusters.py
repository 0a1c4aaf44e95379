"""Components joined to clusters."""

import numpy as np
import pytest
from estimators._registry import assert_same_fit, bits
from scipy.cluster.hierarchy import cut_tree, is_monotonic, is_valid_linkage
from scipy.special import entr
from sklearn.metrics import adjusted_rand_score

from skvt import CAVIGaussianMixture, MemoizedDPGMM, StructuredBernoulliMixture
from skvt.estimators import _clusters_mixin
from skvt.models.mixture import Joins


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
    """Nine round components, all of them with rows."""
    round_ones = {"covariance_type": "spherical", "covariance_prior": 1.0, "moves": ()}
    mixture = MemoizedDPGMM(9, batch_size=70, random_state=0, **round_ones)
    return mixture.fit(X, sample_weight=weights)


def entropy(resp, weights):
    """Of assignments, in nats per row."""
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
    other = MemoizedDPGMM.__new__(MemoizedDPGMM)
    vars(other).update(vars(mixture))
    other.join_components(X, weights, criterion=criterion)
    resp = mixture.predict_proba(X)
    expected = joined_one_by_one(resp, weights, relative=criterion == "share")
    np.testing.assert_array_equal(other.hierarchy_[:, [0, 1, 3]], expected[:, [0, 1, 3]])
    np.testing.assert_allclose(other.hierarchy_[:, 2], expected[:, 2], rtol=1e-6, atol=1e-9)
    assert is_valid_linkage(other.hierarchy_) and is_monotonic(other.hierarchy_)
    # by default what fit found, to the last bit; the criteria differ here
    np.testing.assert_array_equal(mixture.hierarchy_, before)
    assert np.array_equal(other.hierarchy_, before) == (criterion == "share")


def test_clusters_are_cut_from_the_hierarchy_and_probabilities_add_up(X, weights, mixture):
    resp, Z = mixture.predict_proba(X), mixture.hierarchy_
    K, n_apart = mixture.n_components_, 0
    plane = np.stack(np.meshgrid(np.linspace(-30, 30, 121), np.linspace(-20, 20, 81)), axis=-1)
    plane = plane.reshape(-1, 2)
    for n_clusters in range(1, K + 1):
        cut = cut_tree(Z, n_clusters)[:, 0]  # numbered by first components, too
        np.testing.assert_array_equal(mixture.component_clusters(n_clusters), cut)
        proba = mixture.predict_proba(X, n_clusters=n_clusters)
        np.testing.assert_allclose(proba, resp @ np.eye(n_clusters)[cut], atol=1e-12)
        np.testing.assert_array_equal(mixture.predict(X, n_clusters), proba.argmax(axis=1))
        lost = 0.0 if n_clusters == K else Z[K - n_clusters - 1, 2]
        np.testing.assert_allclose(entropy(proba, weights), Z[-1, 2] - lost, atol=1e-9)
        far = mixture.predict(plane, n_clusters)
        np.testing.assert_array_equal(far, mixture.predict_proba(plane, n_clusters).argmax(axis=1))
        n_apart += np.sum(far != cut[mixture.predict(plane)])
    # a row that the components of a cluster share need not be in its most probable one's
    assert n_apart > 0
    best = mixture.predict(X, mixture.n_clusters_)
    np.testing.assert_array_equal(mixture.predict(X, "auto"), best)


@pytest.mark.parametrize("seed", range(3))
def test_crosses_are_one_cluster_each(seed):
    X = crosses(200, seed)[:800]
    mixture = MemoizedDPGMM(random_state=0).fit(X)
    assert (mixture.n_components_, mixture.n_clusters_) == (4, 2)
    truth = np.repeat([0, 1], 400)
    assert adjusted_rand_score(truth, mixture.predict(X, "auto")) > 0.97  # arms touch


@pytest.mark.parametrize("limit", [90, 70])
@pytest.mark.parametrize("cls", [CAVIGaussianMixture, MemoizedDPGMM])
def test_of_many_rows_a_sample_is_looked_at(X, cls, limit, monkeypatch):
    monkeypatch.setattr(_clusters_mixin, "ROWS_TO_JOIN", limit)
    monkeypatch.setattr(_clusters_mixin, "ROWS_TO_JOIN_EACH", 10)
    still = {"moves": ()} if cls is MemoizedDPGMM else {"noise_variance": 4.0}
    mixture = cls(8, random_state=0, **still).fit(X)
    rows = mixture._rows_to_join(len(X))
    assert len(set(rows)) == max(limit, 80) and np.all(np.diff(rows) > 0)
    resp = mixture.predict_proba(X[rows])
    expected = joined_one_by_one(resp, np.ones(len(rows)), relative=True)
    np.testing.assert_allclose(mixture.hierarchy_, expected, rtol=1e-6, atol=1e-9)
    others = joined_one_by_one(resp, np.ones(len(rows)), relative=False)
    assert not np.array_equal(others[:, :2], expected[:, :2])


# ----------------------------------------------------------------------------- how many clusters
def known(means, X):
    return CAVIGaussianMixture(len(means), means_init=means, max_iter=300, random_state=0).fit(X)


@pytest.mark.parametrize("distance", [8.0, 12.0, 40.0])
@pytest.mark.parametrize("K", [1, 2, 3, 4, 6])
def test_separated_clusters_are_not_joined(K, distance):
    centres = distance * np.arange(K)[:, None] * np.ones((1, 1))
    X = np.random.default_rng(0).standard_normal((100 * K, 1)) + np.repeat(centres, 100, axis=0)
    mixture = known(centres, X)
    assert mixture.n_clusters_ == K
    assert mixture.hierarchy_.shape == (K - 1, 4)
    np.testing.assert_array_equal(mixture.predict(X, "auto"), mixture.predict(X))


@pytest.mark.parametrize("n_apart", [0, 1, 2, 4])
def test_a_cluster_that_is_split_is_joined(n_apart):
    rng = np.random.default_rng(0)
    apart = 30.0 * (1.0 + np.arange(n_apart))[:, None]
    X = [rng.uniform(-2.5, 2.5, size=(200, 1))] + [
        at + rng.standard_normal((50, 1)) for at in apart
    ]
    mixture = known(np.concatenate([apart, [[-1.0], [1.0]]]), np.concatenate(X))
    assert mixture.n_clusters_ == n_apart + 1
    clusters = mixture.component_clusters()
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
        # a tenth and more, elbow or not; not those behind one that loses less
        (joins([0.3, 0.11, 0.09, 0.3], [0.1, 0.1, 0.1, 0.1]), 2),
        # an elbow: those before it that lose a hundredth
        (joins([0.05, 0.05, 0.011, 1e-4, 1e-4], [0.1, 0.1, 0.1, 1e-3, 1e-3]), 3),
        (joins([0.05, 0.05, 0.009, 1e-4, 1e-4], [0.1, 0.1, 0.1, 1e-3, 1e-3]), 2),
        (joins([0.009, 0.05, 0.05, 1e-4, 1e-4], [0.1, 0.1, 0.1, 1e-3, 1e-3]), 0),
        # none: the entropy falls evenly, or is four times as steep in none of two parts
        (joins([0.05, 0.05, 0.05, 0.05, 0.05], [0.1, 0.1, 0.1, 0.1, 0.1]), 0),
        (joins([0.05, 0.05, 0.05, 0.03, 0.03], [0.1, 0.1, 0.1, 0.03, 0.03]), 0),
        (joins([0.05, 0.05, 0.05, 0.02, 0.02], [0.1, 0.1, 0.1, 0.02, 0.02]), 3),
        # two joins on either side; one pair that is nearer than others is none
        (joins([0.05, 0.05, 1e-4], [0.1, 0.1, 1e-3]), 0),
        (joins([0.05, 0.05, 1e-4, 1e-4], [0.1, 0.1, 1e-3, 1e-3]), 2),
        (joins([0.05, 1e-4, 1e-4, 1e-4], [0.1, 1e-3, 1e-3, 1e-3]), 0),
        # over the rows joined, not over the number of joins
        (joins([0.05] * 5, [0.1, 0.1, 0.1, 0.01, 0.01], masses=[0.3, 0.3, 0.3, 0.03, 0.03]), 0),
        # components without rows come first, and count neither as clusters nor for the elbow
        (joins([0.0, 0.0, 0.05, 0.05, 1e-4, 1e-4], [0, 0, 0.1, 0.1, 1e-3, 1e-3], n_vacant=2), 4),
        (joins([0.0, 0.0], [0.0, 0.0], n_vacant=1), 1),
    ],
)
def test_the_rule_for_the_number_of_clusters(found, n_joined):
    assert found.n_clusters == found.n_components - n_joined


def test_components_without_rows_are_no_clusters():
    profiles = np.random.default_rng(0).random((4, 40)) < 0.5
    labels = np.repeat(np.arange(4), 60)
    X = profiles[labels] ^ (np.random.default_rng(1).random((240, 40)) < 0.05)
    mixture = StructuredBernoulliMixture(15, random_state=0).fit(X)
    assert mixture.n_components_ == 15
    assert len(set(mixture.predict(X))) == mixture.n_clusters_ == 4
    joined = mixture.component_clusters()
    np.testing.assert_array_equal(mixture.predict(X, "auto"), joined[mixture.predict(X)])


# ------------------------------------------------------------------------------ streams, errors
def test_streams_have_a_hierarchy_of_rows_given_to_them():
    X = bits()
    mixture = StructuredBernoulliMixture(3, learning_method="memoized", moves=(), random_state=0)
    fitted = mixture.fit(X).n_clusters_
    assert fitted == mixture.n_clusters_
    mixture.partial_fit(bits(seed=1))
    for name in ("hierarchy_", "n_clusters_"):
        with pytest.raises(AttributeError, match=r"after partial_fit: .* join_components\(X\)"):
            getattr(mixture, name)
    for method in (mixture.predict, mixture.predict_proba):
        with pytest.raises(ValueError, match=r"join_components\(X\) computes it"):
            method(X, n_clusters=2)
    assert mixture.predict(X).max() < 3
    mixture.join_components(X)
    expected = joined_one_by_one(mixture.predict_proba(X), np.ones(len(X)), relative=True)
    np.testing.assert_allclose(mixture.hierarchy_, expected, rtol=1e-6, atol=1e-9)
    assert mixture.predict(X, 2).max() == 1


def test_single_precision_and_threads_join_the_same(X, mixture):
    fits = [
        MemoizedDPGMM(covariance_prior=np.eye(2), n_jobs=n_jobs, random_state=0).fit(
            X.astype(np.float32)
        )
        for n_jobs in (1, 2)
    ]
    assert_same_fit(*fits)
    for fitted in fits:
        assert fitted.hierarchy_.dtype == np.float64
        assert fitted.predict_proba(X.astype(np.float32), "auto").dtype == np.float32
        assert is_valid_linkage(fitted.hierarchy_) and is_monotonic(fitted.hierarchy_)


@pytest.mark.parametrize("n_clusters", [0, 10, -1, 2.0, True, "elbow", "all"])
@pytest.mark.parametrize("method", ["predict", "predict_proba", "component_clusters"])
def test_an_illegal_number_of_clusters_is_named_with_its_range(X, mixture, method, n_clusters):
    args = () if method == "component_clusters" else (X,)
    message = rf"range \[1, n_components_\] = \[1, 9\]: .* Got {n_clusters!r}"
    with pytest.raises(ValueError, match=message):
        getattr(mixture, method)(*args, n_clusters=n_clusters)


def test_an_unknown_criterion_is_refused(X, mixture):
    with pytest.raises(ValueError, match=r"'share' or 'entropy'\. Got 'nats'"):
        mixture.join_components(X, criterion="nats")
