"""Split-merge moves find known topics and raise the bound."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from _engines import total_of
from scipy.special import digamma, gammaln, softmax

from skvt import StructuredLDA, TemperedLDA
from skvt.datasets import make_topic_corpus
from skvt.expfam import RunningStats
from skvt.inference import EngineTools, Rows, State, Workers, evaluate_bound
from skvt.models.lda import SplitMerge, _split_merge
from skvt.models.lda._kernels import MIN_COUNT
from skvt.models.lda._model import LDA
from skvt.moves import Decision
from skvt.temperature import ConstantTemperature

N_TOPICS, N_WORDS = 5, 100
PRIOR = 0.1


def corpus(seed=0, n=400):
    return make_topic_corpus(
        n, n_components=N_TOPICS, n_features=N_WORDS, doc_topic_prior=PRIOR,
        topic_word_prior=PRIOR, random_state=seed,
    )  # fmt: skip


def stuck_corpus(n=400, seed=0, times=1):
    """Return documents, rows, and the statistics of `stuck`."""
    drawn = corpus(seed, n)
    return drawn, data_of(drawn.X), stuck(drawn.topics, times * drawn.X.sum())


def model():
    return LDA(np.full(N_TOPICS, PRIOR), np.full(N_WORDS, PRIOR))


def data_of(X, weights=None):
    X = sp.csr_array(X, dtype=float)
    return Rows(X, np.ones(X.shape[0]) if weights is None else weights, 128)


def stuck(truth, n_tokens):
    """Return statistics (V, K) of two halves of a topic, of the sum of two, and of two others."""
    beta = truth[[0, 0, 1, 3, 4]]
    beta[2] = 0.5 * (truth[1] + truth[2])
    return np.ascontiguousarray((beta * n_tokens / N_TOPICS).T)


def moved(data, S, move=None, rng=0, lda=None):
    """Return the state after one search and the sum of its records."""
    state = State(RunningStats([S.copy()]))
    with Workers() as workers:
        tools = EngineTools(1, np.random.default_rng(rng), workers)
        records = (move or SplitMerge()).change_between_passes(lda or model(), data, state, tools)
    assert all(record.move == "split-merge" for record in records)
    return state, total_of(records)


def bound(data, S, lda=None):
    with Workers() as workers:
        return evaluate_bound(lda or model(), RunningStats([S]), data, workers)


def distance(S, truth):
    """Return the total variation from each true topic to the nearest one found."""
    beta = (S + PRIOR) / (S + PRIOR).sum(axis=0)
    return 0.5 * np.abs(truth[:, :, None] - beta[None]).sum(axis=1).min(axis=1)


# ---------------------------------------------------------------------------------- the move
@pytest.mark.parametrize("seed", range(3))
def test_a_search_merges_two_halves_and_splits_a_topic_that_is_two(seed):
    drawn, data, S = stuck_corpus(seed=seed)
    assert distance(S, drawn.topics)[1:3].min() > 0.35
    state, record = moved(data, S)
    assert record.accepted == 1
    assert distance(state.stats.as_stats().arrays[0], drawn.topics).max() < 0.15


def test_topics_are_exchanged_only_where_their_priors_are_the_same():
    drawn, data, S = stuck_corpus()
    assert moved(data, S)[1].accepted == 1
    for seeded in (0, 1, 2):  # These are two halves and the topic that is two.
        eta = np.full((N_WORDS, N_TOPICS), PRIOR)
        eta[3, seeded] *= 2.0
        state, _ = moved(data, S, lda=replace(model(), topic_word_prior=eta))
        np.testing.assert_array_equal(state.stats.arrays[0][:, seeded], S[:, seeded])
    # Another topic has another prior, and the move is judged with the prior of the three topics.
    S, eta = np.ascontiguousarray(S[:, ::-1]), np.full((N_WORDS, N_TOPICS), PRIOR)
    eta[:, 0] *= 3.0
    state, record = moved(data, S, lda=replace(model(), topic_word_prior=eta))
    assert record.accepted == 1
    assert distance(state.stats.as_stats().arrays[0], drawn.topics).max() < 0.15
    # The gain hardly changes.
    assert record.gain == pytest.approx(moved(data, S)[1].gain, abs=2.0)


@pytest.mark.parametrize("most", [50, 400])
def test_an_accepted_move_raises_the_bound_and_keeps_the_tokens(most, monkeypatch):
    monkeypatch.setattr(_split_merge, "MAX_SAMPLE_SIZE", most)
    _, data, S = stuck_corpus()
    state, record = moved(data, S)
    after = state.stats.as_stats().arrays[0]
    rise = bound(data, after) - bound(data, S)
    assert record.accepted == 1
    assert rise > 0.0
    if most == 50:
        # Only the three topics have changed.
        np.testing.assert_array_equal(after[:, 3:], S[:, 3:])
        np.testing.assert_allclose(after.sum(axis=1), S.sum(axis=1), rtol=1e-12)
    else:
        assert after.sum() == pytest.approx(S.sum(), rel=0.02)


def test_a_search_does_not_change_good_topics():
    drawn = corpus()
    S = np.ascontiguousarray((drawn.topics * drawn.X.sum() / N_TOPICS).T)
    move = SplitMerge()
    state, record = moved(data_of(drawn.X), S, move)
    assert record.accepted == 0 and record.gain == 0.0
    np.testing.assert_array_equal(state.stats.as_stats().arrays[0], S)
    assert move.exhausted
    # The move waits for one pass before it searches again.
    _, data, S = stuck_corpus()
    searched = [moved(data, S, move)[1].proposed for _ in range(2)]
    assert searched == [0, 1]


def test_a_row_of_weight_two_counts_twice():
    drawn, _, S = stuck_corpus(n=60, times=2)
    X = sp.csr_array(drawn.X, dtype=float)
    twice = moved(data_of(sp.vstack([X, X])), S)[0].stats.as_stats().arrays[0]
    weighted = moved(data_of(X, np.full(60, 2.0)), S)[0].stats.as_stats().arrays[0]
    np.testing.assert_allclose(weighted, twice, rtol=1e-6, atol=1e-8)


def blocks(kinds, lengths, seed):
    """Draw documents of one topic each, and topics (6, 120) without common words."""
    topics = np.kron(np.eye(6), np.full(20, 1.0 / 20.0))
    rng = np.random.default_rng(seed)
    return np.array([rng.multinomial(lengths[k], topics[k]) for k in kinds]), topics


def test_a_search_does_not_depend_on_a_pattern_in_the_order_of_rows(monkeypatch):
    # Every other row is of the topics that are one, and the rest is of the other topics.
    monkeypatch.setattr(_split_merge, "MAX_SAMPLE_SIZE", 200)
    kinds = np.stack([np.arange(200) % 2, 2 + np.arange(200) % 4]).T.ravel()
    X, topics = blocks(kinds, np.full(6, 40), seed=0)
    beta = np.stack([topics[0], topics[1], topics[2], topics[2], topics[3] + topics[4], topics[5]])
    S = np.ascontiguousarray((beta * 2_000.0).T)
    lda = LDA(np.full(6, PRIOR), np.full(120, PRIOR))
    state, record = moved(data_of(X), S, lda=lda)
    assert record.accepted == 1
    assert distance(state.stats.as_stats().arrays[0], topics).max() < 0.2


@pytest.mark.parametrize("seed", range(4))
def test_topics_that_the_sample_misses_stay(seed, monkeypatch):
    # Two topics have three long documents each, and the sample has a tenth of the documents.
    monkeypatch.setattr(_split_merge, "MAX_SAMPLE_SIZE", 30)
    kinds = np.repeat(np.arange(6), [25, 25, 122, 122, 3, 3])
    X, topics = blocks(kinds, np.array([20, 20, 40, 40, 900, 900]), seed)
    S = np.stack([topics[k] * X[kinds == k].sum() for k in range(6)])
    S = np.ascontiguousarray(np.vstack([S[:1] + S[1:2], S[2:]]).T)
    lda = LDA(np.full(5, PRIOR), np.full(120, PRIOR))
    state, _ = moved(data_of(X), S, rng=seed, lda=lda)
    after = state.stats.as_stats().arrays[0]
    assert distance(after, topics)[4:].max() < 0.2
    assert bound(data_of(X), after, lda) >= bound(data_of(X), S, lda)


def test_a_merge_of_the_topic_to_be_split_gives_way_to_the_next_pair(monkeypatch):
    _, data, S = stuck_corpus()
    # The cheapest merge takes part in the only split.
    pairs = [(-1.0, (2, 3)), (-2.0, (0, 1)), (-3.0, (0, 4))]
    merges = [_split_merge._Merge(*pair) for pair in pairs]
    monkeypatch.setattr(_split_merge, "_propose_merges", lambda *_: merges)
    _, record = moved(data, S)
    assert (record.proposed, record.accepted) == (1, 1)


def test_a_topic_takes_part_in_one_change_of_a_search(monkeypatch):
    gains_of_splits = [(8.0, 11), (30.0, 2), (20.0, 5), (10.0, 6)]
    splits = [_split_merge._Split(gain, topic, None) for gain, topic in gains_of_splits]
    pairs = [(-1.0, (0, 1)), (-2.0, (3, 4)), (-3.0, (0, 7)), (-4.0, (7, 8)), (-20.0, (9, 10))]
    merges = [_split_merge._Merge(*pair) for pair in pairs]
    monkeypatch.setattr(_split_merge, "TOKENS_PER_SEARCH", 9.0)
    monkeypatch.setattr(_split_merge, "_propose_splits", lambda *_: splits)
    monkeypatch.setattr(_split_merge, "_propose_merges", lambda *_: merges)
    tried = []

    def trial(sample, stats, documents, topics, shares):
        tried.append(topics)
        if topics[0] == 3:
            return Decision(False, -1.0, "")
        stats.replace_columns(topics, stats.arrays[0][:, topics] + 1.0)
        return Decision(True, 2.0, "")

    monkeypatch.setattr(_split_merge, "_try_proposal", trial)
    lda = LDA(np.full(12, PRIOR), np.full(N_WORDS, PRIOR))
    S = np.random.default_rng(0).gamma(1.0, size=(N_WORDS, 12))
    state, record = moved(data_of(corpus(n=60).X), S, lda=lda)
    # The best splits come first. None is tried twice or where the merge loses more.
    assert tried == [[0, 1, 2], [3, 4, 5], [7, 8, 6]]
    assert (record.proposed, record.accepted, record.gain) == (3, 2, 4.0)
    found = state.stats.as_stats()
    np.testing.assert_allclose(found.arrays[0], S + np.isin(np.arange(12), [0, 1, 2, 6, 7, 8]))
    np.testing.assert_allclose(state.stats.sums[0], found.arrays[0].sum(axis=0))
    # A search makes one trial at least.
    monkeypatch.setattr(_split_merge, "TOKENS_PER_SEARCH", 1e-9)
    assert moved(data_of(corpus(n=60).X), S, lda=lda)[1].proposed == 1
    # It makes none if there are fewer than five documents for each topic.
    assert moved(data_of(corpus(n=59).X), S, lda=lda)[1].proposed == 0


def test_a_refused_trial_changes_nothing(monkeypatch):
    _, data, S = stuck_corpus()
    refused = Decision(False, -1.0, "")
    monkeypatch.setattr(_split_merge, "decide", lambda *_, **__: refused)
    stats = RunningStats([S.copy()])
    with Workers() as workers:
        tools = EngineTools(1, np.random.default_rng(0), workers)
        sample = _split_merge._Sample(model(), data, tools)
        shares = np.full(sample.batch.active.size, 0.3)
        decision = _split_merge._try_proposal(sample, stats, np.arange(20), [0, 1, 2], shares)
        assert decision is refused
    np.testing.assert_array_equal(stats.arrays[0], S)
    np.testing.assert_allclose(stats.sums[0], S.sum(axis=0), rtol=1e-12)


@pytest.mark.filterwarnings("ignore:.*rows have no words")
@pytest.mark.parametrize("make", [TemperedLDA, StructuredLDA])
def test_documents_without_words_cause_no_proposal(make):
    fitted = make(3, max_iter=4, temperature=None, random_state=0).fit(np.zeros((10, 4)))
    assert not any(fitted.move_log_["proposed"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:sample_weight adds up to")
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_single_precision_does_not_underflow():
    drawn = make_topic_corpus(
        300, n_components=20, n_features=500, doc_topic_prior=0.1, topic_word_prior=0.05,
        random_state=0,
    )  # fmt: skip
    X = drawn.X.astype(np.float32)
    for weights in (None, np.full(300, 1.0 / 300.0)):
        fitted = TemperedLDA(100, temperature=None, max_iter=6, random_state=0)
        assert np.isfinite(fitted.fit(X, sample_weight=weights).elbo_)


# ------------------------------------------------------------------------------ its evidence
def test_the_evidence_of_a_topic_is_the_chain_of_its_words():
    rng = np.random.default_rng(0)
    eta, words = rng.uniform(0.05, 2.0, 4), rng.integers(0, 3, size=12)
    expected, seen = 0.0, np.zeros(4)
    for word in words:
        expected += np.log((eta[word] + seen[word]) / (eta.sum() + seen.sum()))
        seen[word] += 1.0
    # The last word does not occur.
    found = _split_merge._compute_log_evidence(seen[:3], eta[:3], eta.sum())
    assert found == pytest.approx(expected, rel=1e-10)
    both = _split_merge._compute_log_evidence(np.stack([seen, 0.0 * seen]), eta, eta.sum())
    np.testing.assert_allclose(both, [expected, 0.0], rtol=1e-10, atol=1e-12)


def test_expected_counts_equal_those_of_the_local_step():
    drawn, data, S = stuck_corpus(n=50)
    with Workers() as workers:
        tools = EngineTools(1, np.random.default_rng(0), workers)
        sample = _split_merge._Sample(model(), data, tools)
        stats = RunningStats([S])
        result = sample.solve(stats, sample.batch)
        counts = np.zeros((sample.batch.active.size, N_TOPICS))
        for topic, (entries, values) in enumerate(sample.list_expected_counts(stats, result.q)):
            np.add.at(counts[:, topic], sample.batch.words[entries], values)
    # These are the tokens of a word in a document that go to the topic. Few are left out.
    beta = digamma(S + PRIOR) - digamma((S + PRIOR).sum(axis=0))
    expected = np.zeros_like(counts)
    for row, gamma in zip(sp.csr_array(drawn.X).toarray(), result.q, strict=True):
        phi = softmax(digamma(gamma) + beta, axis=1) * row[:, None]
        expected += np.where(phi > MIN_COUNT, phi, 0.0)[sample.batch.active]
    np.testing.assert_allclose(counts, expected, rtol=1e-9)
    assert counts.sum() > 0.99 * drawn.X.sum()


def test_documents_of_two_topics_are_divided_by_topic():
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(60, 0.1), size=2)
    kind = rng.integers(0, 2, size=80)
    counts = sp.csr_array(np.array([rng.multinomial(20, topics[k]) for k in kind], float))
    eta, weights = np.full(60, 0.1), np.ones(80)
    gain, shares = _split_merge._divide_in_two(counts, weights, eta, eta.sum(), rng)
    # Twenty words determine the topic of a document.
    one, two = counts.T @ (kind == 0), counts.T @ (kind == 1)

    def evidence(words):
        total = gammaln(eta.sum()) - gammaln((eta + words).sum())
        return total + (gammaln(eta + words) - gammaln(eta)).sum()

    chances = np.bincount(kind) / 80
    drawn = 80 * chances @ np.log(chances)
    assert gain == pytest.approx(evidence(one) + evidence(two) - evidence(one + two) + drawn)
    expected = (one + 0.5) / (one + two + 1.0)
    # The two topics may come in either order.
    np.testing.assert_allclose(
        shares, expected if abs(shares - expected).max() < 0.1 else 1.0 - expected, rtol=1e-9
    )
    one = sp.csr_array(rng.multinomial(20, topics[0], size=80).astype(float))
    alike = _split_merge._divide_in_two(one, weights, eta, eta.sum(), rng)
    assert alike is None or alike[0] < 0.0


def test_the_gain_of_a_split_is_a_difference_of_bounds(monkeypatch):
    # One update starts from given groups. Short documents do not determine their topics.
    monkeypatch.setattr(_split_merge, "N_MIXTURE_STEPS", 1)
    rng = np.random.default_rng(3)
    counts = rng.multinomial(4, [0.4, 0.3, 0.2, 0.1], size=9).astype(float)
    counts[:4] = counts[:4, ::-1]
    weights, eta = rng.uniform(0.5, 3.0, 9), np.array([0.3, 0.5, 0.8, 0.2])
    eta_sum = eta.sum() + 0.7  # Another word does not occur.
    begun = np.repeat([1.0, -1.0], [4, 5])
    monkeypatch.setattr(_split_merge, "_find_leading_coordinates", lambda *_: begun)
    gain, shares = _split_merge._divide_in_two(sp.csr_array(counts), weights, eta, eta_sum, rng)

    q = np.stack([begun > 0.0, begun < 0.0]).astype(float)
    beta = q @ (weights[:, None] * counts) + eta
    beta /= beta.sum(axis=1, keepdims=True) + 0.7
    log_q = np.log(beta) @ counts.T + np.log(q @ weights / weights.sum())[:, None]
    q = np.exp(log_q - np.logaddexp(*log_q))
    assert np.all((q > 1e-3) & (q < 1.0 - 1e-3))

    def evidence(S):
        return gammaln(eta + S).sum() - gammaln(eta_sum + S.sum())

    S = q @ (weights[:, None] * counts)
    one_topic = evidence(S.sum(axis=0))
    two_topics = evidence(S[0]) + evidence(S[1]) - (gammaln(eta).sum() - gammaln(eta_sum))
    chances = q @ weights / weights.sum()
    kl = np.sum(weights * q * (np.log(q) - np.log(chances)[:, None]))
    assert gain == pytest.approx(two_topics - one_topic - kl, rel=1e-9)
    np.testing.assert_allclose(shares, (S[0] + 0.5) / (S.sum(axis=0) + 1.0), rtol=1e-12)


# ------------------------------------------------------------------------------- estimators
# Structured inference misses none of 20 topics even without moves.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "k", "n", "n_words"), [(TemperedLDA, 16, 400, 200), (StructuredLDA, 30, 1000, 500)]
)
def test_moves_find_topics_that_fits_without_them_miss(make, k, n, n_words):
    drawn = make_topic_corpus(
        n, n_components=k, n_features=n_words, doc_topic_prior=0.1, topic_word_prior=0.05,
        random_state=0,
    )  # fmt: skip
    missed = {}
    for moves in (("split-merge",), ()):
        fits = [
            make(k, moves=moves, max_iter=20, topic_word_prior=0.05, random_state=seed).fit(drawn.X)
            for seed in range(3)
        ]
        topics = [fitted.posterior_.mean() for fitted in fits]
        away = [0.5 * np.abs(drawn.topics[:, None] - t).sum(-1).min(axis=1) for t in topics]
        missed[moves] = np.sum([(d > 0.35).sum() for d in away])
        accepted = [sum(fitted.move_log_["accepted"]) for fitted in fits]
        assert any(accepted) == bool(moves)
    assert missed[("split-merge",)] < missed[()]


@pytest.mark.parametrize("make", [partial(TemperedLDA, max_iter=20), StructuredLDA])
def test_all_topics_of_short_documents_are_found(make):
    drawn = make_topic_corpus(
        3000, n_components=25, n_features=800, mean_length=20.0, random_state=0
    )
    topics = make(25, random_state=0).fit(drawn.X).posterior_.mean()
    assert (0.5 * np.abs(drawn.topics[:, None] - topics).sum(-1).min(axis=1)).max() < 0.35


def test_moves_start_in_the_second_half_of_the_passes_at_unit_temperature():
    X = corpus(n=100).X
    for temperature, first in ((None, 4), ("annealed", 7)):
        fitted = TemperedLDA(
            N_TOPICS, temperature=temperature, max_iter=8, random_state=0
        ).fit(X)  # fmt: skip
        assert first == min(fitted.move_log_["n_iter"]) and max(fitted.move_log_["n_iter"]) < 8
    assert TemperedLDA(N_TOPICS, max_iter=1).fit(X).move_log_["n_iter"] == []


def test_searches_end_after_two_in_a_row_without_a_change(monkeypatch):
    changes, search = [], SplitMerge._search

    def counted(*inputs):
        records = search(*inputs)
        changes.append(sum(record.accepted for record in records))
        return records

    monkeypatch.setattr(SplitMerge, "_search", counted)
    settings = {"learning_method": "batch", "temperature": None, "random_state": 0}
    TemperedLDA(N_TOPICS, max_iter=40, **settings).fit(corpus(n=100).X)
    pairs = [*pairwise(changes)]
    assert pairs.index((0, 0)) == len(pairs) - 1
    # A fit may stop early then.
    settings |= {"evaluate_every": 1, "perp_tol": 1.0}
    fitted = TemperedLDA(N_TOPICS, max_iter=500, **settings).fit(corpus(n=100).X)
    assert fitted.converged_
    assert 10 < fitted.n_iter_ < 30
    assert fitted.move_log_["n_iter"][-1] < fitted.n_iter_


@pytest.mark.parametrize(
    "n_topics, temperature", [(1, None), (2, None), (5, ConstantTemperature(1.2))]
)
def test_moves_do_not_delay_the_end_of_a_fit_with_nothing_to_move(n_topics, temperature):
    X = corpus(n=100).X
    settings = {"learning_method": "batch", "temperature": temperature, "evaluate_every": 1}
    passes = [
        TemperedLDA(
            n_topics, moves=moves, perp_tol=0.5, max_iter=60, random_state=0, **settings
        ).fit(X).n_iter_
        for moves in (("split-merge",), ())
    ]  # fmt: skip
    assert passes[1] < 30
    # Two topics are searched once.
    assert passes[0] <= max(passes[1], 11)
