"""The page of topics holds all its data, and a browser shows them."""

import errno
import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from sklearn.decomposition import NMF
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline

from skvt import TemperedLDA
from skvt.plotting import TopicsDisplay, _explorer, save_pyldavis, topic_explorer

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
TEXTS = [
    "cat cat mouse </script><b id='evil'>cat</b>",
    "mouse cat & mouse", "sun rain", "rain rain sun", "!",
] * 12  # fmt: skip


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "topics.html"
    lda = make_pipeline(
        CountVectorizer(stop_words=["script", "id", "evil"]), TemperedLDA(2, random_state=0)
    )
    lda.fit(TEXTS)
    years = [2001, None, 2001, 2002, 2002] * 12
    topic_explorer(lda, TEXTS, None, path, groups=years, n_words=3)
    return lda, path


def embedded(path):
    found = re.findall(
        r'<script id="data" type="application/json">(.*?)</script>', path.read_text()
    )
    assert len(found) == 1
    return json.loads(found[0])


def test_the_page_holds_the_topics_and_loads_nothing(page):
    lda, path = page
    text, data = path.read_text(encoding="utf-8"), embedded(path)
    urls = set(re.findall(r"\w+://[^\s\"')]+", text))
    assert urls == {"http://www.w3.org/2000/svg"}  # This is a name and no address.
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=|url\(|@import", text)
    assert text.count("</script>") == 2 and "<b id" not in text
    assert "12 of them have no words" in data["about"] and "rows 4, 9," in data["about"]
    assert [len(topic["documents"]) for topic in data["topics"]] == [10, 10]
    shown = [document for topic in data["topics"] for document in topic["documents"]]
    assert all(text == TEXTS[row] for row, _, text in shown)
    assert [group["name"] for group in data["groups"]] == ["2001", "2002"]
    assert [group["n_rows"] for group in data["groups"]] == [24, 12]
    assert sum(topic["share"] for topic in data["topics"]) == pytest.approx(1.0)
    components = lda[-1].components_ / lda[-1].components_.sum(axis=1, keepdims=True)
    names = lda[0].get_feature_names_out()
    for k, topic in enumerate(data["topics"]):
        chances = {data["words"][word][0]: p for word, p in topic["words"]}
        expected = {name: components[k, list(names).index(name)] for name in chances}
        assert chances == pytest.approx(expected, rel=1e-3)


def test_topics_and_documents_without_words_are_listed(tmp_path):
    X = np.random.default_rng(0).poisson(2.0, (8, 5))
    nmf = NMF(3, random_state=0).fit(X)
    nmf.components_[1] = 0.0
    X[4] = 0.0
    topic_explorer(nmf, X, list("abcde"), tmp_path / "nmf.html")
    data = embedded(tmp_path / "nmf.html")
    assert data["about"].endswith(" 1 of them has no words and belongs to no topic: row 4.")
    topics = data["topics"]
    assert [topic["place"] is None for topic in topics] == [False, True, False]
    assert topics[1]["words"] == topics[1]["documents"] == [] and topics[1]["label"] == "no words"


def test_a_page_is_written_as_a_whole_or_not_at_all(page, tmp_path, monkeypatch):
    lda, path = page[0], tmp_path / "topics.html"
    path.write_text("the page before")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        topic_explorer(lda, TEXTS, None, path)
    assert path.read_text() == "the page before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node.js")
@pytest.mark.parametrize(
    ("wanted", "shown"),
    [("documents", "documents"), ("constructor", "words"), ("none", "words"), ("", "words")],
)
def test_an_address_opens_an_existing_tab(wanted, shown, page):
    script = page[1].read_text(encoding="utf-8").split("<script>")[1]
    (line,) = [line for line in script.splitlines() if line.startswith("open(")]
    script = f"""
        const tabs = {{words: "Words", documents: "Documents"}}, keys = Object.keys(tabs);
        const wanted = new URLSearchParams("tab={wanted}"), open = console.log; {line}"""
    printed = subprocess.run(["node", "-e", script], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == shown


def shown_after(script, path, folder):
    """The page as a browser shows it after a script at its end, without the embedded data."""
    used = folder / "used.html"
    used.write_text(path.read_text().replace("</body>", f"<script>{script}</script></body>"))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    shown = subprocess.run(
        [BROWSER, *options, f"--user-data-dir={folder}/profile", used.as_uri()],
        capture_output=True, text=True, timeout=120,
    ).stdout  # fmt: skip
    return shown.replace(re.search(r'<script id="data".*?</script>', shown, re.DOTALL).group(), "")


@pytest.mark.skipif(BROWSER is None, reason="no Chromium")
def test_a_browser_shows_the_page_and_reacts_to_keys(page, tmp_path):
    data = embedded(page[1])
    # This script acts as a reader would.
    script = """
    const press = (query, key) => find(query).dispatchEvent(
      new KeyboardEvent("keydown", { key, bubbles: true }));
    press("#topics", "ArrowDown"); press("[role=tablist]", "ArrowRight");
    find("#weight").value = 1; find("#weight").dispatchEvent(new Event("input"));
    """
    shown = shown_after(script, page[1], tmp_path)
    topic = data["topics"][1]
    assert f"Topic 1: {topic['label']} (" in re.search(r'<h2 id="chosen".*?</h2>', shown).group()
    assert len(re.findall("<circle[^>]+data-topic", shown)) == 2
    options = re.findall(r'<li role="option"[^>]*aria-selected="(\w+)"', shown)
    assert options == ["false", "true"]
    tabs = re.findall(r'<button role="tab" id="tab-(\w+)"[^>]*aria-selected="(\w+)"', shown)
    assert tabs == [("words", "false"), ("documents", "true"), ("groups", "false")]
    # At the end of the slider, words are ordered by probability.
    words = re.search(r'<div id="words".*?</ol>', shown, re.DOTALL).group()
    order = sorted(topic["words"], key=lambda entry: -entry[1])[:3]
    assert re.findall(r'<span class="name">(\w+)</span>', words) == [
        data["words"][word][0] for word, _ in order
    ]
    documents = re.search(r'<div id="documents".*?</ol>', shown, re.DOTALL).group()
    assert documents.count("<strong>row ") == 10 and "<b " not in shown


@pytest.mark.skipif(BROWSER is None, reason="no Chromium")
def test_equal_topics_have_circles_apart_and_words_and_years_are_found(tmp_path):
    X = np.random.default_rng(0).poisson(2.0, (40, 6))
    nmf = NMF(6, max_iter=1000, random_state=0).fit(X)
    nmf.components_[:] = 1.0
    nmf.components_[4, 3] = 1.5
    path, words = tmp_path / "page.html", ["cat", "dog", "hen", "ox", "pig", "cow"]
    years = [2000.0, 2001.0, 2010.0, np.nan] * 10
    topic_explorer(nmf, X, words, path, groups=years, n_words=1)
    script = 'find("#find").value = "OX "; find("#find").dispatchEvent(new Event("input"));'
    shown = shown_after(script, path, tmp_path)
    topics = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="[\d.]+" data-topic', shown)
    places = np.array(topics, float)
    distances = np.linalg.norm(places[:, None] - places, axis=-1)
    assert len(places) == 6 and distances[np.triu_indices(6, 1)].min() > 20.0
    assert (places > 0.0).all() and (places < [400.0, 300.0]).all()
    # Only one topic has this word among its first words.
    assert re.findall(r'<li role="option".*?<span>(\d)</span>', shown) == ["4"]
    assert f"Topic 4: {embedded(path)['topics'][4]['label']} (" in shown
    groups = re.search(r'<div id="groups".*?</ol>', shown, re.DOTALL).group()
    line = re.search(r'<path d="M([\d.]+) [\d.]+L([\d.]+) [\d.]+L([\d.]+) [\d.]+"', groups).groups()
    first, second, last = map(float, line)
    assert (second - first) / (last - first) == pytest.approx(0.1)
    assert groups.count("2010") == 2 and 'class="own"' not in groups


def test_wrong_groups_are_refused_before_the_map_is_made(tmp_path, monkeypatch):
    X = CountVectorizer().fit_transform(TEXTS)
    lda = TemperedLDA(2, random_state=0, max_iter=1).fit(X)
    monkeypatch.setattr(
        _explorer, "compute_principal_coordinates", lambda topics: pytest.fail("the map")
    )
    with pytest.raises(ValueError, match="groups has 2 values"):
        topic_explorer(lda, X, path=tmp_path / "page.html", groups=[1, 2])


def test_the_page_shows_words_of_the_fit_and_groups_of_several_columns(tmp_path):
    counts = CountVectorizer(stop_words=["script", "id", "evil"])
    X = counts.fit_transform(TEXTS)
    lda = TemperedLDA(2, random_state=0).fit(X).set_words(counts.get_feature_names_out())
    groups = np.array([["ab"[row % 2], "xy"[row // 2 % 2]] for row in range(len(TEXTS))])
    topic_explorer(lda, X, path=tmp_path / "page.html", groups=groups)
    data = embedded(tmp_path / "page.html")
    assert {word for word, _ in data["words"]} <= {*counts.get_feature_names_out()}
    assert [group["name"] for group in data["groups"]] == ["a, x", "a, y", "b, x", "b, y"]
    display = TopicsDisplay.from_estimator(lda, n_words=2)
    shown = [label.get_text() for label in display.axes_[0].get_yticklabels()]
    assert shown == lda.top_words(2)[display.topics_[0]]
    for write in (topic_explorer, save_pyldavis):
        with pytest.raises(TypeError, match=f"{write.__name__} needs a path"):
            write(lda, X)


@pytest.mark.parametrize("n_words", [0, -1, 5.5, 1e9])
def test_only_a_positive_whole_number_of_words_is_shown(n_words, tmp_path):
    lda = make_pipeline(CountVectorizer(), TemperedLDA(2, max_iter=2, random_state=0)).fit(TEXTS)
    with pytest.raises((TypeError, ValueError), match="n_words"):
        topic_explorer(lda, TEXTS, None, tmp_path / "page.html", n_words=n_words)
    with pytest.raises((TypeError, ValueError), match="n_words"):
        TopicsDisplay(np.ones((2, 3)), ["a", "b", "c"]).plot(n_words=n_words)
    assert not list(tmp_path.iterdir())
