"""Users merge and drop topics of a fitted model."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from skvt import MemoizedHDP, StructuredLDA, TemperedLDA
from skvt.datasets import make_topic_corpus

X = make_topic_corpus(300, n_components=5, n_features=80, mean_length=40.0, random_state=0).X
GIVEN = np.random.default_rng(0).uniform(0.1, 0.5, (5, 80))
ALPHA = [0.1, 0.2, 0.3, 0.4, 0.5]
QUICK = {"max_iter": 3, "moves": (), "random_state": 0}

# For each edit, the groups of topics of before that are the topics afterwards.
EDITS = {
    "merge": (lambda model: model.merge_topics([[4, 1], [3, 2]]), [[0], [1, 4], [2, 3]]),
    "merge three": (lambda model: model.merge_topics(np.array([[4, 0, 2]])), [[0, 2, 4], [1], [3]]),
    "drop": (lambda model: model.drop_topics([0, 3]), [[1], [2], [4]]),
}
each_edit = pytest.mark.parametrize("edit, groups", EDITS.values(), ids=EDITS)
each_lda = pytest.mark.parametrize("make", [TemperedLDA, StructuredLDA])


@each_lda
@each_edit
@pytest.mark.parametrize("eta", [None, GIVEN], ids=["one prior", "own"])
def test_topics_of_a_group_add_up(make, edit, groups, eta):
    start = np.random.default_rng(1).uniform(size=(5, 80))
    model = make(5, doc_topic_prior=ALPHA, topic_word_prior=eta, components_init=start, **QUICK)
    model.fit(X)
    before, prior = model.components_, np.broadcast_to(0.2 if eta is None else eta, (5, 80))
    assert edit(model) is model
    together = np.stack([prior[group].max(axis=0) for group in groups])
    counts = np.stack([(before - prior)[group].sum(axis=0) for group in groups])
    np.testing.assert_allclose(model.components_, together + counts, rtol=1e-9, atol=1e-9)
    alpha = [sum(ALPHA[k] for k in group) for group in groups]
    for name, value in (("doc_topic_prior", alpha), ("topic_word_prior", together)):
        for published in (getattr(model, name), getattr(model, name + "_")):
            np.testing.assert_allclose(np.broadcast_to(published, np.shape(value)), value)
    assert model.n_components == len(groups) == model.posterior_.mean().shape[0]
    assert len(model.history_["elbo"]) == model.n_iter_ == 3
    with pytest.raises(AttributeError, match=r"after partial_fit, merge_topics and drop_topics.*"):
        model.elbo_  # noqa: B018
    # The model goes on with its present parameters.
    bound = model.elbo(X)
    model.set_params(max_doc_update_iter=99, evaluate_every=1, warm_start=True)
    other = pickle.loads(pickle.dumps(model)).partial_fit(X[:50])
    assert other.components_.shape == (3, 80) and other.n_iter_ == 4
    np.testing.assert_allclose(other.doc_topic_prior_, alpha)
    assert model.fit(X).elbo_ > bound
    np.testing.assert_allclose(model.doc_topic_prior_, alpha)


def test_a_bound_after_an_edit_is_that_of_the_model_that_results():
    # Two parts of a topic, with parts of its prior, are the whole.
    given = QUICK | {"topic_word_prior": 1 / 3}
    whole = TemperedLDA(3, doc_topic_prior=[0.2, 0.6, 0.4], **given).fit(X)
    model = TemperedLDA(4, doc_topic_prior=[0.2, 0.3, 0.4, 0.3], **given)
    model.set_params(components_init=whole.components_[[0, 1, 2, 1]]).fit(X)
    S = whole.components_ - 1 / 3
    (array,) = model._fitted.state.stats.arrays
    array[:] = (S[[0, 1, 2, 1]] * [[1.0], [0.3], [1.0], [0.7]]).T / model._fitted.state.stats.scale
    model._fitted.state.stats.resum()
    model._fitted = replace(model._fitted)
    model.merge_topics([[1, 3]])
    assert model.elbo(X) == pytest.approx(whole.elbo_, rel=1e-9)
    np.testing.assert_allclose(model.transform(X), whole.transform(X), rtol=1e-9)


def test_a_learned_prior_of_documents_is_learned_of_those_to_come():
    model = TemperedLDA(5, doc_topic_prior="auto", topic_word_prior="auto", **QUICK).fit(X)
    alpha, eta = model.doc_topic_prior_, model.topic_word_prior_
    model.merge_topics([[1, 3]])
    merged = np.delete(alpha, 3)
    merged[1] += alpha[3]
    np.testing.assert_allclose(model.doc_topic_prior_, merged)
    assert model.doc_topic_prior == model.topic_word_prior == "auto"
    assert model.topic_word_prior_ == eta
    assert model.partial_fit(X[:50]).doc_topic_prior_.shape == (4,)


# ------------------------------------------------------------- a process, and what it remembers
def counted(model):
    """Expected counts of words in topics, and the total."""
    counts = model.components_ - model.topic_word_prior_
    return counts, counts.sum()


@pytest.fixture(scope="module")
def fitted():
    given = {"topic_word_prior": 0.1, "moves": (), "max_iter": 5, "n_polish": 0}
    model = MemoizedHDP(6, n_batches=3, tol=0.0, **given)
    return pickle.dumps(model.set_params(random_state=0).fit(X))


def test_memos_are_merged_and_streams_go_on(fitted):
    model = pickle.loads(fitted)
    before, ids = counted(model)[0], model.topic_ids_
    model.merge_topics([[5, 4], [2, 1]])
    # The most used topic is one of the new ones, and comes first.
    groups = [[1, 2], [0], [3], [4, 5]]
    assert model.topic_ids_.tolist() == [ids[group[0]] for group in groups]
    expected = [before[group].sum(axis=0) for group in groups]
    np.testing.assert_allclose(counted(model)[0], expected, rtol=1e-6, atol=1e-8)
    weights = model.topic_weights_
    # Each batch takes its own place.
    for key in range(3):
        model.partial_fit(X[100 * key : 100 * key + 100], batch_id=key)
        assert counted(model)[1] == pytest.approx(X.sum(), rel=1e-9)
    # Calls with documents change the weights only a little.
    assert model.topic_ids_.tolist() == [ids[group[0]] for group in groups]
    np.testing.assert_allclose(weights, model.topic_weights_, rtol=0.12)
    assert 0.9 < weights.sum() < 1.0


def test_words_of_dropped_topics_come_back_with_their_documents(fitted):
    model = pickle.loads(fitted)
    before, ids = counted(model)[0], model.topic_ids_
    model.drop_topics([3, 0])
    assert model.topic_ids_.tolist() == ids[[1, 2, 4, 5]].tolist()
    np.testing.assert_allclose(counted(model)[0], before[[1, 2, 4, 5]], rtol=1e-6, atol=1e-8)
    for key in range(3):
        model.partial_fit(X[100 * key : 100 * key + 100], batch_id=key)
    assert counted(model)[1] == pytest.approx(X.sum(), rel=1e-9)


# ------------------------------------------------------------------------------------ errors
@pytest.mark.parametrize("make", [TemperedLDA, StructuredLDA, MemoizedHDP])
def test_edits_that_make_no_sense_are_refused(make):
    model = make(3, max_iter=1, moves=(), random_state=0)
    for edit in (model.merge_topics, model.drop_topics):
        with pytest.raises(NotFittedError):
            edit([[0]])
    model.partial_fit(X)
    before = dict(vars(model))
    for edit, topics, message in (
        (model.merge_topics, [[0, 3]], r"\[0, number of topics\) = \[0, 3\)\. Got 3"),
        (model.merge_topics, [[0, 1], [1, 2]], "Got topic 1 more than once"),
        (model.merge_topics, [[2, 2]], "Got topic 2 more than once"),
        (model.merge_topics, [0, 1], r"such as \[\[0, 3\], \[1, 4\]\]\. Got 0"),
        (model.drop_topics, [-1], "Got -1"),
        (model.drop_topics, [1, 1], "once"),
        (model.drop_topics, [0, 1, 2], "must leave at least one topic. Got all 3"),
        (model.drop_topics, [True, False, False], "np.flatnonzero"),
    ):
        with pytest.raises(ValueError, match=message):
            edit(topics)
        assert vars(model) == before
    assert model.merge_topics([[1]]).drop_topics([]) is model and vars(model) == before


def test_the_default_prior_of_short_documents_survives_an_edit():
    # Each document has two tokens.
    X = np.eye(8)[np.arange(40) % 8] + np.eye(8)[np.arange(40) // 2 % 8]
    lda = TemperedLDA(4, max_iter=2, random_state=0).fit(X)
    assert lda.doc_topic_prior_ == 0.5
    lda.merge_topics([[0, 2]]).partial_fit(X)
    assert lda.doc_topic_prior_.tolist() == [1.0, 0.5, 0.5]
