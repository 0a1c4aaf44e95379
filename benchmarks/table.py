"""Tables of the documentation from the files that the benchmarks write with ``--save``.

``python benchmarks/table.py`` replaces the tables on pages between two comments,

    <!-- result: FILE TABLE ...; columns: NAME, NAME as SHOWN; rows: REGEX; best: NAME -->
    <!-- end -->

FILE stands for ``benchmarks/results/FILE.json``, and TABLE for the number of a table in it: without
a number the first table, and with ``*`` all tables. Several tables become one. If their titles
differ before the colon, each row begins with this part of its title. The options are

- ``columns``: the columns to show, by default all, with another name after "as";
- ``rows``: a regular expression that selects rows; it is searched in the cells joined by `` | ``;
- ``best``, ``least``: columns whose highest or lowest number is bold;
- ``best of row``: columns of which the highest number of each row is bold;
- ``brief``: leave out the line with the command, date, machine and versions.
"""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results"
# A table with the comments around it. The groups are the first comment, the request in it, and the
# last comment.
MARKED = re.compile(r"(<!-- result: ([^>]+?) -->\n).*?(<!-- end -->)", flags=re.DOTALL)


def pages():
    """Return the paths of the pages of the documentation, without generated pages."""
    paths = [ROOT / "README.md", *sorted(ROOT.glob("doc/*.md")), *sorted(ROOT.glob("doc/guide/*"))]
    return [path for path in paths if path.suffix == ".md"]


def rendered(text):
    """Return the text of a page with new tables."""
    return MARKED.sub(lambda match: match[1] + table(match[2]) + match[3], text)


def table(asked):
    """Return the text of the table that a comment asks for."""
    sources, *options = (part.strip() for part in asked.split(";"))
    # Each option is a name, or a name and a value after a colon.
    options = dict(option.partition(": ")[::2] for option in options)
    runs, tables = [], []
    for word in sources.split():
        if word == "*" or word.isdigit():
            # The tables of the last file take the place of its first table.
            run_tables = runs[-1]["tables"]
            tables[-1:] = run_tables if word == "*" else [run_tables[int(word) - 1]]
        else:
            runs.append(json.loads((RESULTS / f"{word}.json").read_text(encoding="utf-8")))
            tables.append(runs[-1]["tables"][0])
    # Rows, as dicts by column, by the part of the title before the colon.
    groups = {}
    for one_table in tables:
        headers, *rows = (line.split(" | ") for line in one_table["lines"])
        rows = [row for row in rows if re.search(options.get("rows", ""), " | ".join(row))]
        rows_by_header = (dict(zip(headers, row, strict=True)) for row in rows)
        groups.setdefault(one_table["title"].partition(":")[0], []).extend(rows_by_header)
    entries = options["columns"].split(", ") if "columns" in options else headers
    # Pairs of the name of a column and its name in the documentation, which may be empty.
    columns = [entry.partition(" as ")[::2] for entry in entries]
    names = [name for name, _ in columns]
    lines = [[shown_name or name for name, shown_name in columns], ["---"] * len(columns)]
    for rows in groups.values():
        cells = [[shown(row.get(name, "")) for name in names] for row in rows]
        lines += bold(cells, names, options)
    if len(groups) > 1:
        first_column = [title for title, rows in groups.items() for _ in rows]
        first_column = ["", "---", *first_column]
        lines = [[cell, *line] for cell, line in zip(first_column, lines, strict=True)]
    text = "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |") for line in lines)
    return f"\n{text}\n" + ("" if "brief" in options else provenance(runs))


def bold(cells, names, options):
    """Return the rows of cells with the best cells of each group of :func:`compared` in bold.

    ``names`` are the names of the columns.
    """
    for group, best in compared(cells, names, options):
        numbers = [number(row[j]) for row, j in group]
        best_number = best((n for n in numbers if n is not None), default=None)
        for (row, j), n in zip(group, numbers, strict=True):
            if n is not None and n == best_number:
                # Only the number at the beginning is bold, without its deviation.
                row[j] = re.sub(r"^[-+\d.,]+", r"**\g<0>**", row[j])
    return cells


def compared(cells, names, options):
    """Yield groups of cells among which the best is bold, and the function max or min.

    A group is a list of pairs of a row and the position of a column.
    """
    for option, best in (("best", max), ("least", min), ("best of row", max)):
        positions = [names.index(name) for name in options.get(option, "").split(", ") if name]
        if option == "best of row":
            yield from (([(row, j) for j in positions], best) for row in cells)
        else:
            yield from (([(row, j) for row in cells], best) for j in positions)


def shown(cell):
    """Return a cell with at most three decimals, and with 0 in place of -0."""
    cell = re.sub(r"\d+\.\d{4,}", lambda match: f"{float(match[0]):.3f}", cell)
    return re.sub(r"-0\b(?!\.)", "0", cell).replace(" +- ", " ± ").rstrip("*")


def number(cell):
    """Return the number with which a cell begins, or None."""
    match = re.match(r"[-+]?[\d,]*\.?\d+", cell)
    return float(match[0].replace(",", "")) if match else None


def provenance(runs):
    """Return the command, date, machine and versions of each run as a text."""
    text = ""
    for run in runs:
        versions = ", ".join(map(" ".join, run["versions"].items()))
        machine = f"{run['processor']}, {run['cores'].split()[0]} cores, load {run['load']}"
        text += f"`{run['command']}`\n({run['date']}; {machine}; {versions}.)\n\n"
    return text


def main():
    """Write the pages whose tables have changed."""
    for page in pages():
        before = page.read_text(encoding="utf-8")
        after = rendered(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print("written:", page.relative_to(ROOT))


if __name__ == "__main__":
    main()
