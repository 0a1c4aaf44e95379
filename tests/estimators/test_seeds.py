"""Topics begin with words of the user, at the places where the user put them."""

import numpy as np
import pytest

from skvt import StructuredLDA, TemperedLDA, seeded_prior
from skvt.datasets import make_topic_corpus

DRAWN = make_topic_corpus(400, n_components=6, n_features=200, mean_length=50.0, random_state=0)
NAMES = np.array([f"word{v}" for v in range(200)])


def typical(topic, n_words=3):
    """The most probable words of a topic of the truth."""
    return NAMES[np.argsort(-DRAWN.topics[topic])[:n_words]].tolist()


def nearest(components):
    """For each topic of the truth, the one of the components that is most like it."""
    found = components / components.sum(axis=1, keepdims=True)
    return np.abs(found[:, None] - DRAWN.topics).sum(axis=2).argmin(axis=0)


def in_calls(estimator):
    for start in range(0, 400, 50):
        estimator.partial_fit(DRAWN.X[start : start + 50])
    return estimator


CALLS = {
    "fit": lambda prior: TemperedLDA(6, topic_word_prior=prior, random_state=1).fit(DRAWN.X),
    "stream": lambda prior: in_calls(TemperedLDA(6, topic_word_prior=prior, random_state=1)),
    "structured": lambda prior: StructuredLDA(
        6, topic_word_prior=prior, max_iter=9, local_step="mean_field", temperature="annealed",
        random_state=1,
    ).fit(DRAWN.X.astype(np.float32)),
    "structured stream": lambda prior: in_calls(
        StructuredLDA(6, topic_word_prior=prior, random_state=1)
    ),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_topics_are_where_their_words_were_put(call):
    seeds = {4: typical(1), 0: typical(3)}
    estimator = CALLS[call](seeded_prior(seeds, NAMES, 6))
    top = estimator.top_words(8, NAMES)
    for place, truth in ((4, 1), (0, 3)):
        assert set(seeds[place]) <= set(top[place])
        # The words that go with them are there, too.
        assert nearest(estimator.components_)[truth] == place


def test_a_seeded_prior_is_base_and_boost():
    names = ["a", "b", "c", "d"]
    prior = seeded_prior([["b"], [], ["b", "d", "b"]], names, 4, base=0.2, boost=3.0)
    expected = np.full((4, 4), 0.2)
    expected[0, 1] = expected[2, 1] = expected[2, 3] = 3.2
    np.testing.assert_allclose(prior, expected)
    same = seeded_prior({2: ("d", "b"), 0: {"b"}}, np.array(names), 4, base=0.2, boost=3.0)
    np.testing.assert_array_equal(same, prior)
    assert seeded_prior({}, names, 4).max() == 0.25


@pytest.mark.parametrize("call", ["fit", "structured", "structured stream"])
def test_topics_do_not_have_words_that_are_excluded(call):
    (word,) = typical(1, 1)
    excluded = {k: [word] for k in range(5)}
    estimator = CALLS[call](seeded_prior({}, NAMES, 6, excluded_words=excluded))
    counts = estimator.components_[:, np.flatnonzero(NAMES == word)[0]]
    assert counts[5] > 100.0 and counts[:5].max() < 0.01


def test_words_that_do_not_occur_are_left_out_with_a_warning():
    names = ["a", "goal"]
    message = r"topic 1 are not in feature_names .*: 'Goal', 'x'\. .*lower case"
    with pytest.warns(UserWarning, match=message):
        prior = seeded_prior({1: ["a", "Goal", "x"]}, names, 2)
    np.testing.assert_array_equal(prior, seeded_prior({1: ["a"]}, names, 2))
    with pytest.warns(UserWarning, match="topic 0"):
        seeded_prior({}, names, 2, excluded_words=[["x"]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"excluded_words": [["a"]]}, r"topic 0 cannot be both .* Got \['a'\]"),
        ({"excluded_words": {3: ["a"]}}, r"excluded_words .* \[0, 3\)\. Got 3"),
        ({"seed_words": {3: ["a"]}}, r"\[0, n_components\) = \[0, 3\)\. Got 3"),
        ({"seed_words": {-1: ["a"]}}, r"Got -1"),
        ({"seed_words": {"a": [0]}}, r"must be integers .* Got 'a'.* topic_labels_"),
        ({"seed_words": ["goal", "a"]}, r"topic 0 .* write \['goal'\]"),
        ({"base": 0.0}, r"base .* \[1e-30, 1e\+30\]\. Got 0\.0"),
        ({"boost": np.nan}, r"boost .* Got nan"),
        ({"boost": [1.0, 2.0]}, r"boost .* Got \[1\.0, 2\.0\]"),
        ({"n_components": 0}, r"n_components .* \[1, inf\)\. Got 0"),
        ({"feature_names": [["a", "goal"]]}, r"feature_names .* \(1, 2\)"),
    ],
)
def test_seeds_that_do_not_fit_are_refused(arguments, message):
    legal = {"seed_words": [["a"]], "feature_names": ["a", "goal"], "n_components": 3}
    with pytest.raises(ValueError, match=message):
        seeded_prior(**(legal | arguments))
