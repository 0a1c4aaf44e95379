"""The Python code of the README and the guide runs, and gives the values that the pages show.

A value stands in a comment behind an expression or an assignment, ``expression  # 3``, or in a
block of text that follows a block that prints.
"""

import ast
import json
import re
import runpy
import shlex
import tokenize
from contextlib import nullcontext, redirect_stdout, suppress
from fractions import Fraction
from io import StringIO
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(
    r"^( *)```python\n(?P<code>.*?)^\1```\n(?:\s*\1```text\n(?P<output>.*?)^\1```$)?",
    flags=re.DOTALL | re.MULTILINE,
)


def blocks(page):
    """(line number, code, output or None) of each Python block of a page.

    The output is that of a block of text that follows at once.
    """
    text = page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, match.start("code")), dedent(match["code"]), match["output"])
        for match in BLOCK.finditer(text)
    ]


def run(page, given):
    """Execute the blocks of a page in one namespace and compare the values that the page shows.

    Errors bear the page's own line numbers.

    Returns
    -------
    namespace : dict
        The variables at the end of the page.
    n_compared : int
        Number of comments and outputs that were compared.
    """
    namespace, n_compared = {"__name__": "__main__", **given}, 0
    for line, code, output in blocks(page):
        source, comments = "\n" * line + code, comments_of(code, line)
        with redirect_stdout(StringIO()) as printed:
            for statement in ast.parse(source).body:
                value = executed(statement, str(page), namespace)
                comment = comments.get(statement.end_lineno, "")
                if claim := claimed_value(comment):
                    shown = f"{page}:{statement.end_lineno}: {ast.unparse(statement)}"
                    assert agrees(value, *claim), f"{shown} is {value!r}, not {comment}"
                    n_compared += 1
        if output is not None and printed.getvalue():
            assert printed.getvalue() == dedent(output), f"{page}:{line + 1} prints otherwise"
            n_compared += 1
    return namespace, n_compared


def executed(statement, file, namespace):
    """The value of an expression or of an assignment to one name, after it was executed."""
    if isinstance(statement, ast.Expr):
        return eval(compile(ast.Expression(statement.value), file, "eval"), namespace)
    exec(compile(ast.Module([statement], []), file, "exec"), namespace)
    targets = getattr(statement, "targets", [None])
    return namespace[targets[0].id] if isinstance(targets[0], ast.Name) else None


def comments_of(code, line):
    """{line number: text of its comment} for the comments that follow code on a line."""
    tokens = tokenize.generate_tokens(StringIO(code).readline)
    return {
        line + token.start[0]: token.string.lstrip("# ")
        for token in tokens
        if token.type == tokenize.COMMENT and token.line[: token.start[1]].strip()
    }


SHAPE = re.compile(r"\((?=.*\d)\w+,(?: \w+,?)*\)$")


def claimed_value(comment):
    """(syntax tree, text) of the value that a comment states; None for a comment in words.

    The value comes first; words may follow after a comma, semicolon or colon. A shape may come
    last, as in "proportions, (n_documents, 5)". An object stands as its ``repr``.
    """
    ends = [m.start() for m in re.finditer(r"[,;:](?: |$)", comment)]
    for end in [len(comment), *reversed(ends)]:
        text = comment[:end]
        with suppress(SyntaxError, ValueError):
            ast.literal_eval(text)
            return ast.parse(text, mode="eval").body, text
    if re.match(r"[A-Z]\w*\(", comment) and comment.endswith(")"):
        return None, comment
    if shape := SHAPE.search(comment):
        return ast.parse(shape[0], mode="eval").body, shape[0]
    is_number = re.match(r"(?:near |about )?[-+.\d\[({]", comment)
    assert not is_number, f"no value can be read: {comment}"
    return None


def agrees(value, claim, text):
    """Whether a value is the one of the syntax tree, to the digits in its text.

    A tuple of whole numbers is compared with the shape of an array; names in it stand for any
    length.
    """
    if claim is None:
        return repr(value) == text
    if isinstance(claim, ast.Tuple) and not isinstance(value, tuple):
        value = np.shape(value)
    if isinstance(claim, ast.Tuple | ast.List):
        return len(value) == len(claim.elts) and all(
            agrees(each, element, ast.get_source_segment(text, element))
            for each, element in zip(value, claim.elts, strict=True)
        )
    if isinstance(claim, ast.Name):
        return True
    said = ast.literal_eval(claim)
    if not isinstance(said, float):
        return value == said
    _, _, decimals = text.partition(".")
    return abs(value - said) <= 0.5 * 10.0 ** -len(decimals) + 1e-12


# The code of the pages runs without a warning.
pytestmark = pytest.mark.filterwarnings("error")
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in [ROOT / "README.md", *sorted(ROOT.glob("doc/**/*.md"))]
    if "_build" not in path.parts and blocks(path)
]


@pytest.mark.quick_cases("annealed_factorial", "cavi", "posterior")
@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs_and_gives_the_values_it_shows(page, tmp_path, monkeypatch):
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)
    if any("from sklearn.callback import" in code for _, code, _ in blocks(ROOT / page)):
        pytest.importorskip("sklearn.callback")  # of scikit-learn 1.9
    try:
        run(ROOT / page, {})
    finally:
        plt.close("all")


def test_all_pages_show_values_that_are_compared():
    claims = {page: 0 for page in PAGES}
    for page in PAGES:
        for line, code, output in blocks(ROOT / page):
            claims[page] += sum(map(bool, map(claimed_value, comments_of(code, line).values())))
            claims[page] += output is not None and "print(" in code
    assert claims["README.md"] == 2 and sum(claims.values()) >= 27, claims


def test_words_that_the_readme_explains_are_printed():
    text, n_words = (ROOT / "README.md").read_text(encoding="utf-8"), 0
    for match in BLOCK.finditer(text):
        explanation = text[match.end() :].lstrip("\n").partition("\n\n")[0]
        words = re.findall(r'"(\w+)"(?!\))', re.sub(r"`[^`]*`", "", explanation))
        assert set(words) <= set(re.findall(r"\w+", match["output"] or "")), words
        n_words += len(words)
    assert n_words


GIVEN = {"np": np, "Fraction": Fraction, "x": 2.449}


@pytest.mark.parametrize(
    ("code", "comment", "agreement"),
    [
        ("x = 2.449", "2.4, in nats", True),
        ("x", "2.449", True),
        ("2.46", "2.4", False),
        ("4", "3", False),
        ("np.zeros((3, 4))", "(3, 4): rows and columns", True),
        ("np.zeros((3, 5))", "(3, 4)", False),
        ("np.zeros((3, 4))", "shares, (n_rows, 4)", True),
        ("np.zeros((3, 5))", "shares, (n_rows, 4)", False),
        ("np.array([1.04, 2.0])", "[1.0, 2]", True),
        ("[1.0, 2.1]", "[1.0, 2.0]", False),
        ("[1.0]", "[1.0, 2.0]", False),
        ("(1, [2, None])", "1, [2, None]", True),
        ("Fraction(1, 2)", "Fraction(1, 2)", True),
        ("Fraction(1, 3)", "Fraction(1, 2)", False),
        ("range(3)", "in words, as they come (or not)", None),
        ("4", "near 4", False),  # A value that cannot be read is an error.
    ],
)
def test_values_are_compared_to_the_digits_shown(code, comment, agreement, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"Text.\n\n```python\n{code}  # {comment}\n```\n", encoding="utf-8")
    if agreement is False:
        with pytest.raises(AssertionError, match=r"page.md:4: |no value can be read"):
            run(page, GIVEN)
    else:
        assert run(page, GIVEN)[1] == bool(agreement)


def test_wrong_output_of_a_page_fails(tmp_path):
    page = tmp_path / "page.md"
    for shown, fails in (("3\n4\n", False), ("3\n5\n", True)):
        page.write_text(f"```python\nprint(3)\nprint(4)\n```\n\n```text\n{shown}```\n", "utf-8")
        with pytest.raises(AssertionError, match="prints otherwise") if fails else nullcontext():
            assert run(page, {})[1] == 1


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
    assert run(page, {"given": 3})[0]["z"] == 3
    with pytest.raises(AssertionError) as failure:
        run(page, {"given": np.inf})
    assert str(failure.traceback[-1].path) == str(page)
    assert failure.traceback[-1].lineno + 1 == 19


# ------------------------------------------------------------------ figures of the gallery
def test_figures_of_the_gallery_are_referred_to_by_names_that_examples_give():
    pattern, n_figures = re.compile(r"auto_examples/images/(\S+)\n"), 0
    for path in [ROOT / "README.md", *ROOT.glob("doc/*.md"), *ROOT.glob("doc/guide/*.md")]:
        for image, below in re.findall(
            rf"{pattern.pattern}((?:.+\n|\n)*?)```", path.read_text("utf-8")
        ):
            (example,) = re.findall(r"auto_examples/(plot_\w+)\.rst", below)
            assert image.startswith(f"{example}_") and image.endswith(".png"), (path.name, image)
            label = image.removeprefix(f"{example}_").removesuffix(".png")
            code = (ROOT / "examples" / f"{example}.py").read_text(encoding="utf-8")
            assert f'num="{label}"' in code or f'set_label("{label}")' in code, (path.name, image)
            n_figures += 1
    assert n_figures >= 18


def test_figures_with_a_label_are_saved_under_it(tmp_path):
    scrapers = pytest.importorskip("sphinx_gallery.scrapers", reason="needs the extra 'doc'")
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.close("all")
    gallery = runpy.run_path(str(ROOT / "doc/gallery.py"))
    paths = scrapers.ImagePathIterator(str(tmp_path / "sphx_glr_plot_a_{0:03}.png"))
    given = {"src_file": "plot_a.py", "image_path_iterator": paths, "example_globals": {}}
    settings = {"src_dir": str(tmp_path), "image_srcset": [], "compress_images": [],
                "matplotlib_animations": (False, None)}  # fmt: skip
    for labels in ([None, "second"], ["third"]):
        for label in labels:
            plt.subplots(num=label, figsize=(1, 1))[1].plot([0, 1])
        gallery["scraper"](("code", "", 1), given, settings)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["plot_a_second.png", "plot_a_third.png",
                     *(f"sphx_glr_plot_a_00{n}.png" for n in (1, 2, 3))]  # fmt: skip
    for name, number in (("second", 2), ("third", 3)):
        saved = (tmp_path / f"plot_a_{name}.png").read_bytes()
        assert saved == (tmp_path / f"sphx_glr_plot_a_00{number}.png").read_bytes()


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
    for page in ["README.md", *ROOT.glob("doc/guide/*.md")]:
        for labels, number in entries(page):
            if labels in measured:
                assert number in measured[labels], (page, set(labels))
                compared.add(labels)
    assert len(compared) >= 21  # a label that is changed on one side alone is not compared


def test_scores_of_a_table_are_on_the_page_that_its_caption_links_to():
    linked = 0
    for caption, table in TABLE.findall((ROOT / "doc/measured.md").read_text(encoding="utf-8")):
        for page in re.findall(r"\((guide/\w+\.md)#", caption):
            told = DECIMAL.findall((ROOT / "doc" / page).read_text(encoding="utf-8"))
            assert set(re.findall(r"-\d+\.\d+", table)) <= set(told), page
            linked += 1
    assert linked >= 2


MADE = runpy.run_path(str(ROOT / "benchmarks/table.py"))


def test_tables_from_result_files_are_up_to_date():
    asked = ""
    for page in MADE["pages"]():
        text = page.read_text(encoding="utf-8")
        assert MADE["rendered"](text) == text, f"{page}: run python benchmarks/table.py"
        asked += " ".join(comment for _, comment, _ in MADE["MARKED"].findall(text)) + " "
    for file in MADE["RESULTS"].glob("*.json"):
        assert f"{file.stem} " in asked.replace(";", " "), f"{file.name} is on no page"


def test_commands_of_result_files_name_existing_scripts():
    for file in MADE["RESULTS"].glob("*.json"):
        _, script, *options = shlex.split(json.loads(file.read_text("utf-8"))["command"])
        code = (ROOT / script).read_text(encoding="utf-8")
        code += (ROOT / "benchmarks/_common.py").read_text(encoding="utf-8")
        for option in options:
            assert not option.startswith("--") or f'"{option}"' in code, (file.name, option)


def test_scripts_of_benchmarks_import_existing_names():
    for script in (ROOT / "benchmarks").rglob("*.py"):
        for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == "skvt":
                for name in node.names:
                    exec(f"from {node.module} import {name.name}")  # raises ImportError


def test_the_best_value_of_a_table_is_bold(tmp_path, monkeypatch):
    lines = ["library | s | score", "ours | 2.0 | -7.51239 +- 0.00100", "other | 10 | -7.4000*"]
    run = {"tables": [{"title": "kos: nats", "lines": lines}]}
    (tmp_path / "run.json").write_text(json.dumps(run), encoding="utf-8")
    monkeypatch.setitem(MADE["table"].__globals__, "RESULTS", tmp_path)
    shown = MADE["table"]("run; columns: library, score as nats, s; best: score; least: s; brief")
    assert shown.strip().splitlines()[2:] == [
        "| ours | -7.512 ± 0.001 | **2.0** |",
        "| other | **-7.400** | 10 |",
    ]


def test_quoted_numbers_are_among_the_measurements():
    quoted, told = 0, set(DECIMAL.findall((ROOT / "doc/measured.md").read_text(encoding="utf-8")))
    for page in MADE["pages"]():
        text = page.read_text(encoding="utf-8")
        links = re.findall(r"\[([^]]+)\]\((?:[^)]*/)?measured\.md", text)
        numbers = [number for words in links for number in DECIMAL.findall(words)]
        assert set(numbers) <= told, page
        quoted += len(numbers)
    assert quoted >= 5
