"""Tables of topics have shares, words, rows and names, and shares by group."""

from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from estimators._registry import every_class_of_topic_models
from scipy.stats import binom, norm
from scipy.stats import t as student_t
from sklearn.base import BaseEstimator
from sklearn.decomposition import NMF, LatentDirichletAllocation
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline

from skvt import (
    MemoizedHDP,
    StructuredGaPNMF,
    TemperedLDA,
    covariate_effects,
    load,
    save,
    seeded_prior,
    top_words,
    topic_shares,
    topic_table,
)
from skvt.callbacks import Checkpoint
from skvt.io import FileError
from skvt.metrics import document_completion_score
from skvt.plotting import topic_explorer

TEXTS = ["cat cat mouse the", "mouse cat the", "sun rain the the", "rain rain sun the"] * 20


class Given(BaseEstimator):
    """A topic model with topics and proportions as they are given."""

    def __init__(self, components, proportions):
        self.components_, self._proportions = np.array(components), np.array(proportions)

    def fit(self, X):
        return self

    def transform(self, X):
        return self._proportions


def test_relevance_is_that_of_the_paper_and_prefers_words_of_few_topics():
    model = Given([[5.0, 4.0, 1.0, 0.0], [5.0, 0.0, 1.0, 4.0]], np.eye(2))
    assert top_words(model, 3) == [[0, 1, 2], [0, 3, 2]]
    phi, p = model.components_ / 10.0, model.components_.sum(axis=0) / 20.0
    with np.errstate(divide="ignore"):
        expected = 0.6 * np.log(phi) + 0.4 * np.log(phi / p)
    order = np.argsort(-expected, axis=1, kind="stable")[:, :3]
    assert top_words(model, 3, by="relevance") == order.tolist() == [[1, 0, 2], [3, 0, 2]]
    with pytest.raises(ValueError, match=r"'probability', 'relevance'\. Got 'lift'"):
        top_words(model, by="lift")


def test_a_table_has_shares_words_rows_and_flags_rows_without_words():
    X = np.array([[4, 0, 0], [0, 0, 0], [1, 1, 0], [0, 2, 0]])
    model = Given(
        [[3, 1, 0], [0, 4, 0], [0, 0, 0]], [[1, 0, 0], [1 / 3] * 3, [0.5, 0.5, 0], [0, 1, 0]]
    )
    with pytest.warns(UserWarning, match=r"1 of 4 rows have no words .*\(rows 1\)"):
        table = topic_table(model, sp.csr_array(X), ["a", "b", "c"], texts="wxyz", n_rows=2)
    assert table.attrs["rows_without_words"] == [1]
    np.testing.assert_allclose(table["share"], [5 / 8, 3 / 8, 0.0])
    assert table["n_rows"].tolist() == [2, 1, 0]
    assert table["words"].tolist() == ["a, b", "b", ""]
    assert table["rows"].tolist() == [[0, 2], [3, 2], []]
    assert table["texts"].tolist() == [["w", "y"], ["z", "y"], []]
    assert table["label"].tolist() == ["a, b", "b", "no words"]


@pytest.mark.parametrize(
    "model",
    [
        TemperedLDA(2, random_state=0), StructuredGaPNMF(2, max_iter=30, random_state=0),
        LatentDirichletAllocation(2, random_state=0), NMF(2, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)  # fmt: skip
def test_shares_of_topics_of_any_library_are_shares_of_words(model):
    pipeline = make_pipeline(CountVectorizer(stop_words=["the"]), model).fit(TEXTS)
    table = topic_table(pipeline, TEXTS, n_words=2)
    assert table["share"].sum() == pytest.approx(1.0)
    assert {frozenset(words.split(", ")) for words in table["words"]} == {
        frozenset({"cat", "mouse"}), frozenset({"sun", "rain"}),
    }  # fmt: skip
    assert table["share"].tolist() == pytest.approx([0.5, 0.5], abs=0.1)
    for texts, words in zip(table["texts"], table["words"], strict=True):
        assert all(set(words.split(", ")) & set(text.split()) for text in texts)


def test_shares_by_group_have_intervals_of_a_ratio():
    rng = np.random.default_rng(0)
    theta, lengths = rng.dirichlet([1.0, 2.0], 400), rng.poisson(60, 400)
    # The topics have no common words, so that the words are those of topics.
    topics = np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
    X = np.array([rng.multinomial(*pair) for pair in zip(lengths, theta @ topics, strict=True)])
    groups = pd.Series(np.where(np.arange(400) % 4, "b", "a"), dtype=object)
    groups[7] = None
    table = topic_shares(Given(topics, theta), X, groups)
    assert table["group"].tolist() == ["a", "a", "b", "b"] and set(table["n_rows"]) == {100, 299}
    rows = np.flatnonzero(groups == "b")
    first, lengths = X[rows, 0], X[rows].sum(axis=1)
    share = first.sum() / lengths.sum()
    # The prior counts as one word.
    np.testing.assert_allclose(table["share"][2:], [share, 1.0 - share], atol=1.0 / lengths.sum())
    # The bootstrap draws rows. Its standard error has a relative error of 0.8 %.
    draws = rng.integers(rows.size, size=(8_000, rows.size))
    error = (first[draws].sum(axis=1) / lengths[draws].sum(axis=1)).std()
    width = table["high"][2] - table["low"][2]
    assert width == pytest.approx(2.0 * norm.ppf(0.975) * error, rel=0.05)
    assert table["low"][2] < share < table["high"][2]
    alone = topic_shares(Given(topics, theta), X, np.arange(400))
    assert alone["low"].isna().all()
    # Topics that cannot be told apart may have any share.
    unknown = topic_shares(Given(np.ones((2, 3)), theta), X, groups)
    assert (unknown["high"] - unknown["low"] > 0.9).all()


@pytest.mark.quick_cases("10")
@pytest.mark.parametrize("n_words", [10, 200])
def test_intervals_of_shares_cover_the_truth_at_any_length(n_words):
    """The mean of the group is not that of the corpus, and topics are known."""
    rng = np.random.default_rng(n_words)
    topics, concentration = rng.dirichlet(np.full(60, 0.1), size=3), np.array([0.9, 0.3, 0.3])
    model = Given(topics, np.full((100, 3), 1.0 / 3.0))
    covered, shares = [], []
    for _ in range(200):
        theta = rng.dirichlet(concentration, size=100)
        lengths = rng.poisson(n_words, size=100) + 1
        X = np.array([rng.multinomial(*own) for own in zip(lengths, theta @ topics, strict=True)])
        table = topic_shares(model, X, np.zeros(100))
        shares.append(table["share"])
        covered.append(table["low"].lt([0.6, 0.2, 0.2]) & table["high"].gt([0.6, 0.2, 0.2]))
    # The number of intervals that cover the first topic is binomial.
    low, high = binom.ppf([0.001, 0.999], 200, 0.95)
    assert low <= np.sum(covered, axis=0)[0] <= high
    error = 4.5 * np.std(shares, axis=0) / np.sqrt(200)
    np.testing.assert_allclose(np.mean(shares, axis=0), [0.6, 0.2, 0.2], atol=error.max() + 0.002)


@pytest.mark.quick_cases("20")
@pytest.mark.parametrize("n_rows", [5, 20, 100, 400])
def test_intervals_of_shares_cover_topics_that_few_rows_have(n_rows):
    """Each row has one topic, so that its words are all of one kind."""
    rng = np.random.default_rng(n_rows)
    truth = np.array([0.0, 0.002, 0.01, 0.05, 0.3, 0.638])
    model = Given(np.eye(6), np.full((n_rows, 6), 1.0 / 6.0))
    tables = []
    for _ in range(200):
        topics = rng.choice(6, p=truth, size=n_rows)
        tables.append(topic_shares(model, 50.0 * np.eye(6)[topics], np.zeros(n_rows)))
    low, high = (np.array([table[name] for table in tables]) for name in ("low", "high"))
    assert (low >= 0.0).all() and (high <= 1.0).all() and (low[:, 0] == 0.0).all()
    covered = (low <= truth) & (truth <= high)
    # The number of intervals that cover a share is binomial.
    assert covered[:, 1:].sum(axis=0).min() >= binom.ppf(0.001, 200, 0.95)
    # The end of the interval that Wilson derives for 0 of n rows. The prior counts as one word.
    squared = student_t.ppf(0.975, n_rows - 1) ** 2
    assert high[:, 0].max() <= squared / (n_rows + squared) + 1.0 / (50.0 * n_rows)


@every_class_of_topic_models
def test_labels_reach_outputs_files_and_follow_their_topics(entry, tmp_path):
    model = entry.make().fit(entry.data())
    assert model.topic_labels_ is None
    numbers = model.get_feature_names_out()
    names = [f"name {k}" for k in range(len(numbers))]
    model.topic_labels_ = names
    assert model.get_feature_names_out().tolist() == names
    save(model, tmp_path / "model.skvt")
    assert load(tmp_path / "model.skvt").topic_labels_ == names
    for wrong in (5, names[1:], "x" * len(names), {len(names): "x"}, {-1: "x"}, {0: 1}, {"0": 1}):
        with pytest.raises(ValueError, match=f"must be {len(names)} strings, .* or a dict"):
            model.topic_labels_ = wrong
    assert model.topic_labels_ == names
    model.partial_fit(entry.data())
    kept = set(model.topic_labels_) & set(names)
    assert len(kept) == len(names) or isinstance(model, MemoizedHDP)
    model.fit(entry.data())
    assert model.topic_labels_ is None


@every_class_of_topic_models
def test_some_topics_may_have_labels_and_several_the_same(entry):
    X = entry.data()
    model = entry.make().fit(X)
    model.topic_labels_ = {np.int64(0): "Germany"}
    number = len(model.components_)
    assert model.topic_labels_ == ["Germany", *(f"topic {k}" for k in range(1, number))]
    assert topic_table(model, X)["label"].tolist() == model.topic_labels_
    stem = type(model).__name__.lower()
    names = ["Germany", *(f"{stem}{k}" for k in range(1, number))]
    assert model.get_feature_names_out().tolist() == names
    model.set_words([f"word{j}" for j in range(X.shape[1])])
    first = [", ".join(words) for words in model.top_words(3, by="relevance")]
    assert model.topic_labels_ == ["Germany", *first[1:]]
    model.topic_labels_ = ["same"] * number
    assert topic_table(model, X)["label"].tolist() == ["same"] * number
    table = model.set_output(transform="polars").transform(X)
    assert table.columns == [f"same {k}" for k in range(number)]
    del model.topic_labels_
    assert model.topic_labels_ is None
    assert topic_table(model, X)["label"].tolist() == first
    assert model.get_feature_names_out().tolist() == [f"{stem}{k}" for k in range(number)]


def test_names_of_outputs_differ_and_a_merged_topic_has_the_first_label_of_its_topics():
    model = TemperedLDA(4, max_iter=1, random_state=0).fit(np.eye(4))
    model.topic_labels_ = ["a", "a", "a 0", "b"]
    assert len(set(model.get_feature_names_out())) == 4
    model.topic_labels_ = {1: "one", 2: "two"}
    model.merge_topics([[0, 2, 1]])
    assert model.topic_labels_ == ["one", "topic 1"]


@every_class_of_topic_models
def test_words_are_kept_wherever_the_model_goes(entry, tmp_path):
    X = entry.data()
    model = entry.make().fit(X)
    assert not hasattr(model, "words_")
    with pytest.raises(AttributeError, match=r"set_words\(names\)"):
        model.words_  # noqa: B018
    names = [f"word{j}" for j in range(X.shape[1])]
    expected = top_words(model, 3, names)
    assert model.set_words(pd.Index(names)) is model
    assert model.words_.tolist() == names
    model.words_[0] = "changed"
    assert model.top_words(3) == top_words(model, 3) == expected
    assert top_words(model, 3, list(map(str.upper, names)))[0][0] == expected[0][0].upper()
    table = topic_table(model, X, n_words=3)
    assert table["words"].tolist() == [", ".join(words) for words in expected]
    label = ", ".join(model.top_words(3, by="relevance")[0])
    assert topic_shares(model, X, np.zeros(X.shape[0]))["label"][0] == table["label"][0] == label
    save(model, tmp_path / "model.skvt")
    model = load(tmp_path / "model.skvt")
    model.partial_fit(X).merge_topics([[0, 1]])
    assert model.words_.tolist() == names
    assert model.set_params(warm_start=True, max_iter=1).fit(X).words_.tolist() == names
    assert not hasattr(model.set_params(warm_start=False).fit(X), "words_")


def test_words_of_data_frames_are_known_and_names_set_come_first():
    X = pd.DataFrame(np.eye(3), columns=["a", "b", "c"])
    model = TemperedLDA(2, max_iter=1, random_state=0).fit(X)
    assert model.words_.tolist() == ["a", "b", "c"]
    model.set_words(["x", "y", "z"])
    assert set(model.top_words(3)[0]) == {"x", "y", "z"}
    model.partial_fit(X)
    assert model.words_.tolist() == ["x", "y", "z"]
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]


def test_an_interrupted_fit_that_is_resumed_keeps_words_and_labels(tmp_path):
    path = tmp_path / "model.skvt"
    model = TemperedLDA(2, temperature=None, max_iter=2, tol=0.0, random_state=0)
    model.set_callbacks(Checkpoint(path)).fit(np.eye(3))
    begun = load(path).set_params(max_iter=3).set_words(["a", "b", "c"])
    begun.topic_labels_ = {1: "Germany"}
    resumed = begun.resume(np.eye(3))
    assert resumed.n_iter_ == 3 and resumed.words_.tolist() == ["a", "b", "c"]
    assert resumed.topic_labels_[1] == "Germany"


@pytest.mark.parametrize("words", [["a", "b"], ["a", "b", 3], [["a", "b", "c"]]])
def test_files_refuse_words_that_are_not_one_for_each_column(words, tmp_path):
    model = TemperedLDA(2, max_iter=1, random_state=0).fit(np.eye(3))
    model._fitted = replace(model._fitted, words=np.array(words, dtype=object))
    with pytest.raises(FileError, match="names of the 3 columns"):
        save(model, tmp_path / "model.skvt")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["a", "b"], r"must be 3 strings, .* shape \(2,\)"),
        ("abc", r"must be 3 strings, .* shape \(\)"),
        ([["a", "b", "c"]], r"must be 3 strings, .* shape \(1, 3\)"),
        (["a", 1, "c"], r"must be strings, .* Got 1"),
        ({}, r"for each of the 3 columns .* 0 entries and none for column 0\. .*Dictionary"),
        ({0: "a", 1: "b", 3: "c"}, "3 entries and none for column 2"),
        ({"a": 0, "b": 1, "c": 2, "d": 3}, r"4 entries\. "),
        ({"a": 0, "b": 1, "c": 1}, "3 entries and none for column 2"),
        ({"a": "x", "b": 1, "c": 2}, "none for column 0"),
        ({0: 5, 1: "b", 2: "c"}, r"must be strings, .* Got 5"),
        (["a", "b", "a"], r"must be distinct. Got 'a' 2 times; .*var_names_make_unique"),
    ],
)
def test_words_must_be_a_string_for_each_column(names, said):
    model = TemperedLDA(2, max_iter=1, random_state=0)
    with pytest.raises(NotFittedError):
        model.set_words(["a", "b", "c"])
    model.fit(np.eye(3)).set_words(["d", "e", "f"])
    with pytest.raises(ValueError, match=said):
        model.set_words(names)
    assert model.words_.tolist() == ["d", "e", "f"]


@pytest.mark.parametrize(
    "names",
    [{2: "c", 0: "a", 1: "b"}, {"c": np.int64(2), "a": np.int64(0), "b": np.int64(1)},
     # The Dictionary of gensim is a mapping from numbers to words, but no dict.
     MappingProxyType({0: "a", 1: "b", 2: "c"})],
)  # fmt: skip
def test_words_may_be_a_mapping(names):
    model, words = TemperedLDA(2, max_iter=1, random_state=0).fit(np.eye(3)), ["a", "b", "c"]
    assert model.set_words(names).words_.tolist() == words
    assert top_words(model, 3, names) == top_words(model, 3, words)
    priors = (seeded_prior([["b"], ["c"]], given, 2) for given in (names, words))
    np.testing.assert_array_equal(*priors)


@pytest.mark.parametrize("bags", [[[(0, 2), (1, 1)], [(2, 1)]], [[], [(0, 1)]], [[(0, 1.5)]]])
def test_bags_of_words_are_refused_with_the_remedy(bags):
    X = np.eye(3)
    model = TemperedLDA(2, max_iter=1, random_state=0)
    said = r"list of bags .* such as \(0, .*gensim\.matutils\.corpus2csc\(.*\)\.T"
    with pytest.raises(ValueError, match=said):
        model.fit(bags)
    model.fit(X)
    for call in (model.transform, model.score, lambda X: topic_table(model, X)):
        with pytest.raises(ValueError, match=said):
            call(bags)
    with pytest.raises(ValueError, match=said):
        document_completion_score(model.components_, bags, doc_topic_prior=0.5)


@pytest.mark.parametrize("call", [topic_table, lambda *args: covariate_effects(*args, range(3))])
def test_arrays_are_refused_as_models_and_not_printed(call):
    said = r"^A fitted estimator.* of type ndarray\. It has no method 'fit'\. .*components_init"
    with pytest.raises(TypeError, match=said):
        call(np.eye(3), np.eye(3))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (pd.Series({2: "two", 0: "none"}), ["none", "topic 1", "two"]),
        (pd.Series(["c", "b", "a"], index=[2, 1, 0]), ["a", "b", "c"]),
    ],
)
def test_labels_in_a_series_belong_to_its_index(labels, expected):
    model = TemperedLDA(3, max_iter=1, random_state=0).fit(np.eye(4))
    model.topic_labels_ = labels
    for wrong in (pd.Series(["a", "b"], index=[0, 0]), pd.Series({"a": "b"})):
        with pytest.raises(ValueError, match="must be 3 strings"):
            model.topic_labels_ = wrong
    assert model.topic_labels_ == expected


def test_a_label_in_a_pipeline_leaves_the_words_of_the_pipeline_to_the_others():
    pipeline = make_pipeline(CountVectorizer(stop_words=["the"]), NMF(2, random_state=0)).fit(TEXTS)
    first = topic_table(pipeline, TEXTS)["label"].tolist()
    pipeline[-1].topic_labels_ = {0: "Germany"}
    assert topic_table(pipeline, TEXTS)["label"].tolist() == ["Germany", first[1]]


def test_labels_stay_with_topics_that_are_merged_and_dropped():
    X = np.kron(np.eye(4), np.full((10, 3), 5.0))
    model = MemoizedHDP(max_components=5, n_polish=0, random_state=0).fit(X)
    words = [topic[0] // 3 for topic in model.top_words(1)]
    assert sorted(words) == [0, 1, 2, 3]
    model.topic_labels_ = [f"block {word}" for word in words]
    model.drop_topics([1])
    assert model.topic_labels_ == [f"block {topic[0] // 3}" for topic in model.top_words(1)]


@pytest.mark.parametrize(
    ("groups", "order"),
    [
        (pd.array([7, pd.NA, 5, 7], dtype="Int64"), [5, 7]),
        (pd.Series(["b", "a", None, "b"], dtype="string"), ["a", "b"]),
        (pd.Categorical(["low", "high", "mid", None], ["low", "mid", "high", "top"], ordered=True),
         ["low", "mid", "high"]),
        (pl.Series(["low", "high", "mid", None], dtype=pl.Enum(["low", "mid", "high", "top"])),
         ["low", "mid", "high"]),
        (pd.Series(["low", "high", None, "mid"], dtype="category"), ["high", "low", "mid"]),
    ],
    ids=["integers with NA", "strings with NA", "pandas ordered", "polars Enum", "unordered"],
)  # fmt: skip
def test_groups_may_be_missing_and_keep_a_declared_order(groups, order):
    X, theta = np.ones((4, 3)), np.full((4, 1), 1.0)
    table = topic_shares(Given(np.ones((1, 3)), theta), X, groups)
    assert table["group"].tolist() == order and table["n_rows"].sum() == 3


YEARS, PARTIES = [2002, 2001, 2002, 2001, 2002, 2001], ["b", "b", "a", "b", None, "a"]
PANDAS = pd.DataFrame({"year": YEARS, "party": pd.Categorical(PARTIES, ["b", "a"], ordered=True)})


@pytest.mark.parametrize(
    ("groups", "columns", "parties"),
    [
        (PANDAS, ["year", "party"], "ba"),
        (pl.DataFrame({"year": YEARS, "party": pl.Series(PARTIES, dtype=pl.Enum(["b", "a"]))}),
         ["year", "party"], "ba"),
        (pl.DataFrame({"year": YEARS, "party": PARTIES}), ["year", "party"], "ab"),
        (np.array([YEARS, PARTIES], dtype=object).T, ["group_0", "group_1"], "ab"),
    ],
    ids=["pandas", "polars", "polars text", "array"],
)  # fmt: skip
def test_groups_of_several_columns_are_the_combinations_of_their_values(groups, columns, parties):
    X, theta = np.ones((6, 3)), np.full((6, 2), 0.5)
    model = Given(np.ones((2, 3)), theta)
    table = topic_shares(model, X, groups)
    assert table.columns.tolist() == [
        *columns, "topic", "label", "share", "low", "high", "n_rows",
    ]  # fmt: skip
    expected = [(year, party) for year in (2001, 2002) for party in parties]
    assert list(zip(*(table[name][::2] for name in columns), strict=True)) == expected
    rows = {(2001, "b"): 2, (2001, "a"): 1, (2002, "b"): 1, (2002, "a"): 1}
    assert table["n_rows"][::2].tolist() == [rows[group] for group in expected]
    # A call for the rows of a group alone has the same shares.
    alone = topic_shares(model, X, [7 if y == 2001 and p == "b" else None
                                    for y, p in zip(YEARS, PARTIES, strict=True)])  # fmt: skip
    of_both = table[(table[columns[0]] == 2001) & (table[columns[1]] == "b")]
    np.testing.assert_array_equal(of_both[["share", "low"]], alone[["share", "low"]])


def test_groups_of_columns_are_validated_and_one_column_keeps_its_name():
    X, model = np.ones((6, 3)), Given(np.ones((1, 3)), np.full((6, 1), 1.0))
    assert topic_shares(model, X, PANDAS[["party"]])["party"].tolist() == ["b", "a"]
    for groups, message in (
        ("year", r"groups must have a value .* Got the string 'year'"),
        (PANDAS["year"][1:], "groups has 5 values, but X has 6 rows"),
        (PANDAS[1:], "groups has 5 values, but X has 6 rows"),
        (PANDAS.rename(columns={"year": "share"}), "Got 'share'; rename it"),
    ):
        with pytest.raises(ValueError, match=message):
            topic_shares(model, X, groups)


def test_texts_groups_and_covariates_whose_indexes_have_other_orders_are_refused(tmp_path):
    texts = pd.Series(TEXTS, index=np.arange(80) + 5)
    pipeline = make_pipeline(CountVectorizer(), TemperedLDA(2, max_iter=1)).fit(texts)
    table = pd.DataFrame({"year": np.arange(80) % 4}, index=texts.index[::-1])
    said = "index of {} .* 84, and that of X is 5"
    path = tmp_path / "page.html"
    for groups in (table, table["year"]):
        with pytest.raises(ValueError, match=said.format("groups")):
            topic_shares(pipeline, texts, groups)
        with pytest.raises(ValueError, match=said.format("groups")):
            topic_explorer(pipeline, texts, path=path, groups=groups)
    counts = pd.DataFrame(pipeline[:-1].transform(texts).toarray(), index=texts.index)
    model = TemperedLDA(2, max_iter=1).fit(counts, covariates=table.loc[texts.index])
    for call in (model.fit, model.partial_fit, model.transform, model.score):
        with pytest.raises(ValueError, match=said.format("covariates")):
            call(counts, covariates=table)
    with pytest.raises(ValueError, match=said.format("covariates")):
        topic_table(model, counts, covariates=table)
    assert len(topic_shares(pipeline, texts, table.loc[texts.index])) == 8
