"""Users name the suggested clusters of a mixture."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

from skvt import (
    CAVIGaussianMixture,
    MemoizedDPGMM,
    MemoizedDPMixture,
    StructuredBernoulliMixture,
    cluster_report,
    covariate_effects,
    load,
    outcome_by_cluster,
    save,
)
from skvt.plotting import ClusterTreeDisplay, ProfilesDisplay

KIND = np.repeat([0, 1, 2], [90, 60, 50])


def people():
    """A table of three groups that differ in age and height."""
    rng = np.random.default_rng(0)
    age, height = np.array([[20.0, 170.0], [45.0, 120.0], [80.0, 150.0]])[KIND].T
    columns = {"age": age, "height": height, "label": 0.0 * age}
    return pd.DataFrame({name: rng.normal(column) for name, column in columns.items()})


@pytest.fixture
def mixture():
    mixture = MemoizedDPMixture(random_state=0).fit(people())
    # Clusters are in the order of their sizes.
    assert mixture.predict(people(), n_clusters="auto").tolist() == KIND.tolist()
    return mixture


def fit_bits():
    bits = np.kron(np.eye(3), np.ones((40, 6)))
    return StructuredBernoulliMixture(3, random_state=0).fit(bits), bits


def fit_numbers(cls, **parameters):
    X = people()[["age", "height"]].to_numpy()
    return cls(random_state=0, **parameters).fit(X), X


@pytest.mark.parametrize(
    "fit",
    [
        fit_bits,
        lambda: fit_numbers(CAVIGaussianMixture, n_components=3),
        lambda: fit_numbers(MemoizedDPGMM),
        lambda: fit_numbers(MemoizedDPGMM, background=True),
    ],
)
def test_names_are_set_kept_in_files_and_by_warm_starts_and_removed(fit, tmp_path):
    mixture, X = fit()
    assert mixture.cluster_labels_ is None
    mixture.cluster_labels_ = pd.Series({1: "one"})
    names = [f"cluster {k}" for k in range(mixture.n_clusters_)]
    names[1] = "one"
    assert mixture.cluster_labels_ == names
    for wrong in (3, names[1:], "x" * len(names), {len(names): "x"}, {0: 1}):
        with pytest.raises(ValueError, match=f"must be {len(names)} strings, one for each cluster"):
            mixture.cluster_labels_ = wrong
    save(mixture, tmp_path / "mixture.skvt")
    again = load(tmp_path / "mixture.skvt").set_params(warm_start=True).fit(X)
    assert mixture.cluster_labels_ == again.cluster_labels_ == names
    assert mixture.fit(X).cluster_labels_ is None
    del again.cluster_labels_
    assert again.cluster_labels_ is None


def test_a_cluster_keeps_its_name_while_it_has_the_same_components():
    # The components of the first two blobs are joined.
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(mean, 1.0, size=(80, 1)) for mean in (0.0, 1.0, 30.0, 60.0)])
    mixture = MemoizedDPGMM(4, means_init=[[0], [1], [30], [60]], moves=(), random_state=0).fit(X)
    assert mixture.n_clusters_ == 3
    places = [[0.5], [30.0], [60.0]]
    names = dict(zip(mixture.predict(places, "auto").tolist(), ("joined", "b", "c"), strict=True))
    mixture.cluster_labels_ = names
    joins = mixture._fitted.joins
    mixture._fitted = replace(mixture._fitted, joins=replace(joins, n_suggested=4))
    shown = [mixture.cluster_labels_[k] for k in mixture.predict(places, "auto")]
    assert shown[0].startswith("cluster") and shown[1:] == ["b", "c"]
    # A stream has no clusters until its components are joined.
    mixture.partial_fit(X[:5])
    assert mixture.cluster_labels_ is None
    with pytest.raises(ValueError, match=r"join_components\(X\)"):
        mixture.cluster_labels_ = {0: "joined"}
    names = mixture.join_components(X).cluster_labels_
    assert sorted(names) == ["b", "c", "joined"]


def test_names_are_shown_with_the_suggested_clusters_only(mixture, tmp_path):
    table = people()
    mixture.cluster_labels_ = {0: "young", 2: "old & <wise>"}
    names = ["young", "cluster 1", "old & <wise>"]
    for n_clusters, labels in (("auto", names), (3, names), (2, None), (None, None)):
        long = mixture.describe(n_clusters=n_clusters)
        wide = mixture.describe(n_clusters=n_clusters, form="wide")
        text = mixture.describe(n_clusters=n_clusters, form="text")
        assert ("label" in long) == (labels is not None) == ("young" in text)
        if labels:
            assert [labels[k] for k in long["cluster"]] == long["label"].tolist()
            assert wide["label"].tolist() == labels
            lines = text.split("\n")
            assert [line.split(" (")[0] for line in lines] == [
                "cluster 0, young", "cluster 1", "cluster 2, old & <wise>"
            ]  # fmt: skip
    # The column of the data that is called "label" stays beside the names.
    assert any(name.endswith(": label") for name in wide.columns) == ("label" not in wide)
    display = ProfilesDisplay.from_estimator(mixture, n_clusters="auto")
    rows = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert rows[1].startswith("0 young: ") and rows[3].startswith("2 old & <wise>: ")
    cluster_report(mixture, table, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Cluster 0, young (45% of rows)" in page
    assert "cluster 2, old &amp; &lt;wise&gt;</th>" in page
    _, _, rows = mixture._result_for_display()
    assert [name for name, _, _ in rows] == ["0 young", "1", "2 old & <wise>"]


def test_names_stand_above_their_part_of_the_tree(mixture):
    mixture.cluster_labels_ = names = ["young", "middle", "old"]
    tree = ClusterTreeDisplay.from_estimator(mixture)
    (top,) = tree.ax_.child_axes
    clusters = mixture.component_clusters()
    leaves = np.array(tree.dendrogram_["leaves"])
    for text, x in zip(top.get_xticklabels(), top.get_xticks(), strict=True):
        positions = 10.0 * np.flatnonzero(clusters[leaves] == names.index(text.get_text())) + 5.0
        assert positions.min() <= x <= positions.max()
    assert ClusterTreeDisplay.from_estimator(mixture, n_clusters=2).cluster_labels is None


def test_names_are_a_column_of_outcomes_and_effects(mixture):
    table, outcome = people(), np.arange(len(KIND)) % 7
    calls = (
        lambda **options: outcome_by_cluster(mixture, table, outcome, random_state=0, **options),
        lambda **options: covariate_effects(
            make_pipeline("passthrough", mixture), table, outcome, random_state=0, **options
        ),
    )
    plain = [call(n_clusters="auto") for call in calls]
    mixture.cluster_labels_ = names = ["young", "middle", "old"]
    for call, without in zip(calls, plain, strict=True):
        named = call(n_clusters="auto")
        assert named["label"].tolist() == [names[k] for k in named["cluster"]]
        pd.testing.assert_frame_equal(named.drop(columns="label"), without)
        assert list(named)[:2] == ["cluster", "label"]
        assert "label" not in call(n_clusters=2)


@pytest.mark.parametrize("rows", [slice(390), slice(None)])
def test_names_follow_their_clusters_to_other_rows(rows):
    # The fit has births, so that identifiers of components are not their positions.
    means = np.repeat([0.0, 6.0, 12.0, 18.0], [160, 120, 80, 40])
    X = np.random.default_rng(0).permutation(np.random.default_rng(1).normal(means))[:, None]
    mixture = MemoizedDPMixture(warm_start=True, max_iter=30, random_state=0).fit(X)
    assert mixture._fitted.state.component_ids.tolist() != [0, 1, 2, 3]

    def mean_names(X):
        clusters = mixture.predict(X, n_clusters="auto")
        return [f"{round(X[clusters == k].mean() / 6.0)}" for k in range(mixture.n_clusters_)]

    mixture.cluster_labels_ = mean_names(X)
    new_group = np.full((60, 1), 40.0) + np.random.default_rng(2).normal(size=(60, 1))
    other_rows = X[rows] if rows.stop else np.concatenate([X, new_group])
    pairs = list(zip(mixture.fit(other_rows).cluster_labels_, mean_names(other_rows), strict=True))
    # A component that a birth has replaced loses its name.
    kept = [name == mean_name for name, mean_name in pairs if not name.startswith("cluster")]
    assert all(kept) and len(kept) >= 3 and len(pairs) == (4 if rows.stop else 5)
