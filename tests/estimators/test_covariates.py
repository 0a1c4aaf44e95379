"""Topics whose document prior depends on covariates."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from estimators._registry import StopAfter, assert_same_fit
from scipy.integrate import quad
from scipy.stats import beta as beta_distribution
from sklearn import __version__ as sklearn_version
from sklearn import config_context
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.fixes import parse_version

from skvt import (
    StructuredLDA,
    TemperedLDA,
    covariate_effects,
    load,
    save,
    topic_shares,
    topic_table,
)
from skvt.fitting import hash_all_rows
from skvt.metrics import match_components
from skvt.plotting import TopicSharesDisplay, prepare_arguments, save_pyldavis, topic_explorer
from skvt.rows import Documents

RNG = np.random.default_rng(0)
N, K, V = 120, 3, 20
FRAME = pd.DataFrame({
    "day": RNG.normal(50.0, 10.0, N), "party": RNG.choice(["green", "red", "blue"], N),
})  # fmt: skip


def corpus(covariate, rng=RNG, length=15):
    """Documents whose prior depends on a covariate, (N, V)."""
    topics = rng.dirichlet(np.full(V, 0.1), K)
    alpha = np.exp(np.log(0.3) + np.outer(covariate, np.linspace(-1.0, 1.0, K)))
    shares = np.array([rng.dirichlet(row) for row in alpha])
    return sp.csr_array(rng.multinomial(length, shares @ topics).astype(np.float64))


X = corpus((FRAME["day"] - 50.0) / 10.0)
# one estimator for each local step and engine
FITS = {
    "collapsed": StructuredLDA(K, max_iter=100, random_state=0),
    "gibbs": StructuredLDA(K, max_iter=3, moves=(), random_state=0),
    "cvb0": StructuredLDA(K, local_step="cvb0", max_iter=3, moves=(), random_state=0),
    "tempered": TemperedLDA(K, max_iter=3, moves=(), batch_size=50, random_state=0),
    "batch": TemperedLDA(K, learning_method="batch", temperature=None, max_iter=25, moves=(),
                         tol=0.0, evaluate_every=1, random_state=0),
}  # fmt: skip


def copy_of(name):
    return FITS[name].__class__(**FITS[name].get_params())


@pytest.fixture(scope="module")
def batch():
    return copy_of("batch").fit(X, covariates=FRAME)


def test_the_bound_never_falls(batch):
    bounds = np.array(batch.history_["elbo"])
    assert np.diff(bounds).min() > -1e-9 * abs(bounds[-1])
    assert bounds[-1] > copy_of("batch").set_params(doc_topic_prior="auto").fit(X).elbo_


def test_the_bound_of_documents_whose_topics_are_known_is_their_probability():
    # each topic has words of its own, so that the topic of each token is known
    counts = np.array([[3, 0, 1, 0], [0, 2, 0, 0], [1, 0, 0, 4], [0, 0, 2, 2.0]])
    x = np.array([-1.0, 0.5, 2.0, 3.0])
    topics = np.array([[0.7, 0.3, 0.0, 0.0], [0.0, 0.0, 0.4, 0.6]])
    lda = TemperedLDA(
        2, topic_word_prior=1e-5, components_init=topics, learning_method="batch",
        temperature=None, max_iter=30, moves=(), max_doc_update_iter=1000, mean_change_tol=1e-12,
    ).fit(np.tile(counts, (30, 1)), covariates=np.tile(x, 30))  # fmt: skip
    coef = lda.covariate_coef_
    words = lda.exp_dirichlet_component_

    def log_probability(d):
        a, b = np.exp(coef @ [1.0, x[d]])
        n = counts[d, :2].sum(), counts[d, 2:].sum()
        # theta = u^(1 / a) / (...) would be needed for small a; split the range instead
        density = beta_distribution(a, b).pdf
        value = quad(lambda t: t ** n[0] * (1.0 - t) ** n[1] * density(t), 0.0, 1.0, limit=200)[0]
        log_words = np.log(np.where(topics > 0.0, words, 1.0))
        return np.log(value) + counts[d] @ log_words.sum(axis=0)

    for d in range(4):
        rows = [0, d]
        gain = lda.elbo(counts[rows], covariates=x[rows])
        gain -= lda.elbo(counts[:1], covariates=x[:1])
        assert gain == pytest.approx(log_probability(d), rel=1e-5)


def test_a_constant_covariate_is_the_learned_prior():
    for name in "collapsed", "gibbs", "batch":
        constant = copy_of(name).fit(X, covariates=np.full(N, 7.0))
        learned = copy_of(name).set_params(doc_topic_prior="auto").fit(X)
        np.testing.assert_array_equal(constant.components_, learned.components_)
        np.testing.assert_allclose(np.exp(constant.covariate_coef_[:, 0]), learned.doc_topic_prior_)
        shares = constant.transform(X[:3], covariates=[7.0] * 3)
        np.testing.assert_array_equal(shares, learned.transform(X[:3]))


@pytest.mark.parametrize("name", FITS)
def test_coefficients_do_not_depend_on_units(name):
    first = copy_of(name).fit(X, covariates=FRAME)
    shifted = FRAME.assign(day=60.0 * FRAME["day"] - 8.0)
    second = copy_of(name).fit(X, covariates=shifted)
    coef, other = first.covariate_coef_, second.covariate_coef_
    assert coef.shape == (K, 4)
    assert list(coef) == ["Intercept", "day", "party[T.green]", "party[T.red]"]
    np.testing.assert_allclose(coef["day"], 60.0 * other["day"], rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(
        first.transform(X, covariates=FRAME), second.transform(X, covariates=shifted), rtol=1e-3
    )


@pytest.mark.parametrize("name", ["collapsed", "gibbs", "batch"])
def test_a_planted_effect_is_seen(name):
    x = np.repeat([-2.0, 2.0], N // 2)
    counts = corpus(x, np.random.default_rng(1), 30)
    lda = copy_of(name).fit(counts, covariates=x)
    slopes = np.sort(lda.covariate_coef_[:, 1])
    assert slopes[0] < -0.2 and slopes[-1] > 0.2
    # an empty document has the mean of its prior
    shares = lda.transform(np.zeros((2, V)), covariates=[-2.0, 2.0])
    alpha = np.exp(lda.covariate_coef_ @ [[1.0, 1.0], [-2.0, 2.0]]).T
    np.testing.assert_allclose(shares, alpha / alpha.sum(axis=1, keepdims=True), rtol=1e-6)


def test_streams_warm_starts_files_and_merged_topics(tmp_path, batch):
    stream = TemperedLDA(K, random_state=0, total_samples=N)
    for _ in range(10):
        for part in np.array_split(np.arange(N), 2):
            stream.partial_fit(X[part], covariates=FRAME.iloc[part])
    slopes = stream.covariate_coef_["day"]
    assert np.ptp(slopes) > 0.02
    save(stream, tmp_path / "stream.skvt")
    again = load(tmp_path / "stream.skvt")
    pd.testing.assert_frame_equal(again.covariate_coef_, stream.covariate_coef_)
    first = again.partial_fit(X[:60], covariates=FRAME[:60]).components_
    np.testing.assert_array_equal(
        first, stream.partial_fit(X[:60], covariates=FRAME[:60]).components_
    )
    warm = copy_of("batch").set_params(warm_start=True, max_iter=2).fit(X, covariates=FRAME)
    before = warm.elbo_
    assert warm.fit(X, covariates=FRAME).elbo_ > before
    merged = warm.merge_topics([[0, 2]])
    at = FRAME.assign(day=FRAME["day"].mean(), party="blue")[:1]
    assert merged.transform(X[:1], covariates=at).shape == (1, 2)


@pytest.mark.parametrize("name", FITS)
def test_an_interrupted_fit_is_resumed_with_the_same_covariates_only(name, tmp_path):
    path, whole = tmp_path / "fit.skvt", copy_of(name).fit(X, covariates=FRAME)
    with pytest.raises(KeyboardInterrupt):
        copy_of(name).set_callbacks(StopAfter(path, 2)).fit(X, covariates=FRAME)
    assert_same_fit(load(path).resume(X, covariates=FRAME), whole)
    with pytest.raises(ValueError, match="same covariates"):
        load(path).resume(X, covariates=FRAME.assign(day=FRAME["day"] ** 2))
    with pytest.raises(ValueError, match="Pass covariates with a row for each row"):
        load(path).resume(X)


def test_rows_are_identified_with_their_covariates():
    one, other = (Documents.of(X, np.full((N, 1), value)) for value in (1.0, 2.0))
    assert hash_all_rows(one, np.ones(N)) != hash_all_rows(other, np.ones(N))


READERS = {
    "topic_table": topic_table,
    "topic_shares": lambda *args, **given: topic_shares(*args, np.zeros(N), **given),
    "topic_explorer": lambda *args, **given: topic_explorer(*args, path="page.html", **given),
    "prepare_arguments": prepare_arguments,
    "save_pyldavis": lambda *args, **given: save_pyldavis(*args, path="page.html", **given),
    "display": lambda *args, **given: TopicSharesDisplay.from_estimator(
        *args, np.zeros(N), **given
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_tables_and_pages_hand_details_of_rows_to_the_model(name, batch, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    read, plain = READERS[name], TemperedLDA(K, max_iter=1, random_state=0).fit(X)
    same = FunctionTransformer(accept_sparse=True, feature_names_out="one-to-one").fit(X)
    pipeline = make_pipeline(same, batch)
    for fit in batch, pipeline:
        with pytest.raises(ValueError, match=r"depends on the covariates \['day', 'party'\]"):
            read(fit, X)
        with pytest.raises(ValueError, match="covariates has 119 rows, but X has 120"):
            read(fit, X, covariates=FRAME[:-1])
    with pytest.raises(ValueError, match="was fitted without covariates"):
        read(plain, X, covariates=FRAME)
    with pytest.raises(ValueError, match="allowed_topics must be a Boolean array"):
        read(plain, X, allowed_topics=np.ones((N, K - 1)))
    assert not list(tmp_path.iterdir())
    if name != "save_pyldavis":  # its page needs pyLDAvis, its errors do not
        read(pipeline, X, covariates=FRAME, allowed_topics=np.eye(K)[[0] * N])


@pytest.mark.parametrize("allowed", [None, np.eye(K)[np.arange(N) % K]])
def test_shares_of_tables_are_those_of_the_prior_with_covariates_and_allowed_topics(batch, allowed):
    details = {"covariates": FRAME, "allowed_topics": allowed}
    shares = batch.transform(X, **details)
    # each document has 15 words
    np.testing.assert_allclose(topic_table(batch, X, **details)["share"], shares.mean(axis=0))
    arguments = prepare_arguments(batch, X, **details)
    np.testing.assert_allclose(arguments["doc_topic_dists"], shares)


def test_effects_are_of_fits_with_or_without_covariates(batch):
    table = covariate_effects(batch, X, FRAME, n_draws=2, random_state=0)
    assert len(table) == K * 4 and np.isfinite(table["effect"]).all()


def test_few_passes_at_temperature_1_learn_most_of_the_effects():
    rng = np.random.default_rng(0)
    x, topics = rng.normal(size=600), rng.dirichlet(np.full(V, 0.1), K)
    alpha = np.exp(np.log(0.3) + np.outer(x, [-1.0, 0.0, 1.0]))
    shares = np.array([rng.dirichlet(row) for row in alpha])
    counts = rng.multinomial(8, shares @ topics).astype(np.float64)
    lda = TemperedLDA(K, batch_size=25, moves=(), random_state=0).fit(counts, covariates=x)
    slopes = lda.covariate_coef_[match_components(topics, lda.components_)[0], 1]
    assert 1.0 < slopes[2] - slopes[0] < 2.5  # 2 in the model that drew the documents


def test_rows_of_weight_zero_are_left_out(batch):
    weights = np.ones(N + 2)
    weights[:2] = 0.0
    rows = sp.vstack([X[:2], X], format="csr")
    frame = pd.concat([FRAME[:2].assign(day=1e6), FRAME])
    lda = copy_of("batch").fit(rows, sample_weight=weights, covariates=frame)
    np.testing.assert_allclose(lda.components_, batch.components_)
    np.testing.assert_allclose(lda.covariate_coef_, batch.covariate_coef_)


def test_rows_of_weight_0_are_left_out_of_a_score_with_their_covariates(batch):
    weights = np.arange(N) % 3
    used = weights > 0
    found = batch.score(X, sample_weight=weights, covariates=FRAME)
    rest = {"sample_weight": weights[used], "covariates": FRAME[used]}
    assert found == batch.score(X[used], **rest)


def test_pipelines_and_searches_split_covariates_with_the_rows():
    with config_context(enable_metadata_routing=True):
        lda = copy_of("batch").set_params(max_iter=2)
        for method in "fit", "transform", "score", "partial_fit":
            lda = getattr(lda, f"set_{method}_request")(covariates=True)
        params = {"covariates": FRAME}
        assert np.isfinite(cross_val_score(lda, X, cv=2, params=params)).all()
        search = GridSearchCV(lda, {"n_components": [2, 3]}, cv=2).fit(X, **params)
        assert search.best_estimator_.covariate_coef_.shape[1] == 4
        pipeline = make_pipeline(FunctionTransformer(accept_sparse=True), lda)
        # Pipelines of scikit-learn 1.6 pass no covariates to ``score``.
        if parse_version(sklearn_version) >= parse_version("1.9"):
            found = cross_val_score(pipeline, X, cv=2, params=params)
            np.testing.assert_array_equal(found, cross_val_score(lda, X, cv=2, params=params))
        shares = pipeline.fit(X, **params).transform(X[:5], covariates=FRAME[:5])
        np.testing.assert_array_equal(shares, lda.fit(X, **params).transform(X, **params)[:5])


def test_illegal_covariates_are_refused_with_the_remedy(batch):
    lda = copy_of("batch")
    missing = FRAME.assign(day=np.where(np.arange(N) == 4, np.nan, FRAME["day"]))
    for covariates, message in [
        (FRAME[:-1], "covariates has 119 rows, but X has 120"),
        (FRAME.assign(one=1.0), "'one' is 1"),
        (
            FRAME.assign(twice=2.0 * FRAME["day"]),
            "'twice' is collinear: it is a linear combination of day",
        ),
        (missing, "'day' has 1 missing values, the first in row 4. Leave these rows out"),
        (np.zeros((N, 0)), "covariates must be a data frame, or an array"),
    ]:
        with pytest.raises(ValueError, match=message):
            lda.fit(X, covariates=covariates)
    assert not hasattr(lda, "components_")
    plain = copy_of("batch").set_params(max_iter=1).fit(X)
    with pytest.raises(AttributeError, match="after a fit without covariates"):
        _ = plain.covariate_coef_
    for method in "transform", "score", "perplexity", "elbo", "partial_fit":
        with pytest.raises(ValueError, match=r"depends on the covariates \['day', 'party'\]"):
            getattr(batch, method)(X)
        with pytest.raises(ValueError, match="was fitted without covariates"):
            getattr(plain, method)(X, covariates=FRAME)
    with pytest.raises(ValueError, match=r"covariates \['age'\] were not among"):
        batch.transform(X, covariates=FRAME.assign(age=1.0))
    with pytest.raises(ValueError, match=r"covariates \['day'\] are missing"):
        batch.transform(X, covariates=FRAME[["party"]])
    with pytest.raises(ValueError, match=r"the level 'pirate' .* are 'red', 'green', 'blue'"):
        batch.transform(X, covariates=FRAME.assign(party="pirate"))
    plain.set_params(warm_start=True)
    with pytest.raises(ValueError, match="was fitted without covariates"):
        plain.fit(X, covariates=FRAME)
    with pytest.raises(ValueError, match="tempered log partition"):
        TemperedLDA(K, temperature="variational").fit(X, covariates=FRAME)
    assert "covariates" not in dir(batch) and plain.fit(X).elbo_ is not None
