"""Topic models have scores, words, priors and posteriors of documents."""

import pickle
import warnings
from copy import deepcopy

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from estimators._registry import counts, every_class_of_topic_models, every_topic_model, refused
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline

from skvt import StructuredLDA, TemperedLDA, top_words, topic_table
from skvt.datasets import make_topic_corpus
from skvt.metrics import document_completion_score, document_completion_split


# ------------------------------------------------------------------------------ the split
@pytest.fixture(scope="module")
def corpus():
    return counts(n_rows=300, n_features=40, n_topics=4, length=60)


def test_each_token_goes_to_either_half_with_even_odds(corpus):
    observed, held_out = document_completion_split(corpus)
    n_tokens = corpus.sum()
    # The limits are five standard deviations of a fair coin.
    assert abs(observed.sum() - n_tokens / 2) < 2.5 * np.sqrt(n_tokens)
    per_column = np.asarray(observed.sum(axis=0)) - corpus.sum(axis=0) / 2
    assert (np.abs(per_column) <= 2.5 * np.sqrt(corpus.sum(axis=0))).all()
    # The number of tokens of a row in one half varies as that of a coin.
    deviations = (observed.sum(axis=1) - corpus.sum(axis=1) / 2) / np.sqrt(corpus.sum(axis=1) / 4)
    assert np.var(deviations) == pytest.approx(1.0, abs=5.0 * np.sqrt(2.0 / 300))
    assert held_out.sum() == n_tokens - observed.sum()


def test_words_of_a_document_are_divided_independently():
    # All four outcomes of 4000 different documents of two words are equally frequent.
    X = np.zeros((4000, 130))
    rows = np.arange(4000)
    X[rows, rows % 64] = 1.0
    X[rows, 64 + rows // 64] = 1.0
    observed = document_completion_split(X)[0].toarray()
    outcome = 2 * observed[rows, rows % 64] + observed[rows, 64 + rows // 64]
    frequencies = np.bincount(outcome.astype(int), minlength=4)
    assert np.abs(frequencies - 1000).max() < 5 * np.sqrt(4000 * 0.25 * 0.75)


def test_a_row_is_divided_alike_in_any_company(corpus):
    observed = document_completion_split(corpus)[0].toarray()
    order = np.random.default_rng(0).permutation(300)
    np.testing.assert_array_equal(
        document_completion_split(corpus[order])[0].toarray(), observed[order]
    )
    np.testing.assert_array_equal(
        document_completion_split(corpus[17:18])[0].toarray(), observed[17:18]
    )
    np.testing.assert_array_equal(document_completion_split(corpus)[0].toarray(), observed)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64, bool])
def test_the_type_of_the_counts_does_not_matter_to_the_split(corpus, dtype):
    X = (corpus > 0) if dtype is bool else corpus
    expected = document_completion_split(X.astype(float))[0].toarray()
    for contain in (np.asarray, sp.csr_array, sp.csc_array, sp.coo_array):
        split = document_completion_split(contain(X.astype(dtype)))[0]
        np.testing.assert_array_equal(split.toarray(), expected)


@pytest.mark.parametrize("factor", [1.0, 0.37, 1.5, 1e-3])
def test_halves_of_counts_and_of_fractions_add_up_to_the_whole(corpus, factor):
    X = factor * corpus
    halves = document_completion_split(X)
    np.testing.assert_allclose((halves[0] + halves[1]).toarray(), X, rtol=1e-14)
    assert min(half.data.min() for half in halves) > 0.0
    # The fraction of an entry stays in one piece: one half or the other has whole tokens.
    fractions = [np.abs(half - np.round(half)) for half in (each.toarray() for each in halves)]
    assert np.minimum(*fractions).max() < 1e-9
    assert abs(halves[0].sum() / X.sum() - 0.5) < 0.05


# ------------------------------------------------------------------------------- the score
@every_topic_model
def test_the_score_is_what_its_definition_says(entry, corpus):
    estimator = entry.make().fit(corpus)
    observed, held_out = document_completion_split(corpus)
    topics = estimator.components_ / estimator.components_.sum(axis=1, keepdims=True)
    probability = estimator.transform(observed) @ topics
    held_out = held_out.toarray()
    expected = (held_out * np.log(probability)).sum() / held_out.sum()
    assert estimator.score(corpus) == pytest.approx(expected, rel=1e-10)
    assert estimator.perplexity(corpus) == pytest.approx(np.exp(-expected), rel=1e-10)
    # The metric makes the same inference for all models.
    assert document_completion_score(
        topics, corpus, doc_topic_prior=estimator.doc_topic_prior_
    ) == pytest.approx(expected, rel=1e-6)


@every_class_of_topic_models
@pytest.mark.parametrize("factor", [0.0, 1.0])
def test_documents_without_a_token_to_hold_out_have_no_score(entry, factor):
    estimator = entry.make().fit(counts())
    X = np.zeros((2, 25))
    split = document_completion_split(np.eye(25))[0].toarray().sum(axis=1)
    # The only token goes to the observed half.
    X[0, np.flatnonzero(split)[0]] = factor
    for method in (estimator.score, estimator.perplexity):
        with pytest.raises(
            ValueError, match=r"no token to hold out: X has [01] tokens in 2 doc.* two"
        ):
            method(X)


@every_class_of_topic_models
def test_parameters_of_documents_hold_their_words_and_the_prior(entry, corpus):
    lda = entry.make().fit(corpus)
    gamma = lda.transform(corpus, normalize=False)
    excess = gamma.sum(axis=1) - corpus.sum(axis=1)
    np.testing.assert_allclose(excess, excess[0], rtol=1e-6)
    np.testing.assert_allclose(
        gamma / gamma.sum(axis=1, keepdims=True), lda.transform(corpus), rtol=1e-12
    )
    np.testing.assert_array_equal(entry.make().fit_transform(corpus, normalize=False), gamma)
    assert lda.perplexity(corpus, sub_sampling=True) == lda.perplexity(corpus)


def test_the_perplexity_by_the_bound_is_that_of_scikit_learn(corpus, capsys):
    corpus = corpus[:60]
    same = {
        "n_components": 4, "doc_topic_prior": 0.5, "topic_word_prior": 0.3, "mean_change_tol": 1e-7,
        "max_doc_update_iter": 2_000, "learning_method": "batch", "random_state": 0, "max_iter": 6,
        "evaluate_every": 3, "perp_tol": 0.0, "verbose": 1,
    }  # fmt: skip
    lda = TemperedLDA(temperature=None, moves=(), **same).fit(corpus)
    lines = capsys.readouterr().out.splitlines()
    shown = [line.partition("perplexity ")[2].partition(",")[0] for line in lines]
    assert [bool(number) for number in shown] == [False, False, True] * 2
    evaluated = np.exp(-np.array(lda.history_["elbo"]) / corpus.sum())[2::3]
    np.testing.assert_allclose(np.array(shown[2::3], float), evaluated, rtol=1e-5)
    # The perplexity of scikit-learn is by the bound, too.
    theirs = LatentDirichletAllocation(**same | {"max_iter": 1, "verbose": 0}).fit(corpus)
    theirs.components_ = lda.components_
    theirs.exp_dirichlet_component_ = lda.exp_dirichlet_component_
    assert lda.bound_ == pytest.approx(theirs.perplexity(corpus), rel=1e-5)
    weighted = lda.set_params(verbose=0).fit(corpus, sample_weight=np.full(60, 2.0))
    assert weighted.bound_ == pytest.approx(np.exp(-weighted.elbo_ / 2.0 / corpus.sum()))
    with pytest.raises(AttributeError, match="partial_fit"):
        lda.partial_fit(corpus).bound_  # noqa: B018


# On this corpus the perplexity of scikit-learn selects the smallest number of topics.
TWENTY = {"n_components": 20, "n_features": 1000, "mean_length": 85.0, "random_state": 0}


@pytest.mark.slow
def test_the_score_selects_twenty_topics():
    X = make_topic_corpus(2200, **TWENTY).X
    settings = {"learning_method": "batch", "max_iter": 50, "random_state": 0}
    fits = {k: TemperedLDA(k, **settings).fit(X[:2000]) for k in (10, 20, 40)}
    assert max(fits, key=lambda k: fits[k].score(X[2000:])) == 20


@pytest.mark.slow
def test_the_bound_selects_twenty_topics_after_ten_online_passes():
    # Two halves of a topic predict as well as the whole, but cost the bound more.
    X = make_topic_corpus(2000, **TWENTY).X
    fits = {k: TemperedLDA(k, random_state=0).fit(X) for k in (15, 20, 25)}
    assert max(fits, key=lambda k: fits[k].elbo_) == 20


@pytest.mark.parametrize("seed", [0, 1])
def test_weights_keep_a_few_long_documents_from_deciding_the_topics(seed):
    # The guide has this rule for weights.
    rng = np.random.default_rng(seed)
    beta = rng.dirichlet(np.full(300, 0.05), 3)
    theta = rng.dirichlet(np.full(3, 0.3), 303)
    n_words = np.r_[np.full(3, 200_000), np.full(300, 60)]
    X = sp.csr_array(
        [rng.multinomial(n, row @ beta) for n, row in zip(n_words, theta, strict=True)]
    )

    def lowest_overlap(X, weights=None):
        """Mass that the worst found of the true topics shares with the nearest topic."""
        lda = TemperedLDA(3, random_state=0).fit(X, sample_weight=weights)
        topics = lda.components_ / lda.components_.sum(axis=1, keepdims=True)
        return np.minimum(topics[:, None], beta).sum(axis=-1).max(axis=0).min()

    lengths = np.asarray(X.sum(axis=1)).ravel()
    weights = np.minimum(1, 10 * np.median(lengths) / lengths)
    of_short = lowest_overlap(X[3:])
    assert lowest_overlap(X) < of_short - 0.2
    assert lowest_overlap(X, weights) > of_short - 0.05


# ------------------------------------------------------------------------------- top words
@every_class_of_topic_models
def test_top_words_are_the_most_probable_ones(entry):
    X = counts()
    names = np.array([f"word{v}" for v in range(25)])
    estimator = entry.make().fit(X)
    for n_words in (1, 4, 25):
        topics = estimator.top_words(n_words, names)
        assert [len(topic) for topic in topics] == [n_words] * 3
        for topic, lam in zip(topics, estimator.components_, strict=True):
            inside = np.isin(names, topic)
            assert lam[inside].min() >= lam[~inside].max(initial=0.0)
            assert list(topic) == list(names[np.argsort(-lam, kind="stable")[:n_words]])
    assert len(estimator.top_words()[0]) == 10


@every_class_of_topic_models
def test_top_words_refuse_illegal_numbers_and_wrong_numbers_of_names(entry):
    estimator = entry.make().fit(counts())
    for names in (["a"], [], ["a"] * 26, [["a"] * 25]):
        with pytest.raises(ValueError, match="feature_names must be 25 names"):
            estimator.top_words(3, names)
    for n_words in (-1, 0, 2.5, "3", None):
        with pytest.raises((ValueError, TypeError), match="n_words"):
            estimator.top_words(n_words)


# ------------------------------------------------------------------------------- posteriors
@every_class_of_topic_models
def test_the_posterior_is_that_of_the_components(entry):
    estimator = entry.make().fit(counts())
    lam = estimator.components_.astype(np.float64)
    posterior = estimator.posterior_
    mean = lam / lam.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(posterior.mean(), mean, rtol=1e-5)
    np.testing.assert_allclose(
        posterior.var(), mean * (1.0 - mean) / (1.0 + lam.sum(axis=1, keepdims=True)), rtol=1e-4
    )


@every_class_of_topic_models
@pytest.mark.parametrize("total", [40.0, 1e3, 1e6])
def test_total_samples_is_the_weight_of_the_data_that_a_stream_stands_for(entry, total):
    X = counts()
    settings = {"temperature": None, "learning_decay": 0.0, "batch_size": 40}
    estimator = entry.make(total_samples=total, topic_word_prior=0.3, **settings).partial_fit(X)
    mass = total * X.sum() / 40.0
    assert estimator.components_.sum() - 3 * 25 * 0.3 == pytest.approx(mass, rel=1e-9)


@every_class_of_topic_models
def test_fit_does_not_look_at_total_samples(entry):
    X = counts()
    one, other = entry.make().fit(X), entry.make(total_samples=1e5).fit(X)
    np.testing.assert_array_equal(one.components_, other.components_)


@every_class_of_topic_models
def test_proportions_of_rows_without_words_come_with_one_warning(entry):
    X = entry.data()
    lda = entry.make().fit(X)
    empty = X.copy()
    empty[[1, 4]] = 0.0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        lda.transform(X)
        for rows in (empty, sp.csr_array(empty)) * 2:
            lda.transform(rows)
        topic_table(lda, empty)
    messages = [str(warning.message) for warning in caught]
    # A table has a warning of its own, which names the rows.
    assert [" (rows 1, 4)" in message for message in messages] == [False, True]
    assert all(f"2 of {len(X)} rows have no words that" in message for message in messages)
    assert caught[0].filename == __file__


# ----------------------------------------------------------------------------- learned priors
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.filterwarnings("ignore:.*rows have no words")
@pytest.mark.parametrize("weighted", [False, True])
def test_empty_documents_do_not_count_in_the_default_prior(method, weighted):
    # Documents of eight tokens have the prior 1 / 8, which is more than 1 / 20 topics.
    X = np.zeros((90, 8))
    X[::9] = 1.0
    lda = TemperedLDA(20, max_iter=1, random_state=0)
    getattr(lda, method)(sp.csr_array(X), sample_weight=np.full(90, 0.5) if weighted else None)
    assert lda.doc_topic_prior_ == pytest.approx(1 / 8)


@every_class_of_topic_models
def test_given_priors_are_published_as_given(entry):
    X = counts()
    estimator = entry.make(topic_word_prior=None).fit(X)
    assert estimator.doc_topic_prior_ == estimator.topic_word_prior_ == pytest.approx(1 / 3)
    estimator = entry.make(doc_topic_prior=[0.1, 0.2, 0.3], topic_word_prior=0.7).fit(X)
    np.testing.assert_array_equal(estimator.doc_topic_prior_, [0.1, 0.2, 0.3])
    assert estimator.topic_word_prior_ == 0.7


@every_topic_model
def test_a_stream_learns_its_priors(entry):
    learned = {"doc_topic_prior": "auto", "topic_word_prior": "auto"}
    estimator = entry.make(temperature=None, total_samples=200, **learned)
    for _ in range(5):
        estimator.partial_fit(counts(n_rows=200))
    assert estimator.doc_topic_prior_.shape == (3,)
    assert not np.allclose(estimator.doc_topic_prior_, 1.0 / 3.0, rtol=0.05)
    assert estimator.topic_word_prior_ != pytest.approx(1.0 / 3.0, rel=0.05)


def test_a_stream_learns_the_prior_of_words_alike_in_one_call_and_in_many():
    X, settings = counts(n_rows=160), {"batch_size": 5, "total_samples": 160, "random_state": 0}
    streams = [TemperedLDA(3, temperature=None, **settings) for _ in range(2)]
    priors = []
    for start in range(0, 160, 5):
        streams[0].partial_fit(X[start : start + 5])
        priors.append(streams[0].topic_word_prior_)
    np.testing.assert_allclose(streams[1].partial_fit(X).components_, streams[0].components_)
    # The prior changes twice, because a look at all topics costs more than a step.
    assert len(set(priors)) == 3
    assert streams[1].topic_word_prior_ == pytest.approx(priors[-1])


# ------------------------------------------------------------------------------ step sizes
@pytest.mark.parametrize("estimator", [TemperedLDA, StructuredLDA])
def test_single_documents_teach_what_a_minibatch_of_them_teaches(estimator):
    X = make_topic_corpus(600, n_components=5, n_features=200, random_state=0).X
    single = estimator(5, batch_size=100, random_state=0).fit(X[:300])
    together = deepcopy(single).partial_fit(X[300:400])
    for document in range(300, 400):
        single.partial_fit(X[document])
    # If each document made a full step, topics would change by a tenth or more.
    change = np.abs(together.components_ - single.components_).sum(axis=1)
    assert np.all(change < 0.05 * together.components_.sum(axis=1))


@pytest.mark.parametrize("batch_size, n_batches, decay", [(8, 5, 0.6), (100, 1, 0.9)])
@pytest.mark.parametrize("make, scale, delay", [(TemperedLDA, 2.8, 0.8), (StructuredLDA, 5.0, 0.4)])
def test_step_sizes_of_a_fit_are_tied_to_its_passes(
    make, scale, delay, batch_size, n_batches, decay
):
    settings = {"batch_size": batch_size, "learning_decay": decay, "max_iter": 20}
    fitted = make(3, random_state=0, **settings).fit(counts())
    steps = n_batches * np.arange(1, 21) - 1
    expected = scale / n_batches * (delay + steps / n_batches) ** -decay
    found = np.array(fitted.history_["learning_rate"])
    np.testing.assert_allclose(found, np.minimum(expected, 1.0), rtol=1e-12)
    given = make(3, random_state=0, learning_offset=3.0, **settings).fit(counts())
    np.testing.assert_allclose(given.history_["learning_rate"], (3.0 + steps) ** -decay)


@pytest.mark.parametrize("make, scale, delay", [(TemperedLDA, 2.8, 0.8), (StructuredLDA, 5.0, 0.4)])
@pytest.mark.parametrize("first, second", [(8, 8), (8, 40), (40, 8)])
def test_a_warm_start_counts_passes_where_minibatches_change(make, scale, delay, first, second):
    X = counts(n_rows=80)
    fitted = make(3, batch_size=first, max_iter=3, warm_start=True, random_state=0).fit(X)
    found = fitted.set_params(batch_size=second, max_iter=2).fit(X).history_["learning_rate"][3:]
    n_batches = 80 // second
    # These are the last steps of the two passes.
    passes = np.array([4.0, 5.0]) - 1.0 / n_batches
    expected = np.minimum(scale / n_batches * (delay + passes) ** -0.7, 1.0)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("make", [TemperedLDA, StructuredLDA])
def test_a_stream_begins_as_with_an_offset_of_64(make):
    settings = {"n_components": 3, "random_state": 0}
    expected = make(learning_offset=64.0, **settings).partial_fit(counts())
    found = make(**settings).partial_fit(counts())
    np.testing.assert_array_equal(found.components_, expected.components_)


@pytest.mark.parametrize(
    "n_topics, n_words", [(10, 300), pytest.param(10, 1000, marks=pytest.mark.slow)]
)
def test_a_short_stream_of_known_length_ends_cool_and_as_good_as_without_heat(n_topics, n_words):
    X = make_topic_corpus(2500, n_components=n_topics, n_features=n_words, random_state=0).X
    scores = []
    for temperature in (None, "annealed"):
        stream = TemperedLDA(n_topics, temperature=temperature, total_samples=2000, random_state=0)
        temperatures = []
        for start in range(0, 2000, 100):
            temperatures.append(stream.partial_fit(X[start : start + 100]).temperature_)
        scores.append(stream.score(X[2000:]))
    assert temperatures == stream.history_["temperature"] and temperatures[0] > 1.0
    assert temperatures[10:] == [1.0] * 10
    assert scores[1] > scores[0] - 0.02


def test_a_stream_that_ends_early_says_how_hot_it_is():
    stream = TemperedLDA(3, random_state=0)
    assert not hasattr(stream, "temperature_")
    # This is the middle of the first of 64 steps from 1.5 to 1.
    assert stream.partial_fit(counts()).temperature_ == pytest.approx(1.5 - 0.5 * 0.5 / 64)
    assert stream.fit(counts()).temperature_ == 1.0


# --------------------------------------------------------------------------- text for counts
TEXTS = ["a b c", "b c d", "c d e"]


@pytest.mark.parametrize(
    "X",
    [
        TEXTS, TEXTS[0], [text.encode() for text in TEXTS], [text.split() for text in TEXTS],
        [["a"], ["b", "c"]], np.array(TEXTS), np.array(TEXTS, dtype=object), pd.Series(TEXTS),
        pd.Series(TEXTS, dtype="category"),
        pd.DataFrame({"text": TEXTS, "likes": [1.0, 2.0, 3.0]}), pl.Series(TEXTS),
        pl.DataFrame({"text": TEXTS}),
    ],
    ids=lambda X: f"{type(X).__module__}.{type(X).__name__}",
)  # fmt: skip
def test_text_is_refused_with_the_name_of_what_counts_its_words(X):
    with pytest.raises(
        ValueError, match=r"^TemperedLDA takes numbers, but X has text, .*CountVectorizer"
    ):
        TemperedLDA(2).fit(X)


def test_every_method_refuses_text(corpus):
    lda = TemperedLDA(2, max_iter=1, random_state=0).fit(corpus)
    for method in (lda.partial_fit, lda.transform, lda.score, lda.elbo):
        with pytest.raises(ValueError, match=r"X has text.*CountVectorizer"):
            method(TEXTS)
    # Other errors keep their own messages.
    with pytest.raises(ValueError, match="NaN"):
        lda.transform(np.full_like(corpus, np.nan, dtype=float))
    with pytest.raises(TypeError, match="dict"):
        lda.transform(np.full(corpus.shape, {}, dtype=object))


def test_top_words_are_names_of_columns_or_given_names():
    names = [f"word{n}" for n in range(6)]
    X = np.random.default_rng(0).poisson(2.0, size=(20, 6))
    common = {"max_iter": 1, "random_state": 0}
    plain = TemperedLDA(2, **common).fit(X)
    named = TemperedLDA(2, **common).fit(pd.DataFrame(X, columns=names))
    numbers = plain.top_words(3)
    assert named.top_words(3) == [[names[n] for n in topic] for topic in numbers]
    assert plain.top_words(3, names) == named.top_words(3)
    pipeline = make_pipeline(CountVectorizer(token_pattern="."), TemperedLDA(2, **common))
    pipeline.fit(["ab", "bc", "cd"])
    words = pipeline[-1].top_words(2, list("abcd"))
    assert top_words(pipeline, 2) == words
    assert top_words(pipeline, 2, list("wxyz")) == pipeline[-1].top_words(2, list("wxyz"))
    with pytest.raises(ValueError, match="CountVectorizer has no attribute components_"):
        top_words(pipeline[0])


# ----------------------------------------------------------------- parameters amid a stream
def test_a_stream_takes_on_changed_parameters_of_the_model(corpus):
    stream = TemperedLDA(3, doc_topic_prior=0.5, random_state=0).partial_fit(corpus)
    other = pickle.loads(pickle.dumps(stream))
    stream.set_params(doc_topic_prior=[0.1, 0.2, 0.3], max_doc_update_iter=1).partial_fit(corpus)
    other.partial_fit(corpus)
    np.testing.assert_array_equal(stream.doc_topic_prior_, [0.1, 0.2, 0.3])
    assert stream._fitted.model.max_doc_update_iter == 1
    assert not np.array_equal(stream.components_, other.components_)
    # The copy keeps its own parameters.
    assert other.doc_topic_prior_ == 0.5


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"n_components": 4}, r"partial_fit continues .*n_components=3\. Got n_components=4"),
        ({"doc_topic_prior": -1.0}, r"'doc_topic_prior' parameter .* Got -1.0"),
        ({"topic_word_prior": [1.0, 2.0]}, r"'topic_word_prior' parameter .*shape \(2,\)"),
    ],
    ids=str,
)
def test_a_stream_refuses_what_is_illegal_or_cannot_change(corpus, changed, message):
    stream = TemperedLDA(3, random_state=0).partial_fit(corpus)
    before = stream.get_params()
    with refused(stream.set_params(**changed), match=message):
        stream.partial_fit(corpus)
    # With the parameters of before, it goes on.
    assert stream.set_params(**before).partial_fit(corpus).n_iter_ == 2
