import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from skvt.metrics import cluster_alignment, match_components, topic_coherence

# Four documents over words a, b, c, d: D(a) = 3, D(b) = 2, D(c) = 2, D(d) = 1,
# D(a, b) = 2, D(a, c) = 1, D(b, c) = 1, D(c, d) = 1, D(a, d) = D(b, d) = 0.
X = np.array([[5, 1, 0, 0], [1, 1, 1, 0], [2, 0, 0, 0], [0, 0, 3, 1]])


def test_npmi_is_1_for_words_together_and_minus_1_for_words_apart():
    together = np.array([[1, 1, 0, 1], [1, 1, 0, 1], [0, 0, 1, 1], [0, 0, 0, 1]])
    only_together, never, always = [4, 3, 0, 0], [4, 0, 3, 0], [4, 0, 0, 3]
    values = topic_coherence([only_together, never, always], together, n_words=2)
    assert_allclose(values, [1, -1, 0], atol=1e-15)
    everywhere = topic_coherence([[1, 1]], np.ones((3, 2)), n_words=2)
    assert_array_equal(everywhere, [0])


def test_eps_is_added_to_the_share_of_joint_documents():
    eps = 1e-12
    value = topic_coherence([[4, 0, 0, 3]], X, n_words=2, eps=eps)  # No document has a and d.
    assert_allclose(value, np.log(eps / (3 / 4 * 1 / 4)) / -np.log(eps), rtol=1e-14)


def test_counts_and_stored_zeros_and_duplicates_do_not_matter():
    messy = sparse.csr_matrix(
        (
            np.array([2, 3, 1, 0, 1, 1, 1, 2, 2, 1, 1.0]),
            np.array([0, 0, 1, 3, 0, 1, 2, 0, 2, 2, 3]),
            np.array([0, 4, 7, 8, 11]),
        ),
        shape=(4, 4),
    )
    assert_array_equal(messy.toarray(), X)  # It has a duplicate entry and a stored zero.
    topics = [[4, 3, 2, 1], [1, 2, 3, 4]]
    for measure in ("npmi", "umass"):
        expected = topic_coherence(topics, X > 0, n_words=4, measure=measure)
        value = topic_coherence(topics, messy, n_words=4, measure=measure)
        assert_array_equal(value, expected)
    assert messy.nnz == 11  # The caller's matrix is unchanged.


@pytest.mark.parametrize("measure", ["npmi", "umass"])
def test_coherence_equals_plain_loops(measure):
    rng = np.random.default_rng(0)
    counts = rng.poisson(0.4, size=(60, 30))
    topics = rng.random((7, 30))
    expected = []
    for topic in topics:
        top, values = np.argsort(-topic)[:6], []
        for m in range(1, 6):
            for n in range(m):
                has_n, has_m = counts[:, top[n]] > 0, counts[:, top[m]] > 0
                both = np.sum(has_n & has_m)
                if measure == "umass":
                    values.append(np.log((both + 1) / has_n.sum()))
                elif both == 0:
                    values.append(-1)
                else:
                    pmi = np.log(both / 60 / (has_n.mean() * has_m.mean()))
                    values.append(pmi / -np.log(both / 60))
        expected.append(np.sum(values) if measure == "umass" else np.mean(values))
    value = topic_coherence(topics, sparse.csr_array(counts), n_words=6, measure=measure)
    assert value.shape == (7,)
    assert_allclose(value, expected, rtol=1e-12)


def test_a_word_without_documents_scores_minus_one_or_is_an_error():
    counts = np.array([[1, 0], [1, 0], [0, 0]])
    for eps in (0, 1e-12):
        assert_array_equal(topic_coherence([[2, 1]], counts, n_words=2, eps=eps), [-1])
    with pytest.raises(ValueError, match=r"words \[1\] .* no document"):
        topic_coherence([[2, 1]], counts, n_words=2, measure="umass")


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"topic_word": [[1, 2, 3]]}, ValueError, "topic_word has 3 words, but X has 4"),
        ({"measure": "c_v"}, ValueError, "'npmi', 'umass'. Got 'c_v'"),
        ({"n_words": 1}, ValueError, "n_words == 1, must be >= 2"),
        ({"n_words": 5}, ValueError, "n_words == 5, must be <= 4"),
        ({"n_words": 2.0}, TypeError, "n_words must be an instance of int"),
        ({"eps": -0.1}, ValueError, r"\[0, 1\). Got -0.1"),
        ({"eps": np.nan}, ValueError, r"\[0, 1\). Got nan"),
        ({"X": -X}, ValueError, "Negative values"),
        ({"topic_word": [[np.nan, 2, 3, 4]]}, ValueError, "NaN"),
    ],
)
def test_coherence_refuses_bad_input(changes, error, message):
    arguments = {"topic_word": [[4, 3, 2, 1]], "X": X, "n_words": 2} | changes
    topic_word, counts = arguments.pop("topic_word"), arguments.pop("X")
    with pytest.raises(error, match=message):
        topic_coherence(topic_word, counts, **arguments)


TRUTH = ["a", "a", "a", "a", "b", "b", "b", "c"]
CLUSTERS = [0, 0, 1, 1, 2, 2, 1, 2]


def test_one_to_one_counts_extra_clusters_as_errors():
    # The best pairing gives two rows to a and two to b, or one to b and one to c.
    accuracy, mapping = cluster_alignment(TRUTH, CLUSTERS, method="one-to-one")
    assert accuracy == 4 / 8
    assert mapping[2] == "b" and "a" in mapping.values()
    assert len(set(mapping.values())) == len(mapping)


def test_one_to_one_beats_a_greedy_pairing():
    # Cluster 0 has 3 x and 2 y, and cluster 1 has 2 x. A greedy pairing counts 3, the best 2 + 2.
    truth, clusters = list("xxxyyxx"), [0, 0, 0, 0, 0, 1, 1]
    accuracy, mapping = cluster_alignment(truth, clusters, method="one-to-one")
    assert (accuracy, mapping) == (4 / 7, {0: "y", 1: "x"})


def test_a_cluster_with_nothing_to_pair_is_left_out_of_the_mapping():
    truth, clusters = ["x", "x", "x", "y"], [0, 0, 1, 0]
    accuracy, mapping = cluster_alignment(truth, clusters, method="one-to-one")
    assert accuracy == 2 / 4
    assert set(mapping.items()) <= {(0, "x"), (1, "x"), (0, "y")}
    # Class z is only in cluster 0, which x takes, so that cluster 1 has no class.
    accuracy, mapping = cluster_alignment(list("xxxzx"), [0, 0, 0, 0, 1], method="one-to-one")
    assert (accuracy, mapping) == (3 / 5, {0: "x"})


@pytest.mark.parametrize("method", ["majority", "one-to-one"])
def test_renaming_clusters_changes_nothing_but_the_names(method):
    rng = np.random.default_rng(0)
    truth, clusters = rng.integers(4, size=200), rng.integers(6, size=200)
    new_ids = np.array(["u", "z", "v", "y", "w", "x"])
    accuracy, mapping = cluster_alignment(truth, clusters, method=method)
    renamed_accuracy, renamed = cluster_alignment(truth, new_ids[clusters], method=method)
    assert renamed_accuracy == accuracy
    assert renamed == {str(new_ids[cluster]): mapping[cluster] for cluster in mapping}
    # The mapping determines which rows are counted.
    assert accuracy == np.mean([mapping.get(c) == t for t, c in zip(truth, clusters, strict=True)])


@pytest.mark.parametrize(
    ("truth", "clusters", "options", "message"),
    [
        ([0, 1], [0, 1, 1], {}, "inconsistent numbers of samples"),
        ([], [], {}, "labels_true must have at least one row"),
        ([[0, 1], [1, 0]], [0, 1], {}, "1d array"),
        ([0.0, np.nan], [0, 1], {}, "labels_true has missing values"),
        ([0, 1], np.array([None, "a"], dtype=object), {}, "labels_pred has missing values"),
        ([0, 1], [0, 1], {"method": "best"}, "'one-to-one'. Got 'best'"),
    ],
)
def test_alignment_refuses_bad_input(truth, clusters, options, message):
    with pytest.raises(ValueError, match=message):
        cluster_alignment(truth, clusters, **options)


def test_matching_undoes_a_permutation_scaling_and_shift():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(6, 10))
    order = rng.permutation(6)
    B = 3.0 * A[order] - 7.0
    permutation, correlations = match_components(A, B)
    assert_array_equal(order[permutation], np.arange(6))
    assert_allclose(correlations, 1, rtol=1e-12)


def test_matching_has_the_largest_sum_not_the_greedy_one():
    e = np.eye(3) - 1 / 3  # rows correlate -1/2 with each other
    A = [e[0], e[0] + 0.5 * e[1]]
    B = [e[0] + 0.4 * e[1], e[1]]
    correlation = np.corrcoef(A, B)[:2, 2:]
    assert correlation.argmax() == 2 and correlation[0, 0] > correlation[0, 1]
    straight, crossed = np.trace(correlation), np.trace(correlation[::-1])
    permutation, correlations = match_components(A, B)
    assert_allclose(correlations.sum(), max(straight, crossed))
    assert_allclose(correlations, correlation[np.arange(2), permutation], atol=1e-14)
    assert straight > crossed  # The largest single correlation is crossed.
    assert_array_equal(permutation, [0, 1])


def test_surplus_components_have_no_match():
    A = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])
    permutation, correlations = match_components(A, A[[2, 0]])
    assert_array_equal(permutation, [1, -1, 0])
    assert_allclose(correlations, [1, np.nan, 1])
    permutation, correlations = match_components(A[[2, 0]], A)
    assert_array_equal(permutation, [2, 0])
    assert_allclose(correlations, [1, 1])


def test_constant_components_correlate_zero_and_opposites_minus_one():
    permutation, correlations = match_components([[0.1, 0.1, 0.1]], [[1.0, 2.0, 4.0]])
    assert_array_equal((permutation[0], correlations[0]), (0, 0))
    _, correlations = match_components([[1.0, 2.0, 4.0]], [[-1.0, -2.0, -4.0]])
    assert_allclose(correlations, [-1])


@pytest.mark.parametrize(
    ("A", "B", "message"),
    [
        (np.ones((2, 3)), np.ones((2, 4)), "3 features in A and 4 in B"),
        (np.ones((2, 1)), np.ones((2, 1)), "at least 2"),
        (np.ones(3), np.ones((1, 3)), "Expected 2D array"),
        (np.full((1, 2), np.inf), np.ones((1, 2)), "infinity"),
    ],
)
def test_matching_refuses_bad_input(A, B, message):
    with pytest.raises(ValueError, match=message):
        match_components(A, B)
