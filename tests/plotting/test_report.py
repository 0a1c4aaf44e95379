"""Texts and pages describe the clusters of a mixture."""

import re
from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skvt
from skvt.components import Gaussian, LatentGaussian, Poisson
from skvt.fitting import html_table
from skvt.plotting import ProfilesDisplay


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    kind = np.repeat([0, 1], [180, 120])
    return pd.DataFrame(
        {
            "height <cm>": 160 + 20 * kind + 3 * rng.normal(size=300),
            "sex": np.where(kind == 1, "m & x", "f"),
            "noise": rng.normal(size=300),
            "cost": np.where(rng.random(300) < 0.3, 0.0, rng.normal(50 + 100 * kind, 5.0)),
        }
    )


@pytest.fixture(scope="module")
def mixture(table):
    return skvt.MemoizedDPMixture(random_state=0).fit(table)


def test_descriptions_name_the_columns_in_which_clusters_differ(mixture, table):
    lines = mixture.describe(n_clusters="auto", form="text").split("\n")
    assert len(lines) == 2 and mixture.n_clusters_ == 2
    large = next(line for line in lines if "(60% of rows)" in line)
    assert re.fullmatch(r"cluster \d \(60% of rows\): .*", large)
    mean = table["height <cm>"].mean()
    assert f"height <cm> {table['height <cm>'][:180].mean():.0f} (all {mean:.0f})" in large
    assert re.search(r"sex is f \((9\d|100)%; all 60%\)", large)
    zero, cost = re.search(r"cost (\d+)% zero \(all \d+%\), otherwise (\d+) \(", large).groups()
    paid = table["cost"][:180][lambda values: values > 0]
    assert abs(int(cost) - paid.mean()) < 2.0 and abs(int(zero) / 100 - 1 + len(paid) / 180) < 0.01
    assert "noise" not in large


def test_the_wide_form_of_a_description_has_a_row_for_each_component(mixture, table):
    wide = mixture.describe(form="wide")
    names = ["component", "weight", "height <cm>", "noise", "cost", "cost: share not 0", "sex"]
    assert list(wide) == names
    wide = wide.set_index("sex")
    share = np.mean(table["cost"][:180] > 0)
    assert wide.loc["f", "cost: share not 0"] == pytest.approx(share, abs=0.01)
    assert wide.loc["f", "height <cm>"] == pytest.approx(table["height <cm>"][:180].mean(), abs=0.5)
    assert wide.loc["f", "weight"] == pytest.approx(0.6, abs=0.01)


def test_the_report_has_the_column_that_marks_a_small_cluster(monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    kind = np.repeat([0, 1, 2], [150, 140, 10])
    rates = np.full((3, 5), 2.0)
    rates[0, :2], rates[1, 2:4], rates[2, 4] = 20.0, 20.0, 40.0
    table = pd.DataFrame(rng.poisson(rates[kind]), columns=["a", "b", "c", "d", "rare"])
    fixed = {"labels_init": kind, "n_components": 3, "moves": ()}
    mixture = skvt.MemoizedDPMixture(components=Poisson(), **fixed).fit(table)
    monkeypatch.setattr("skvt.plotting._report.MAX_COLUMNS", 3)
    skvt.cluster_report(mixture, table, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<th scope=row>rare</th>" in page and "2 less relevant columns" in page


def test_few_rows_are_counted_and_marked_as_perhaps_no_group(tmp_path):
    """19 rows in a hundred are a group, in a thousand perhaps errors; 20 rows are not marked."""
    mark = "small: may be unusual rows rather than a group"
    rows_of = {100: (19, 81), 1000: (19, 981), 1001: (20, 981)}
    for n_rows, sizes in rows_of.items():
        kind = np.repeat([0, 1], sizes)
        table = np.random.default_rng(0).poisson(np.array([80.0, 2.0])[kind])[:, None]
        fixed = {"labels_init": kind, "n_components": 2, "moves": ()}
        mixture = skvt.MemoizedDPMixture(components=Poisson(), **fixed).fit(table)
        text = mixture.describe(n_clusters="auto", form="text")
        _, _, shown = mixture._result_for_display()
        skvt.cluster_report(mixture, table, tmp_path / "report.html")
        page = (tmp_path / "report.html").read_text(encoding="utf-8")
        has_count = n_rows > 100
        assert (f" (2% of rows, {sizes[0]} rows" in text) == has_count
        assert (f"%, {sizes[0]} rows" in shown[1][1]) == has_count
        assert f"{sizes[1]} rows" not in text + shown[0][1]
        # The report counts the rows that it is given.
        assert f"{sizes[0]} of the rows" in page and f"%, {sizes[0]} rows" not in page
        is_marked = n_rows == 1000
        assert (f"{mark}, see unusual_rows)" in text) == (mark in shown[1][2]) == is_marked
        assert (f"{mark.capitalize()}, see “Which rows fit worst?”" in page) == is_marked
        assert ("closer to those of all rows" in page) == is_marked
        assert "a standard deviation is followed" not in page


def test_the_report_explains_standard_deviations_that_it_shows(tmp_path):
    kind = np.repeat([0, 1], [100, 200])
    spread = np.random.default_rng(0).normal(size=(300, 1)) * np.array([1.0, 30.0])[kind, None]
    fixed = {"labels_init": kind, "n_components": 2, "moves": ()}
    mixture = skvt.MemoizedDPGMM(**fixed).fit(spread)
    skvt.cluster_report(mixture, spread, tmp_path / "report.html", n_clusters=2)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "(average cluster: " in page and "followed by its average over clusters" in page


def test_no_group_with_rows_has_a_share_of_zero(tmp_path):
    """One row of 3,000 is "<1%" in sentences and reports, and "<0.1%" with one decimal."""
    kind = np.repeat([0, 1], [1, 2999])
    table = pd.DataFrame({"n": np.random.default_rng(0).poisson(np.array([80.0, 2.0])[kind])})
    table["gone"] = table["n"].where(kind == 1)
    fixed = {"labels_init": kind, "n_components": 2, "moves": (), "components": Poisson()}
    mixture = skvt.MemoizedDPMixture(**fixed).fit(table)
    assert "(<1% of rows, 1 row;" in mixture.describe(form="text")
    _, _, shown = mixture._result_for_display()
    assert shown[1][1] == "<0.1%, 1 row"
    skvt.cluster_report(mixture, table, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "(&lt;1% of rows)" in page and "(0% of rows)" not in page
    # One value of the column is missing, in the group of one row.
    assert re.search(r"gone</td><td[^>]*>&lt;1%</td>", page)
    profile, *_ = ProfilesDisplay.from_estimator(mixture).ax_.get_yticklabels()[::-1]
    assert profile.get_text().endswith(": <0.1%")


def test_the_weight_of_components_is_not_replaced_by_a_column_of_that_name():
    people = pd.DataFrame({"weight": np.random.default_rng(0).normal(70.0, 9.0, size=50)})
    (weight,) = skvt.MemoizedDPMixture(random_state=0).fit(people).describe(form="wide")["weight"]
    assert weight == 1.0


def test_describe_refuses_other_forms(mixture):
    with pytest.raises(ValueError, match="'form' parameter must be one of 'long', 'wide', 'text'"):
        mixture.describe(form="short")


class Page(HTMLParser):
    """The text of a page, the names of its elements, and the elements that are not closed."""

    def __init__(self, source):
        super().__init__()
        self.text, self.names, self.open = "", set(), []
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_the_report_answers_its_questions(mixture, table, tmp_path):
    rows = table.copy()
    rows.loc[:29, "cost"] = np.nan
    rows.loc[7, "height <cm>"] = 16.2
    rows.loc[200, "cost"] = 62273.4
    path = tmp_path / "report.html"
    skvt.cluster_report(mixture, rows, path)
    source = path.read_text(encoding="utf-8")
    page = Page(source)
    assert not page.open
    assert not page.names & {"script", "img", "link", "b"} and "http:" not in source
    assert "<cm>" not in source and "m & x" not in source
    assert page.text.count("height <cm>") >= 3 and "m & x" in page.text
    assert "300 rows in 2 clusters" in page.text
    assert "180 of the rows." in page.text and "120 of the rows." in page.text
    assert mixture.n_clusters_reason_[1:] in page.text
    missing = page.text.split("Which values are missing?")[1]
    assert re.search(r"cost\s*10%", missing)
    worst = page.text.split("Which rows fit worst?")[1]
    assert worst.index("16.2") < worst.index("\n", worst.index("16.2"))
    assert "62273" in worst
    # Rows have the labels of the index.
    names = [f"patient {n}" for n in range(len(rows))]
    skvt.cluster_report(mixture, rows.set_axis(names), path)
    named = Page(path.read_text(encoding="utf-8")).text.split("Which rows fit worst?")[1]
    assert "patient 200" in named and "patient 200" not in worst


def test_a_report_after_a_stream_describes_components(table, tmp_path):
    table = table[["noise", "cost"]]
    stream = skvt.MemoizedDPMixture(components="gaussian", random_state=0).partial_fit(table)
    skvt.cluster_report(stream, table, tmp_path / "report.html")
    assert " components</h1>" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_texts_name_given_columns_and_where_means_are_taken(table, tmp_path):
    rows = table.assign(size=np.random.default_rng(0).normal(size=len(table)))
    mixture = skvt.MemoizedDPMixture(given=["size"], max_components=3, random_state=0).fit(rows)
    skvt.cluster_report(mixture, rows, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    told = "explained by the given columns size. Means and medians are those at the means"
    assert told in text and told in mixture.describe(form="text").splitlines()[-1]


def test_cluster_report_refuses_other_estimators(table, tmp_path):
    path = tmp_path / "report.html"
    with pytest.raises(TypeError, match=r"^cluster_report takes .* TemperedLDA\.$"):
        skvt.cluster_report(skvt.TemperedLDA(), table, path)
    with pytest.raises(TypeError, match=r"^unusual_rows takes .* type object\.$"):
        skvt.unusual_rows(object(), table)
    assert not list(tmp_path.iterdir())


def test_the_suggested_call_for_a_pipeline_works(tmp_path):
    rows = np.random.default_rng(0).normal(size=(60, 2))
    pipeline = make_pipeline(StandardScaler(), skvt.MemoizedDPGMM(random_state=0)).fit(rows)
    remedy = r"cluster_report\(pipeline\[-1\], pipeline\[:-1\].transform\(X\)\)"
    with pytest.raises(TypeError, match=f"^cluster_report takes .* Pipeline.* {remedy}"):
        skvt.cluster_report(pipeline, rows, tmp_path / "report.html")
    skvt.cluster_report(pipeline[-1], pipeline[:-1].transform(rows), tmp_path / "report.html")


def test_rows_of_the_background_alone_are_refused(tmp_path):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(300, 2)), rng.uniform(-40.0, 40.0, (60, 2))])
    mixture = skvt.MemoizedDPGMM(background=True, random_state=0).fit(X)
    far = X[mixture.labels_ < 0]
    assert len(far) > 30
    with pytest.raises(ValueError, match=r"All \d+ rows of X belong to the background"):
        skvt.cluster_report(mixture, far, tmp_path / "report.html")
    assert not any(tmp_path.iterdir())


def test_a_report_has_as_many_clusters_as_the_user_says(tmp_path):
    rows = np.random.default_rng(0).normal(np.repeat([0.0, 20.0, 60.0], 40)[:, None], size=(120, 2))
    mixture = skvt.MemoizedDPGMM(random_state=0).fit(rows)
    path = tmp_path / "report.html"
    assert mixture.n_clusters_ == 3
    skvt.cluster_report(mixture, rows, path, n_clusters=2)
    text = Page(path.read_text(encoding="utf-8")).text
    assert "120 rows in 2 clusters" in text and "cluster 2" not in text
    assert "2 clusters were asked for; suggested are 3 clusters of 3 components" in text
    assert "80 of the rows." in text and "40 of the rows." in text
    path.unlink()
    with pytest.raises(ValueError, match=r"fit anew with n_components=k and moves=\(\)"):
        skvt.cluster_report(mixture, rows, path, n_clusters=4)
    with pytest.raises(ValueError, match=r"join_components\(X\)"):
        skvt.cluster_report(mixture.partial_fit(rows), rows, path, n_clusters=2)
    assert not list(tmp_path.iterdir())


def test_the_report_counts_missing_values_of_sparse_rows(tmp_path):
    rng = np.random.default_rng(0)
    counts = rng.poisson(np.repeat([1.0, 8.0], 50)[:, None], (100, 4)).astype(float)
    counts[:25, 2] = np.nan
    rows = sp.csr_array(counts)
    mixture = skvt.MemoizedDPMixture(2, components=Poisson(), moves=(), random_state=0).fit(rows)
    path = tmp_path / "report.html"
    skvt.cluster_report(mixture, rows, path)
    missing = Page(path.read_text(encoding="utf-8")).text.split("Which values are missing?")[1]
    assert "No value is missing" not in missing
    assert re.search(r"25%", missing)


def test_a_table_of_a_report_has_at_most_six_clusters(tmp_path):
    rng = np.random.default_rng(0)
    centres = 100.0 * rng.permuted(np.tile(np.arange(12), (3, 1)), axis=1).T
    rows = np.repeat(centres, 40, axis=0) + rng.normal(size=(480, 3))
    rows[::7, 1] = np.nan
    mixture = skvt.MemoizedDPGMM(12, labels_init=np.repeat(np.arange(12), 40), moves=()).fit(rows)
    path = tmp_path / "report.html"
    skvt.cluster_report(mixture, rows, path)
    source = path.read_text(encoding="utf-8")
    heads = re.findall(r"<thead>(.*?)</thead>", source)
    shown = [[int(k) for k in re.findall(r">cluster (\d+)<", head)] for head in heads]
    profiles, missing = shown[:2], shown[2:4]
    assert profiles == missing == [list(range(6)), list(range(6, 12))]
    # The other tables have a row, a column, a value, an expected value and a score.
    assert {row.count("</th>") + row.count("</td>") for row in source.split("<tr>")[1:]} == {5, 8}


@pytest.mark.filterwarnings("ignore::skvt.ColumnWarning")
def test_sentences_and_report_say_that_numbers_of_ordinal_columns_are_latent(tmp_path):
    rng = np.random.default_rng(0)
    grades = pd.DataFrame({"age": rng.normal(size=80), "grade": rng.integers(1, 4, size=80)})
    for ordinal, is_told in ((["grade"], True), ([], False)):
        spec = LatentGaussian(ordinal) if ordinal else Gaussian()
        blocks = [("all", spec, ["age", "grade"])]
        mixture = skvt.MemoizedDPMixture(1, components=blocks, moves=()).fit(grades)
        skvt.cluster_report(mixture, grades, tmp_path / "report.html")
        page = (tmp_path / "report.html").read_text(encoding="utf-8")
        for text in (page, mixture.describe(form="text")):
            assert ("ordinal columns grade are on a latent scale" in text) == is_told


@pytest.mark.parametrize("texts", [{0}, {1}])
def test_the_head_of_a_column_is_aligned_like_its_values(texts):
    page = html_table(["a", "b"], [("x", 1), ("y", 2)], text=texts)
    rows = [re.findall(r"text-align:(\w+)", row) for row in page.split("</tr>")[:3]]
    assert rows == [["left" if position in texts else "right" for position in (0, 1)]] * 3


@pytest.mark.parametrize("template", ["cluster_report.html", "topic_explorer.html"])
def test_only_screens_in_dark_mode_have_pale_letters(template):
    """Paper stays white in dark mode, so that pale letters cannot be read on it."""
    source = files("skvt.plotting").joinpath(template).read_text(encoding="utf-8")
    assert re.findall(r"@media ([^{]*dark[^{]*) {", source) == [
        "screen and (prefers-color-scheme: dark)"
    ]
