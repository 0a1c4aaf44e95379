"""The Python code of the README, the guide and the tutorials runs as it stands."""

import json
import re
import runpy
import shlex
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```$", flags=re.DOTALL | re.MULTILINE)


def blocks(page):
    """(number of its first line, code) of each Python block of a page."""
    text = page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, match.start(2)), dedent(match[2])) for match in BLOCK.finditer(text)
    ]


def run(page, given):
    """Execute the blocks of a page in one namespace; errors bear the page's own line numbers."""
    namespace = {"__name__": "__main__", **given}
    for line, code in blocks(page):
        exec(compile("\n" * line + code, str(page), "exec"), namespace)
    return namespace


# What is shown runs without a warning.
pytestmark = pytest.mark.filterwarnings("error")
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in [ROOT / "README.md", *sorted(ROOT.glob("doc/**/*.md"))]
    if "_build" not in path.parts and blocks(path)
]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)
    if any("from sklearn.callback import" in code for _, code in blocks(ROOT / page)):
        pytest.importorskip("sklearn.callback")  # of scikit-learn 1.9
    try:
        run(ROOT / page, {})
    finally:
        plt.close("all")


def test_every_python_block_is_found():
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert len(blocks(ROOT / page)) == len(re.findall(r"`{3} *\{?(?:code-block\} )?py", text))


def test_blocks_share_a_namespace_and_errors_name_the_line(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "Text.\n\n```python\nx = 1\n```\n\n1. Item\n\n   ```python\n   y = x + 1\n   ```\n\n"
        "```bash\nexit 1\n```\n\n```python\nz = y + 1\nassert z == given\n```\n"
    )
    assert run(page, {"given": 3})["z"] == 3
    with pytest.raises(AssertionError) as failure:
        run(page, {"given": np.inf})
    assert str(failure.traceback[-1].path) == str(page)
    assert failure.traceback[-1].lineno + 1 == 19


# ------------------------------------------------------------------ measurements and guide agree
TABLE = re.compile(
    r"(?:^((?:(?! *\|).+\n)+)\n)?(^ *\|.*\n *\|[-| ]+\n(?: *\|.*\n)+)", flags=re.MULTILINE
)
DECIMAL = re.compile(r"-?\d*\.\d+")


def entries(page):
    """(labels of row and column, number that the cell begins with) of the tables of a page."""
    for _, table in TABLE.findall((ROOT / page).read_text(encoding="utf-8")):
        lines = re.sub(r"[*`]", "", table).splitlines()
        header, _, *rows = [
            [cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines
        ]
        for row in rows:
            for column, cell in zip(header[1:], row[1:], strict=False):
                if row[0] and column and (number := DECIMAL.match(cell)):
                    yield frozenset((row[0], column)), number[0]


def test_tables_of_measurements_and_of_the_guide_agree():
    measured, compared = {}, set()
    for labels, number in entries("doc/measured.md"):
        measured.setdefault(labels, set()).add(number)
    for page in [page for page in PAGES if page.startswith(("README", "doc/guide/"))]:
        for labels, number in entries(page):
            if labels in measured:
                assert number in measured[labels], (page, set(labels))
                compared.add(labels)
    assert len(compared) >= 21  # a label that is changed on one side alone is not compared


def test_scores_of_a_table_stand_on_the_page_that_its_caption_links_to():
    linked = 0
    for caption, table in TABLE.findall((ROOT / "doc/measured.md").read_text(encoding="utf-8")):
        for page in re.findall(r"\((guide/\w+\.md)#", caption):
            told = DECIMAL.findall((ROOT / "doc" / page).read_text(encoding="utf-8"))
            assert set(re.findall(r"-\d+\.\d+", table)) <= set(told), page
            linked += 1
    assert linked >= 2


MADE = runpy.run_path(str(ROOT / "benchmarks/table.py"))


def test_tables_made_from_result_files_show_what_these_hold():
    asked = ""
    for page in MADE["pages"]():
        text = page.read_text(encoding="utf-8")
        assert MADE["rendered"](text) == text, f"{page}: run python benchmarks/table.py"
        asked += " ".join(comment for _, comment, _ in MADE["MARKED"].findall(text)) + " "
    for file in MADE["RESULTS"].glob("*.json"):
        assert f"{file.stem} " in asked.replace(";", " "), f"{file.name} is on no page"


def test_commands_of_result_files_are_of_scripts_that_are_there():
    for file in MADE["RESULTS"].glob("*.json"):
        _, script, *options = shlex.split(json.loads(file.read_text("utf-8"))["command"])
        code = (ROOT / script).read_text(encoding="utf-8")
        code += (ROOT / "benchmarks/_common.py").read_text(encoding="utf-8")
        for option in options:
            assert not option.startswith("--") or f'"{option}"' in code, (file.name, option)


def test_the_best_of_a_made_table_is_bold_whoever_has_it(tmp_path, monkeypatch):
    lines = ["library | s | score", "ours | 2.0 | -7.51239 +- 0.00100", "other | 10 | -7.4000*"]
    run = {"tables": [{"title": "kos: nats", "lines": lines}]}
    (tmp_path / "run.json").write_text(json.dumps(run), encoding="utf-8")
    monkeypatch.setitem(MADE["table"].__globals__, "RESULTS", tmp_path)
    shown = MADE["table"]("run; columns: library, score as nats, s; best: score; least: s; brief")
    assert shown.strip().splitlines()[2:] == [
        "| ours | -7.512 ± 0.001 | **2.0** |",
        "| other | **-7.400** | 10 |",
    ]


def test_numbers_quoted_from_the_measurements_stand_there():
    quoted, told = 0, set(DECIMAL.findall((ROOT / "doc/measured.md").read_text(encoding="utf-8")))
    for page in MADE["pages"]():
        links = re.findall(r"\[([^]]+)\]\([^)]*measured\.md", page.read_text(encoding="utf-8"))
        numbers = [number for words in links for number in DECIMAL.findall(words)]
        assert set(numbers) <= told, page
        quoted += len(numbers)
    assert quoted >= 5
