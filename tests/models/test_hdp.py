"""Bounds, steps and moves of the hierarchical Dirichlet process follow their formulas."""

import functools
import itertools
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from _engines import bound, passes, total_of
from scipy.special import betaln, gammaln, psi, roots_legendre

from skvt import MemoizedHDP, components
from skvt._compiled import run_serially as run
from skvt.datasets import make_topic_corpus
from skvt.expfam import Stats
from skvt.inference import CollapsedInference, EngineTools, MemoizedInference, Rows, State, Workers
from skvt.inference._bound import compute_bound_parts, compute_global_divergence
from skvt.inference._memos import Memo
from skvt.models.hdp import HDP, BirthOfTopics, DeleteTopic, MergeTopics, Sticks, _delete
from skvt.models.hdp import _model as hdp_model
from skvt.models.hdp._documents import Contribution
from skvt.models.hdp._kernels import compute_stick_divergence
from skvt.models.hdp._sticks import _Problem, compute_expected_weights
from skvt.models.hdp._usage import estimate_usage_of_union
from skvt.models.lda import LDA
from skvt.moves import compute_bound

TOY = sp.csr_array(np.array([[2.0, 1, 0, 0], [0, 1, 2, 1]]))


def model_of(n_words, n_topics, *, alpha=0.7, gamma=1.3, eta=0.4, **settings):
    settings = {"max_doc_update_iter": 2000, "mean_change_tol": 0.0} | settings
    topics = LDA(np.ones(1), np.full(n_words, eta), **settings)
    return HDP(topics, Sticks(gamma, alpha), n_initial=n_topics)


def toy(n_topics, **settings):
    """Return a model, and uneven statistics of the toy."""
    model, rng = model_of(4, n_topics, **settings), np.random.default_rng(1)
    stats = model.initial(Rows(TOY, np.ones(2), 2), rng)
    stats.arrays[0][:] *= rng.gamma(1.0, 1.0, size=stats.arrays[0].shape)
    return model, stats


def fitted(X, model, moves=(), *, n_batches=3, n_passes=30, seed=0):
    """Return the state, the bound after each pass and the model of memoized inference."""
    rng = np.random.default_rng(seed)
    data = Rows(X, np.ones(X.shape[0]), -(-X.shape[0] // n_batches))
    engine = MemoizedInference(moves)
    state = engine.start(State(model.initial(data, rng)), data.total)
    done = [*passes(engine, model, state, data, n_passes, rng=rng)]
    return state, np.array([*map(bound, done)]), done[-1].model if done else model


legendre = functools.cache(roots_legendre)


def quadrature(a, b, n=400):
    """Return nodes and weights of an expectation under Beta(a, b), both parameters above 1."""
    x, w = legendre(n)
    u = 0.5 * (x + 1.0)
    w = 0.5 * w * np.exp((a - 1.0) * np.log(u) + (b - 1.0) * np.log1p(-u) - betaln(a, b))
    return u, w


# -------------------------------------------------------------------------------- the bound
def explicit_bound(model, stats):
    """Return the bound without E[log c_D]. The sum over z is an enumeration."""
    batch = model.batch(TOY, np.arange(2), np.ones(2))
    found = model.expectation(stats, batch, run)
    result = model.local_step(batch, found, 1.0, run)
    words = stats.as_stats().arrays[0]
    lam, eta, K = words + model.topic_word_prior, model.topic_word_prior, len(words)
    alpha, weights = model.sticks.doc_concentration, compute_expected_weights(found.sticks)
    log_phi = psi(lam) - psi(lam.sum(axis=1))[:, None]
    value = 0.0
    for d in range(2):
        theta = np.append(result.q[d], alpha * weights[-1])
        log_pi = psi(theta) - psi(theta.sum())
        tokens = np.repeat(np.arange(4), TOY[[d]].toarray()[0].astype(int))
        r = np.exp(log_pi[:K, None] + log_phi[:, tokens])
        r /= r.sum(axis=0)
        for z in itertools.product(range(K), repeat=tokens.size):
            places = list(z), np.arange(tokens.size)
            q = np.prod(r[places])
            value += q * (log_pi[list(z)] + log_phi[list(z), tokens] - np.log(r[places])).sum()
        value += ((alpha * weights - theta) * log_pi).sum()
        value -= gammaln(theta.sum()) - gammaln(theta).sum()
    (a, b), gamma = found.sticks.T, model.sticks.concentration
    log_u, log_rest = psi(a) - psi(a + b), psi(b) - psi(a + b)
    value -= ((a - 1.0) * log_u + (b - gamma) * log_rest - betaln(a, b) + betaln(1, gamma)).sum()
    value -= (gammaln(lam.sum(axis=1)) - gammaln(lam).sum(axis=1)).sum()
    value += K * (gammaln(eta.sum()) - gammaln(eta).sum()) - ((lam - eta) * log_phi).sum()
    return value, result, found.sticks


@pytest.mark.parametrize("alpha", [0.3, 2.5])
@pytest.mark.parametrize("n_topics", [1, 2])
def test_the_bound_equals_enumeration_and_quadrature(alpha, n_topics, monkeypatch):
    monkeypatch.setattr(hdp_model, "MIN_USE_SHARE", 0.0)
    model, stats = toy(n_topics, alpha=alpha)
    rest, result, sticks = explicit_bound(model, stats)
    ours = result.bound.sum() - compute_global_divergence(model, stats)
    surrogate = 2.0 * model.sticks.log_normalizer_bound(sticks)
    np.testing.assert_allclose(ours, rest + surrogate, rtol=0.0, atol=1e-8)
    # The surrogate bounds an expectation, which quadrature over u computes.
    grids = [quadrature(*pair) for pair in sticks]
    u = np.stack(np.meshgrid(*(x for x, _ in grids), indexing="ij"))
    w = np.prod(np.meshgrid(*(weights for _, weights in grids), indexing="ij"), axis=0)
    pieces = np.concatenate([u, np.ones((1, *u.shape[1:]))])
    pieces[1:] *= np.cumprod(1.0 - u, axis=0)
    log_sum = (w * np.log(pieces)).sum()
    expected = n_topics * np.log(alpha) + log_sum
    np.testing.assert_allclose(surrogate / 2.0, expected, rtol=0.0, atol=1e-8)
    exact = (w * (gammaln(alpha) - gammaln(alpha * pieces).sum(axis=0))).sum()
    assert surrogate / 2.0 < exact


# -------------------------------------------------------------------------------- its steps
def usage_of(rng, n_topics=6, n_documents=200):
    tokens = rng.poisson(40.0 * rng.dirichlet(np.full(n_topics, 0.3), n_documents)).astype(float)
    used = tokens > 0.0
    slopes = np.where(used, psi(tokens + 0.1), 0.0).sum(axis=0)
    columns = slopes, rng.uniform(0.0, 1e-3, n_topics), used.sum(axis=0)
    whole = np.full((2, n_topics), [[n_documents], [4.0 * n_documents]])
    return np.concatenate([columns, whole]).T


def test_sticks_maximise_the_bound():
    rng = np.random.default_rng(0)
    law, usage = Sticks(1.5, 0.6), usage_of(rng)
    best = law.find_best(usage)
    for _ in range(5):
        other = best * np.exp(rng.normal(scale=10.0 ** rng.uniform(-3.0, 0.0), size=best.shape))
        assert law.bound(other, usage) < law.bound(best, usage)
    # The search climbs the bound up to a constant.
    problem = _Problem.from_usage(law, usage)
    x = problem.make_start()
    here, there = problem.to_sticks(x), problem.to_sticks(x + 0.3)
    rise = problem.compute_loss(x)[0] - problem.compute_loss(x + 0.3)[0]
    assert rise == pytest.approx(law.bound(there, usage) - law.bound(here, usage), abs=1e-8)


def test_sticks_of_many_documents_have_the_divergence_of_gamma_variates():
    """For large a and b, 1 - u is nearly a Gamma(b) variate over a, which is nearly normal."""
    (a, b), gamma = (1e20, 1e10), 1.3
    entropy = 0.5 * np.log(2.0 * np.pi * np.e * b) - np.log(a)
    expected = -entropy - np.log(gamma) - (gamma - 1.0) * np.log(b / a)
    assert compute_stick_divergence(np.array([[a, b]]), gamma) == pytest.approx(expected, rel=1e-9)
    # Sticks of few documents follow the definition.
    (a, b), log_u, log_rest = (2.5, 0.3), psi(2.5) - psi(2.8), psi(0.3) - psi(2.8)
    expected = (a - 1.0) * log_u + (b - gamma) * log_rest - betaln(a, b) + betaln(1.0, gamma)
    assert compute_stick_divergence(np.array([[a, b]]), gamma) == pytest.approx(expected, rel=1e-12)


def test_the_bound_of_sticks_grows_in_proportion_to_the_documents():
    """All documents have all topics, so that the last stick is large."""
    usage = np.array([[-110.0, 0.0, 30.0, 30.0, 170.0], [-94.0, 0.0, 30.0, 30.0, 170.0]])
    one = Sticks(1.0, 1.0).best_bound(1e6 * usage) / 1e6
    for factor in (1e8, 1e9, 1e12):
        assert Sticks(1.0, 1.0).best_bound(factor * usage) / factor == pytest.approx(one, rel=1e-5)


def test_the_bound_of_a_fit_scales_with_large_weights():
    rng = np.random.default_rng(0)
    X, weights = rng.poisson(1.0, (60, 40)).astype(float), rng.random(60)
    settings = {"n_components": 3, "max_iter": 4, "moves": (), "n_polish": 0, "random_state": 0}
    bounds = [
        np.array(MemoizedHDP(**settings).fit(X, sample_weight=w * weights).history_["elbo"]) / w
        for w in (1e6, 1e9, 1e12)
    ]
    np.testing.assert_allclose(bounds[1:], [bounds[0]] * 2, rtol=1e-2)


def test_a_learned_concentration_maximises_the_bound_given_the_sticks():
    law, usage = Sticks(1.5, 0.6), usage_of(np.random.default_rng(0))
    sticks = law.find_best(usage)
    learned = law.with_learned(usage, concentration=True, doc_concentration=False)
    assert learned.doc_concentration == 0.6
    for factor in (0.98, 1.02):
        other = Sticks(factor * learned.concentration, 0.6)
        assert other.bound(sticks, usage) < learned.bound(sticks, usage)


def test_rounding_of_statistics_hardly_changes_the_sticks():
    rng = np.random.default_rng(0)
    law, usage = Sticks(1.5, 0.6), usage_of(rng)
    nearly = usage * (1.0 + 1e-15 * rng.standard_normal(usage.shape))
    np.testing.assert_allclose(law.find_best(nearly), law.find_best(usage), rtol=1e-9)


def corpus(n_topics=5, n_documents=300, seed=0):
    drawn = make_topic_corpus(n_documents, n_components=n_topics, n_features=200, random_state=seed)
    return sp.csr_array(drawn.X.astype(float))


def test_the_bound_never_falls_between_births():
    model = model_of(200, 8, eta=0.1, mean_change_tol=1e-3, max_doc_update_iter=100)
    _, bounds, _ = fitted(corpus(), model, [MergeTopics(), DeleteTopic()])
    assert np.all(np.diff(bounds) > -1e-9 * np.abs(bounds[:-1]))
    assert bounds[-1] > bounds[0]


def test_learned_concentrations_raise_the_bound():
    settings = {"mean_change_tol": 1e-3, "max_doc_update_iter": 100}
    model = model_of(200, 5, alpha=3.0, gamma=20.0, eta=0.1, **settings)
    _, bounds, _ = fitted(corpus(), model)
    learning = replace(model, learn_topic_concentration=True, learn_doc_topic_concentration=True)
    _, after, learned = fitted(corpus(), learning)
    assert after[-1] > bounds[-1] + 10.0
    assert learned.sticks.doc_concentration < 3.0
    assert learned.sticks.concentration < 20.0


# -------------------------------------------------------------------------------- its moves


def watch(monkeypatch, cls, method):
    """Return the list of (sum of records, new topics) of each call of a move's method."""
    found, original = [], getattr(cls, method)

    def watched(move, model, *inputs):
        state = inputs[-2]
        before, n_before = compute_bound(model, state.memos.total()), state.component_ids.size
        records = original(move, model, *inputs)
        rise = compute_bound(model, state.memos.total()) - before
        assert total_of(records).gain == pytest.approx(rise, abs=1e-6)
        found.append((total_of(records), state.component_ids.size - n_before))
        return records

    monkeypatch.setattr(cls, method, watched)
    return found


@pytest.mark.parametrize(
    ("cls", "n_topics"), [(MergeTopics, 12), (DeleteTopic, 12), (BirthOfTopics, 2)]
)
def test_the_bound_rises_by_the_gain_of_a_move(cls, n_topics, monkeypatch):
    # Most words do not occur, and trials see the words of their documents alone.
    X = sp.csr_array(sp.hstack([corpus(), sp.csr_array((300, 300))]))
    model = model_of(500, n_topics, eta=0.1, mean_change_tol=1e-3)
    found = watch(monkeypatch, cls, "finish")
    fitted(X, model, [cls(*[20] * (cls is BirthOfTopics))], n_passes=6)
    assert any(record.accepted for record, _ in found)
    assert all(abs(grown) == record.accepted for record, grown in found)


@pytest.mark.quick_cases("1-100", "1-3")
@pytest.mark.parametrize(("n_topics", "most"), [(1, 100), (1, 3), (30, 100)])
def test_moves_find_the_number_of_topics_up_to_the_largest_allowed(n_topics, most):
    moves = [MergeTopics(), DeleteTopic(), BirthOfTopics(most)]
    model = model_of(200, n_topics, eta=0.1, alpha=0.5, mean_change_tol=1e-3)
    state, _, _ = fitted(corpus(), model, moves, n_passes=25 if most > 3 else 5)
    assert state.component_ids.size == min(5, most)


@pytest.mark.quick_cases("moves0")
@pytest.mark.parametrize(
    ("n_topics", "moves"), [(30, (MergeTopics, DeleteTopic, BirthOfTopics)), (20, (DeleteTopic,))]
)
def test_statistics_count_all_words_and_documents_after_all_moves(n_topics, moves, monkeypatch):
    # Some topics that one pass deletes share documents. They stand at any place.
    monkeypatch.setattr(HDP, "best_order", lambda self, stats: None)
    X = corpus()
    model = model_of(200, n_topics, eta=0.1, mean_change_tol=1e-3)
    moves = [move(*[100] * (move is BirthOfTopics)) for move in moves]
    state, _, _ = fitted(X, model, moves, n_passes=12)
    assert state.component_ids.size < n_topics - 8
    words, usage = state.stats.as_stats().arrays
    np.testing.assert_allclose(words.sum(axis=0), X.sum(axis=0), rtol=1e-9)
    np.testing.assert_allclose(usage[:, 3], X.shape[0])
    # No topic is in more documents than there are.
    assert np.all(usage[:, 2] <= X.shape[0])


def test_a_birth_from_some_documents_splits_a_topic_in_two():
    # The documents that were not collected get no third topic.
    drawn = make_topic_corpus(300, n_components=5, n_features=200, random_state=0)
    topics = np.stack([drawn.topics[:2].sum(axis=0), *drawn.topics[2:]])
    start = topics / topics.sum(axis=1, keepdims=True)
    model = replace(model_of(200, 4, eta=0.1, alpha=0.5, mean_change_tol=1e-3), start=start)
    state, _, _ = fitted(
        sp.csr_array(drawn.X.astype(float)), model, [BirthOfTopics(20)], n_passes=3
    )
    assert state.component_ids.size == 5


def test_merged_usage_assumes_that_topics_share_documents_by_chance():
    def usage(*theta, traces, n_documents):
        return [psi(theta).sum(), traces, len(theta), n_documents, 7.0]

    # All documents have both topics.
    both = [usage(*5 * [20.0], traces=0.0, n_documents=5.0),
            usage(*5 * [30.0], traces=0.0, n_documents=5.0)]  # fmt: skip
    one = usage(*5 * [50.0], traces=0.0, n_documents=5.0)
    np.testing.assert_allclose(estimate_usage_of_union(np.array(both)), one, rtol=5e-3)
    # There are so many documents that none has two of the topics.
    none = [usage(2.0, 3.0, traces=0.2, n_documents=1e9),
            usage(9.0, traces=0.1, n_documents=1e9),
            usage(traces=0.4, n_documents=1e9)]  # fmt: skip
    one = usage(2.0, 3.0, 9.0, traces=0.7, n_documents=1e9)
    np.testing.assert_allclose(estimate_usage_of_union(np.array(none)), one, rtol=1e-6)


def test_words_that_do_not_occur_change_neither_the_bound_nor_priors_and_take_no_memory(
    monkeypatch,
):
    X = sp.csr_array(sp.hstack([sp.csr_array((300, 300)), corpus()]))
    model = replace(model_of(500, 3, eta=0.1, mean_change_tol=1e-3), learn_topic_word_prior=True)
    state, _, _ = fitted(X, replace(model, learn_topic_word_prior=False), n_passes=2)
    for entry in state.memos._levels[0]:
        assert entry[0].memo.stats.arrays[0].shape[1] <= 200
    assert state.memos[0].stats.arrays[0].shape == (3, 500)

    def found():
        learned = model.with_learned_priors(None, state.stats).topic_word_prior[0]
        evidence = model.words_evidence(state.stats.as_stats().arrays[0])
        totals, divergence = compute_bound_parts(model, state)
        return [learned, totals.untempered - divergence, *evidence]

    assert model.compact(state.stats)[0].n_features <= 201
    compact = found()
    monkeypatch.setattr(hdp_model, "find_occurring_words", lambda words: None)
    np.testing.assert_allclose(compact, found(), rtol=1e-9)
    assert abs(compact[0] - 0.1) > 0.01


@pytest.mark.slow
def test_a_stream_finds_a_new_topic_and_keeps_the_old_ones():
    truth = make_topic_corpus(1, n_components=9, n_features=200, random_state=0).topics
    before = make_topic_corpus(1000, topics=truth[:8], random_state=1).X
    after = make_topic_corpus(400, topics=truth, random_state=2).X
    hdp = MemoizedHDP(random_state=0)
    for start in range(0, 1000, 250):
        hdp.partial_fit(before[start : start + 250])

    def topics():
        probability = hdp.components_ / hdp.components_.sum(axis=1, keepdims=True)
        return dict(zip(hdp.topic_ids_.tolist(), probability, strict=True))

    old = topics()
    for start in (0, 200):
        hdp.partial_fit(after[start : start + 200])
    new = topics()
    assert set(old) < set(new)
    born = [new[k] for k in set(new) - set(old)]
    assert min(0.5 * np.abs(topic - truth[8]).sum() for topic in born) < 0.2
    # Topics that are not those of the documents share their words.
    kept = [k for k in old if (0.5 * np.abs(old[k] - truth).sum(axis=1)).min() < 0.1]
    assert len(kept) == 8
    assert max(0.5 * np.abs(old[k] - new[k]).sum() for k in kept) < 0.1
    log = zip(hdp.move_log_["move"], hdp.move_log_["accepted"], strict=True)
    assert sum(n if move == "birth" else -n for move, n in log) == hdp.n_components_ - 1


def test_a_stream_of_single_documents_finds_topics_in_turn():
    topics = np.kron(np.eye(3), np.full(12, 1.0 / 12.0))
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.multinomial(60, topic, 30) for topic in topics])
    hdp = MemoizedHDP(random_state=0)
    for document in X:
        hdp.partial_fit(document[None])
    assert hdp.n_components_ == 3


def test_a_stream_merges_new_topics_where_the_bound_of_all_batches_rises(monkeypatch):
    rng = np.random.default_rng(0)
    topics, n_documents = rng.dirichlet(np.full(60, 0.05), 4), [110, 40, 40, 40]
    batches = [rng.multinomial(60, *of) for of in zip(topics, n_documents, strict=True)]
    merges = watch(monkeypatch, MergeTopics, "change_within_batch")
    monkeypatch.setattr(BirthOfTopics, "_try_replacement", lambda *of_batch: [])
    hdp = MemoizedHDP(random_state=0)
    for number, batch in enumerate(batches):
        hdp.partial_fit(batch, batch_id=number)
    assert any(record.accepted for record, _ in merges)
    assert all(record.gain >= 0.0 for record, _ in merges)
    assert hdp.n_components_ in (4, 5)
    X = np.concatenate(batches)
    truth = MemoizedHDP(4, components_init=topics, moves=(), n_polish=0, random_state=0).fit(X)
    assert hdp.elbo(X) > 1.02 * truth.elbo_


@pytest.mark.slow
def test_a_stream_of_sorted_topics_reaches_nearly_the_bound_of_a_fit(monkeypatch):
    deletes = watch(monkeypatch, DeleteTopic, "change_within_batch")
    rng = np.random.default_rng(102)
    topics = rng.dirichlet(np.full(150, 0.1), 8)
    shares = rng.dirichlet(np.full(8, 0.3), 400)
    shares = shares[np.argsort(shares.argmax(axis=1), kind="stable")]
    X = np.array([rng.multinomial(80, share @ topics) for share in shares])
    hdp = MemoizedHDP(random_state=0)
    for start in (0, 200) * 2:
        hdp.partial_fit(X[start : start + 200], batch_id=start)
    assert any(record.accepted for record, _ in deletes)
    fit = MemoizedHDP(random_state=0).fit(X)
    assert abs(hdp.n_components_ - fit.n_components_) <= 1
    assert hdp.elbo(X) > 1.01 * fit.elbo_


def of_mixed_documents(n_documents, n_features, mean_length):
    """Documents that each have several of twelve topics."""
    return make_topic_corpus(
        n_documents, n_components=12, n_features=n_features, mean_length=mean_length,
        doc_topic_prior=0.3, topic_word_prior=0.1, random_state=0,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(400, 120, 30.0), (200, 60, 40.0)])
def test_a_fit_from_one_topic_is_as_good_as_one_from_the_truth(sizes):
    X, topics, *_ = of_mixed_documents(*sizes)
    truth = MemoizedHDP(12, components_init=topics, n_polish=0, random_state=0).fit(X)
    hdp = MemoizedHDP(n_polish=0, random_state=0).fit(X)
    assert 11 <= hdp.n_components_ <= truth.n_components_ == 12
    assert hdp.elbo_ > truth.elbo_ - 0.002 * X.sum()


def test_a_fit_that_ends_with_one_topic_warns():
    X = of_mixed_documents(250, 60, 25.0).X
    with pytest.warns(
        UserWarning, match=r"ended with one topic.*20 topics.*StructuredLDA"
    ) as caught:
        hdp = MemoizedHDP(random_state=0).fit(X)
    assert caught[0].filename == __file__
    assert hdp.n_components_ == 1 and hdp.restart_elbos_[0] == hdp.elbo_ > hdp.restart_elbos_[1]


def test_a_polish_changes_the_words_of_topics_alone_and_has_the_bound_of_all_rows(capsys):
    X, settings = corpus(), {"batch_size": 70, "max_iter": 3, "tol": 0.0, "random_state": 0}
    plain, hdp = (MemoizedHDP(8, n_polish=n, verbose=1, **settings).fit(X) for n in (0, 5))
    lines = capsys.readouterr().out
    assert lines.count("\npolish: topics by collapsed sampling\n") == 1
    for name in ("topic_weights_", "topic_ids_", "doc_topic_concentration_", "topic_word_prior_"):
        np.testing.assert_array_equal(getattr(hdp, name), getattr(plain, name))
    assert hdp.elbo_ == pytest.approx(hdp.elbo(X), rel=1e-12)
    assert hdp.restart_elbos_[0] == plain.elbo_
    # The memo of each batch has the words of this batch, and a stream continues with the memos.
    memos = hdp._fitted.memos
    for key, memo in memos.items():
        own = X[70 * key : 70 * (key + 1)].sum(axis=0)
        np.testing.assert_allclose(memo.stats.arrays[0].sum(axis=0), own, atol=1e-5)
    words = sum(memo.stats.arrays[0] for memo in memos.values())
    np.testing.assert_allclose(hdp.components_ - hdp.topic_word_prior_, words, rtol=1e-9)
    assert not np.allclose(hdp.components_, plain.components_, atol=1.0)
    order = np.argsort(hdp.topic_ids_)
    hdp.set_params(moves=()).partial_fit(X[:70], batch_id="again")
    after = (hdp.components_ - hdp.topic_word_prior_)[np.argsort(hdp.topic_ids_)]
    assert (after > words[order] - 1e-9).all()


def test_the_log_names_a_start_from_sampled_topics_and_omits_its_sampling(capsys):
    hdp = MemoizedHDP(n_polish=0, verbose=1, random_state=0).fit(corpus(2, 60))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("start 2 of")]
    assert len(hdp.restart_elbos_) == 2 and lines
    assert all("start 2 of 2, from sampled topics, pass" in line for line in lines)
    assert not any("drawn again" in line for line in lines)


def test_a_polish_of_words_that_come_often_has_fewer_sweeps(monkeypatch):
    X, sweeps, run_pass = corpus()[:20], [], CollapsedInference.run_pass
    monkeypatch.setattr(
        CollapsedInference,
        "run_pass",
        lambda self, *args: sweeps.append(0) or run_pass(self, *args),
    )
    once = X.nnz / X.sum()  # Each word occurs once on average.
    for times, n_polish, expected in ((9.9, 40, 40), (16.0, 40, 25), (99.0, 40, 20), (99.0, 3, 3)):
        sweeps.clear()
        settings = {"n_polish": n_polish, "moves": (), "max_iter": 1, "random_state": 0}
        MemoizedHDP(2, **settings).fit(times * once * X)
        assert len(sweeps) == expected


def test_deletes_that_wait_for_merges_let_the_fit_continue():
    state, _, model = fitted(corpus(), model_of(200, 8, eta=0.1, mean_change_tol=1e-3), n_passes=2)
    move, tools = DeleteTopic(), EngineTools(1, np.random.default_rng(0), Workers())
    move.begin(model, state, tools)
    state.component_ids = state.component_ids + 8  # Merges of the same pass change the identifiers.
    assert move.finish(model, state, tools) == [] and not move.exhausted


@pytest.mark.slow
def test_deletes_without_memory_for_documents_let_the_fit_converge(monkeypatch):
    X = make_topic_corpus(200, n_components=3, n_features=60, random_state=0).X
    fit = MemoizedHDP(8, max_iter=40, moves=("delete",), temperature=None, random_state=0)
    found = []
    for room in (2**28, 2**15, 0):  # This is room for all, one and no candidates.
        monkeypatch.setattr(_delete, "MAX_BYTES", room)
        found.append(fit.fit(X).n_components_)
        assert fit.converged_
    assert found[0] == found[1] == 3 < found[2]


@pytest.mark.parametrize("weight", [1.0, 2.0**-120, 2.0**120])
def test_contributions_of_documents_omit_negligible_words_at_any_weight(weight):
    # Floors in single precision leave 1e-18 of a token.
    words = weight * np.array([[3.0, 1e-18, 1e-6], [1e-18, 2.0, 0.5]])
    memo = Memo(Stats((words, np.zeros((2, 5)))), np.zeros(()), None, weight)
    kept = Contribution.from_memo(memo, np.arange(3)).word_counts
    assert kept.nnz == 4
    np.testing.assert_array_equal(kept.toarray(), np.where(words > 1e-9 * weight, words, 0.0))


@pytest.mark.filterwarnings("error", "ignore:.*rows have no words")
def test_documents_without_words_change_no_word():
    nothing, X = np.zeros((3, 4)), np.tile([[3.0, 2.0, 0.0, 1.0]], (5, 1))
    both, weights = np.concatenate([X, nothing]), np.repeat([0.0, 1.0], [5, 3])
    for method in ("memoized", "batch"):
        model = MemoizedHDP(learning_method=method, random_state=0)
        assert np.ptp(model.fit(nothing).components_) == pytest.approx(0.0, abs=1e-12)
        assert np.ptp(model.fit(both, sample_weight=weights).components_) == pytest.approx(0.0)
    model = MemoizedHDP(random_state=0)
    for batch in (X, nothing, np.eye(4) * 1e-9):
        model.partial_fit(batch)
        words = (model.components_ - model.topic_word_prior_).sum(axis=0)
        np.testing.assert_allclose(words, X.sum(axis=0), atol=1e-6)


def test_counts_that_vary_more_than_words_cause_a_warning():
    rng = np.random.default_rng(5)
    rates = rng.lognormal(0.0, 1.2, 300) * rng.lognormal(0.0, 0.7, (5, 300))
    means = rates[rng.integers(5, size=400)] * rng.lognormal(0.0, 0.3, (400, 1))
    settings = {"n_components": 2, "max_iter": 1, "moves": (), "n_polish": 0}
    MemoizedHDP(**settings).fit(rng.poisson(means))
    genes = rng.poisson(means * rng.gamma(2.0, 0.5, means.shape))
    with pytest.warns(UserWarning, match=r"NegativeBinomial\(exposure=.row_total.\)") as warned:
        hdp = MemoizedHDP(**settings).fit(genes)
    name = str(warned[0].message).partition("skvt.components.")[2].partition("(")[0]
    assert getattr(components, name) is components.NegativeBinomial
    # The warning needs neither many columns nor many rows, as in samples of bacteria.
    bacteria = rng.poisson(means * rng.gamma(0.5, 2.0, means.shape))
    for few in np.s_[:, :40], np.s_[:60]:
        MemoizedHDP(**settings).fit(rng.poisson(means[few]))
        with pytest.warns(UserWarning, match="vary more than counts of words"):
            MemoizedHDP(**settings).fit(bacteria[few])
    # More topics than most corpora have are no such variation.
    shares, topics = rng.dirichlet(np.full(60, 0.1), 400), rng.dirichlet(np.full(300, 0.05), 60)
    MemoizedHDP(**settings).fit(rng.multinomial(500, shares @ topics))
    assert (
        hdp.set_params(warm_start=True).fit(genes).n_components_ == 2
    )  # There is no second warning.
