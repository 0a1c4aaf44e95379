"""In labelled latent Dirichlet allocation, documents may have only some of the topics."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from estimators._registry import StopAfter, assert_same_fit
from scipy.special import gammaln
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from skvt import MemoizedHDP, StructuredLDA, TemperedLDA, load, save
from skvt._compiled import run_serially
from skvt.models import Topics
from skvt.models.lda import LDA, CollapsedLDA, LDAGivenTopics
from skvt.rows import Documents

RNG = np.random.default_rng(0)
N, K, V = 120, 4, 20
# Topic 3 stands for no label, so that all documents may have it.
ALLOWED = RNG.random((N, K)) < 0.5
ALLOWED[:, 3] = True
TOPICS = RNG.dirichlet(np.full(V, 0.1), K)
SHARES = RNG.dirichlet(np.full(K, 0.5), N) * ALLOWED
SHARES = (SHARES + 1e-6 * ALLOWED) / (SHARES + 1e-6 * ALLOWED).sum(axis=1, keepdims=True)
X = sp.csr_array(RNG.multinomial(30, SHARES @ TOPICS).astype(np.float64))
# Each local step and each engine has an estimator.
FITS = {
    "collapsed": StructuredLDA(K, max_iter=100, random_state=0),
    "gibbs": StructuredLDA(K, max_iter=3, doc_topic_prior="auto", random_state=0),
    "ssvi": StructuredLDA(K, global_step="ssvi", max_iter=3, random_state=0),
    "cvb0": StructuredLDA(K, local_step="cvb0", max_iter=3, moves=(), random_state=0),
    "tempered": TemperedLDA(K, max_iter=10, batch_size=50, n_polish=2, random_state=0),
    "batch": TemperedLDA(K, learning_method="batch", temperature=None, max_iter=25, moves=(),
                         doc_topic_prior="auto", tol=0.0, evaluate_every=1, random_state=0),
}  # fmt: skip


def unfitted(name, **changes):
    return clone(FITS[name]).set_params(**changes)


@pytest.fixture(scope="module")
def batch():
    return unfitted("batch").fit(X, allowed_topics=ALLOWED)


def local_results(kind, inv_temp, allowed, log_beta, alpha, counts):
    """The local result of documents. Columns of ``log_beta`` are topics."""
    lda = LDA(alpha, np.full(len(log_beta), 0.1), mean_change_tol=1e-9)
    if kind != "mean_field":
        lda = LDAGivenTopics.from_lda(lda, kind)
    documents = Documents.of(sp.csr_array(counts), None, allowed=allowed)
    batch = lda.batch(documents, np.arange(len(counts)), np.ones(len(counts)))
    given = Topics(log_beta[batch.active], 5)
    return lda.local_step(batch, given, inv_temp, run_serially, with_energy=True)


@pytest.mark.quick_cases("1-mean_field-1.0", "2-mean_field-0.5")
@pytest.mark.parametrize("inv_temp", [1.0, 0.5])
@pytest.mark.parametrize("kind", ["mean_field", "cvb0"])
@pytest.mark.parametrize("n_documents", [1, 2])
def test_a_document_is_that_of_a_model_with_its_topics_alone(kind, inv_temp, n_documents):
    rng = np.random.default_rng(1)
    counts = rng.poisson(2.0, (n_documents, 6)).astype(np.float64) + np.eye(n_documents, 6)
    log_beta, alpha = np.log(rng.dirichlet(np.ones(6), 5).T), np.array([0.3, 1.0, 0.2, 0.5, 2.0])
    chosen = np.array([1, 3])
    allowed = np.ones((n_documents, 5), bool)
    allowed[0] = np.isin(np.arange(5), chosen)
    of_all = local_results(kind, inv_temp, allowed, log_beta, alpha, counts)
    alone = local_results(kind, inv_temp, None, log_beta[:, chosen], alpha[chosen], counts[:1])
    np.testing.assert_allclose(of_all.q[0, chosen], alone.q[0], rtol=1e-6)
    assert not of_all.q[0, [0, 2, 4]].any()
    np.testing.assert_allclose(of_all.bound[0], alone.bound[0], rtol=1e-9)
    np.testing.assert_allclose(of_all.energy[0], alone.energy[0], rtol=1e-6)
    if n_documents == 1:
        assert not of_all.stats.arrays[0][:, [0, 2, 4]].any()


@pytest.mark.slow
@pytest.mark.parametrize("inv_temp", [1.0, 0.5])
@pytest.mark.parametrize("frequent", [3.0, 150.0])  # Many tokens of a word are drawn jointly.
def test_sampled_documents_have_the_mean_of_a_model_with_their_topics_alone(inv_temp, frequent):
    rng, chosen = np.random.default_rng(1), np.array([1, 3])
    counts = np.tile([frequent, 2.0, 0.0, 3.0, 1.0, 1.0], (400, 1))
    log_beta, alpha = np.log(rng.dirichlet(np.ones(6), 5).T), np.array([0.3, 1.0, 0.2, 0.5, 2.0])
    allowed = np.tile(np.isin(np.arange(5), chosen), (400, 1))
    of_all = local_results("gibbs", inv_temp, allowed, log_beta, alpha, counts)
    alone = local_results("gibbs", inv_temp, None, log_beta[:, chosen], alpha[chosen], counts)
    assert not of_all.q[:, [0, 2, 4]].any()
    difference = of_all.q[:, chosen] - alone.q
    standard_error = difference.std(axis=0) / np.sqrt(len(counts))
    # Both models use the same random numbers for few tokens, so that the draws may be equal.
    assert (np.abs(difference.mean(axis=0)) <= 4 * standard_error + 1e-9).all()
    # An exchange of two topics would move the means by many standard errors.
    assert (standard_error < 0.02 * counts[0].sum()).all()


@pytest.mark.slow
def test_sweeps_draw_assignments_as_often_as_they_are_probable():
    alpha, eta, tokens = np.array([0.4, 1.0, 0.6]), 0.5, [(0, 0, 1), (1, 0)]
    allowed = np.array([[True, False, True], [False, True, True]])
    expected, total = np.zeros((2, 3)), 0.0
    options = [np.flatnonzero(row) for row in allowed]
    for z in product(*[options[0]] * 3, *[options[1]] * 2):
        value, words = 0.0, np.zeros((3, 2))
        of_documents = np.array([np.bincount(z[:3], minlength=3), np.bincount(z[3:], minlength=3)])
        np.add.at(words, (list(z), [*tokens[0], *tokens[1]]), 1.0)
        for n, is_allowed in zip(of_documents, allowed, strict=True):
            a, n = alpha[is_allowed], n[is_allowed]
            value += (gammaln(a + n) - gammaln(a)).sum()
        value += gammaln(eta + words).sum() - gammaln(2 * eta + words.sum(axis=1)).sum()
        expected += np.exp(value) * of_documents
        total += np.exp(value)
    counts = sp.csr_array(np.array([[2.0, 1.0], [1.0, 1.0]]))
    lda = CollapsedLDA.from_lda(LDA(alpha, np.full(2, eta), topic_groups=np.arange(3)), "gibbs")
    batch = lda.batch(Documents.of(counts, None, allowed=allowed), np.arange(2), np.ones(2))
    stats, mean, n_sweeps = lda.stats_from_topics(np.full((3, 2), eta)), np.zeros((2, 3)), 2000
    for sweep in range(n_sweeps):
        given = lda.counts_given_others(stats, batch, sweep)
        result = lda.local_step(batch, given, 1.0, run_serially)
        changed = stats.as_stats().arrays[0].copy()
        changed[result.stats.rows] += result.stats.arrays[0]
        stats = lda.stats_from_topics(changed.T + eta)
        batch = replace(batch, row_starts=result.row_starts)
        mean += result.q / n_sweeps
    assert not mean[~allowed].any()
    np.testing.assert_allclose(mean, expected / total, atol=0.08)


@pytest.mark.quick_cases("collapsed", "batch")
@pytest.mark.parametrize("name", ["collapsed", "gibbs", "tempered", "batch"])
def test_the_bound_of_documents_of_one_topic_is_their_evidence(name):
    label = np.random.default_rng(1).integers(K, size=N)
    lda = unfitted(name, topic_word_prior=0.3, learning_method="batch", moves=())
    if name == "tempered":
        lda.set_params(max_iter=200, average=0.0, n_polish=0)
    lda.fit(X, allowed_topics=np.eye(K, dtype=bool)[label])
    counts = 0.3 + np.array([X[label == k].sum(axis=0) for k in range(K)])
    evidence = (gammaln(counts).sum(axis=1) - gammaln(counts.sum(axis=1))).sum()
    evidence -= K * (V * gammaln(0.3) - gammaln(V * 0.3))
    assert lda.elbo_ == pytest.approx(evidence, rel=1e-6)


def test_the_bound_never_falls(batch):
    bounds = np.array(batch.history_["elbo"])
    assert np.diff(bounds).min() > -1e-9 * abs(bounds[-1])
    # The learned prior has a higher bound than the first one.
    fixed = unfitted("batch", doc_topic_prior=None).fit(X, allowed_topics=ALLOWED)
    assert bounds[-1] > fixed.elbo_


@pytest.mark.quick_cases("collapsed", "batch")
@pytest.mark.parametrize("name", FITS)
def test_documents_have_allowed_topics_only(name, tmp_path):
    lda = unfitted(name).fit(X, allowed_topics=ALLOWED)
    shares = lda.transform(X, allowed_topics=ALLOWED)
    assert not shares[~ALLOWED].any()
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    if name in ("collapsed", "tempered"):  # The other fits are too short to find the topics.
        topics = lda.components_ / lda.components_.sum(axis=1, keepdims=True)
        alike = np.sqrt(topics) @ np.sqrt(TOPICS.T)
        np.testing.assert_array_equal(alike.argmax(axis=1), range(K))
    assert (lda.transform(X) > 0.0).all()  # Documents without labels may have all topics.
    score = lda.score(X, allowed_topics=ALLOWED)
    assert lda.perplexity(X, allowed_topics=ALLOWED) == pytest.approx(np.exp(-score))
    save(lda, tmp_path / "lda.skvt")
    again = load(tmp_path / "lda.skvt")
    np.testing.assert_array_equal(again.transform(X, allowed_topics=sp.csr_array(ALLOWED)), shares)
    assert again.elbo(X, allowed_topics=ALLOWED) == pytest.approx(lda.elbo_, rel=1e-9)


def test_streams_and_warm_starts_have_allowed_topics_in_each_call_or_in_none():
    stream = TemperedLDA(K, doc_topic_prior="auto", temperature=None, total_samples=N)
    for part in 5 * np.array_split(np.arange(N), 2):
        stream.partial_fit(X[part], allowed_topics=ALLOWED[part])
    assert not stream.transform(X, allowed_topics=ALLOWED)[~ALLOWED].any()
    assert np.ptp(stream.doc_topic_prior_) > 0.01
    plain = TemperedLDA(K, max_iter=1, warm_start=True).fit(X)
    with pytest.raises(ValueError, match="in each call or in none"):
        plain.fit(X, allowed_topics=ALLOWED)
    with pytest.raises(ValueError, match="were with allowed_topics"):
        stream.partial_fit(X)
    assert not plain.transform(X, allowed_topics=ALLOWED)[~ALLOWED].any()
    warm = unfitted("batch", warm_start=True, max_iter=2)
    before = warm.fit(X, allowed_topics=ALLOWED).elbo_
    assert warm.fit(X, allowed_topics=ALLOWED).elbo_ > before
    merged = warm.merge_topics([[0, 2]])
    assert merged.transform(X[:1], allowed_topics=[[True, False, True]])[0, 1] == 0.0


def test_an_interrupted_fit_is_resumed_with_the_same_allowed_topics_only(batch, tmp_path):
    path = tmp_path / "fit.skvt"
    with pytest.raises(KeyboardInterrupt):
        unfitted("batch").set_callbacks(StopAfter(path, 2)).fit(X, allowed_topics=ALLOWED)
    assert_same_fit(load(path).resume(X, allowed_topics=ALLOWED), batch)
    with pytest.raises(ValueError, match="same covariates and allowed topics"):
        load(path).resume(X, allowed_topics=np.ones((N, K), bool))


def test_a_fit_takes_covariates_and_allowed_topics_together():
    day = np.random.default_rng(1).normal(size=N)
    lda = unfitted("batch").fit(X, covariates=day, allowed_topics=ALLOWED)
    bounds = np.array(lda.history_["elbo"])
    assert np.diff(bounds).min() > -1e-9 * abs(bounds[-1])
    assert np.isfinite(lda.covariate_coef_).all()
    shares = lda.transform(X, covariates=day, allowed_topics=ALLOWED)
    assert not shares[~ALLOWED].any()


def test_moves_exchange_only_topics_that_the_same_documents_may_have():
    prior, groups = np.array([[1.0, 1.0, 2.0, 1.0]]), np.array([0, 1, 1, 1])
    lda = LDA(np.ones(4), prior[0], topic_groups=groups)
    kinds = lda.prior_kinds()
    assert kinds[1] == kinds[2] == kinds[3] != kinds[0]
    kinds = LDA(np.ones(4), np.repeat(prior, 3, axis=0), topic_groups=groups).prior_kinds()
    assert kinds[1] == kinds[3] and len({*kinds[:3]}) == 3


def test_cross_validation_splits_allowed_topics_with_the_rows():
    with config_context(enable_metadata_routing=True):
        lda = unfitted("batch", max_iter=2)
        lda = lda.set_fit_request(allowed_topics=True).set_score_request(allowed_topics=True)
        params = {"allowed_topics": ALLOWED}
        assert np.isfinite(cross_val_score(lda, X, cv=2, params=params)).all()
        for method in ("fit", "score", "transform"):
            requested = getattr(MemoizedHDP().get_metadata_routing(), method).requests
            assert not {"covariates", "allowed_topics"} & set(requested)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda allowed: allowed[1:], r"\(120, 4\).*Got the shape \(119, 4\)"),
        (lambda allowed: allowed[:, 1:], r"a column for each topic. Got the shape \(120, 3\)"),
        (lambda allowed: allowed * 0.5, "Got 0.5 in row 0"),
        (lambda allowed: allowed.astype(str), "Got values of type <U5"),
        (lambda allowed: allowed & (np.arange(N) != 7)[:, None],
         "no topic in the document in row 7"),
        (lambda allowed: allowed & (np.arange(K) != 2), "allows topic 2 in no document"),
    ],
)  # fmt: skip
def test_illegal_allowed_topics_are_refused_with_the_remedy(change, message):
    lda = unfitted("batch")
    with pytest.raises(ValueError, match=message):
        lda.fit(X, allowed_topics=change(ALLOWED))
    assert not hasattr(lda, "components_")


def test_other_fits_refuse_allowed_topics_by_name(batch):
    hdp = MemoizedHDP(K, max_iter=2, moves=()).fit(X)
    for method in "transform", "score", "perplexity":
        with pytest.raises(ValueError, match="MemoizedHDP takes no allowed_topics"):
            getattr(hdp, method)(X, allowed_topics=ALLOWED)
    with pytest.raises(ValueError, match="MemoizedHDP takes no covariates"):
        hdp.transform(X, covariates=np.arange(N))
    with pytest.raises(ValueError, match="tempered log partition"):
        TemperedLDA(K, temperature="local").fit(X, allowed_topics=ALLOWED)
