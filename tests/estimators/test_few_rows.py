"""Clusters of components that have few rows for their number of statistics."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

from skvt import MemoizedDPGMM
from skvt._results._clusters import N_FOLDS, assign_held_out_rows, iterate_results
from skvt.expfam import RunningStats
from skvt.inference import Workers

# A fit that keeps the components of its start.
FIXED = {"moves": (), "max_iter": 5, "tol": 0.1, "random_state": 0}


def test_held_out_rows_are_assigned_by_the_statistics_of_all_other_rows():
    """A fold of a tenth of the rows is assigned by a model that has the other nine tenths."""
    X = np.random.default_rng(0).standard_normal((90, 6))
    mixture = MemoizedDPGMM(2, labels_init=(X[:, 0] > 0.0).astype(int), **FIXED).fit(X)
    fitted, weights = mixture._fitted, np.ones(90)
    model = fitted.model
    no_vacant = np.zeros(2, bool)
    with Workers(1) as workers:
        # The result has the rows in the order of the folds.
        order = np.random.default_rng(fitted.state.seed).permutation(90)
        folds = [np.sort(rows) for rows in np.array_split(order, N_FOLDS)]
        held_out = assign_held_out_rows(fitted, X, weights, workers, no_vacant)
        expected = []
        for rows in folds:
            others = np.delete(np.arange(90), rows)
            ((batch, result),) = iterate_results(fitted, X[others], weights[others], workers)
            learned = RunningStats(model.statistics_of_assignments(batch, result.q).arrays)
            ((_, result),) = iterate_results(fitted, X[rows], weights[rows], workers, learned)
            expected.append(result.bound)
    np.testing.assert_allclose(held_out.rows.log_densities, np.concatenate(expected), rtol=1e-9)


def test_clear_clusters_in_many_columns_stay_apart():
    """Groups of clusters that are nearer to each other than to others are no elbow."""
    X, y = make_blobs(1000, 30, centers=6, random_state=0)
    mixture = MemoizedDPGMM(6, labels_init=y, **FIXED).fit(X)
    assert mixture.n_clusters_ == 6


@pytest.mark.parametrize("covariance_type", ["tied", "tied_low_rank"])
@pytest.mark.parametrize("seed, has_wrong_value", [(5, False), (2, True)])
def test_clusters_of_one_covariance_stay_apart(covariance_type, seed, has_wrong_value):
    """A covariance of its own would describe two clusters as one that is wide in one direction."""
    rng = np.random.default_rng(seed)
    y = rng.choice(4, 300, p=[0.4, 0.3, 0.2, 0.1])
    X = rng.normal(0.0, 1.2, size=(4, 20))[y] + rng.normal(size=(300, 20))
    X += rng.normal(size=(300, 3)) @ rng.normal(0.0, 0.7, size=(3, 20))
    labels = y.copy()
    if has_wrong_value:
        X[0, 0] += 40.0
        # The row is a component of its own, which is joined before the clusters are.
        labels[0] = 4
    given = FIXED | {"covariance_type": covariance_type, "labels_init": labels}
    mixture = MemoizedDPGMM(len(set(labels)), **given).fit(X)
    n_clusters = 4 if has_wrong_value else "auto"
    assert adjusted_rand_score(y, mixture.predict(X, n_clusters=n_clusters)) > 0.95


def test_far_rows_do_not_join_all_other_clusters():
    X, y = make_blobs(300, 8, centers=4, random_state=0)
    far = np.random.default_rng(0).normal(0.0, 60.0, size=(5, 8))
    labels = np.append(y, np.arange(4, 9))
    mixture = MemoizedDPGMM(9, labels_init=labels, **FIXED).fit(np.concatenate([X, far]))
    assert adjusted_rand_score(y, mixture.predict(X, n_clusters="auto")) == 1.0


def test_joins_do_not_depend_on_where_rows_lie():
    """Rows of weight 0 and the layout of the rows in memory change no join."""
    X, y = make_blobs(90, 12, centers=3, cluster_std=4.0, random_state=0)
    mixture = MemoizedDPGMM(3, labels_init=y, **FIXED).fit(X)
    hierarchy = mixture.hierarchy_
    np.testing.assert_array_equal(mixture.join_components(X).hierarchy_, hierarchy)
    mixture.join_components(np.asfortranarray(X))
    np.testing.assert_allclose(mixture.hierarchy_, hierarchy, rtol=1e-9)


def test_two_far_rows_of_a_cluster_are_joined_before_other_clusters():
    """No row lies between them and their cluster, but two rows make no deep valley."""
    X, y = make_blobs(300, 2, centers=3, random_state=2)
    mixture = MemoizedDPGMM(random_state=2).fit(X)
    assert mixture.n_components_ == 4
    assert adjusted_rand_score(y, mixture.predict(X, n_clusters=3)) > 0.9
