"""Tables of the documentation from the files that the benchmarks write with ``--save``.

``python benchmarks/table.py`` writes the tables anew that stand on the pages between two comments,

    <!-- result: FILE TABLE ...; columns: NAME, NAME as SHOWN; rows: REGEX; best: NAME -->
    <!-- end -->

FILE is ``benchmarks/results/FILE.json``, TABLE the number of a table in it (the first, if not
given; ``*`` for all). Several become one, the beginnings of their titles before the rows where
these differ. Without ``columns`` and ``rows`` all are shown; ``rows`` is searched in the cells of a
row, joined by `` | ``. Bold are the highest of each of the columns ``best``, the lowest of
``least``, and in each row the highest of the columns ``best of row``. With ``brief`` the line is
left out that says command, date, machine and versions.
"""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results"
MARKED = re.compile(r"(<!-- result: ([^>]+?) -->\n).*?(<!-- end -->)", flags=re.DOTALL)


def pages():
    """Pages of the documentation as sources, generated ones left out."""
    found = [ROOT / "README.md", *sorted(ROOT.glob("doc/*.md")), *sorted(ROOT.glob("doc/guide/*"))]
    return [page for page in found if page.suffix == ".md"]


def rendered(text):
    """A page with all its tables written anew."""
    return MARKED.sub(lambda match: match[1] + table(match[2]) + match[3], text)


def table(asked):
    """Lines of the table that a comment asks for."""
    sources, *options = (part.strip() for part in asked.split(";"))
    options = dict(option.partition(": ")[::2] for option in options)
    runs, chosen = [], []
    for word in sources.split():
        if word == "*" or word.isdigit():
            of_run = runs[-1]["tables"]
            chosen[-1:] = of_run if word == "*" else [of_run[int(word) - 1]]
        else:
            runs.append(json.loads((RESULTS / f"{word}.json").read_text(encoding="utf-8")))
            chosen.append(runs[-1]["tables"][0])
    groups = {}  # rows by what the title says first
    for one in chosen:
        headers, *rows = (line.split(" | ") for line in one["lines"])
        rows = [row for row in rows if re.search(options.get("rows", ""), " | ".join(row))]
        named = (dict(zip(headers, row, strict=True)) for row in rows)
        groups.setdefault(one["title"].partition(":")[0], []).extend(named)
    asked = options["columns"].split(", ") if "columns" in options else headers
    columns = [name.partition(" as ") for name in asked]
    lines = [[new or name for name, _, new in columns], ["---"] * len(columns)]
    for rows in groups.values():
        lines += bold([[shown(row.get(name, "")) for name, *_ in columns] for row in rows],
                      [name for name, *_ in columns], options)  # fmt: skip
    if len(groups) > 1:
        of_rows = [name for name, rows in groups.items() for _ in rows]
        lines = [[name, *line] for name, line in zip(["", "---", *of_rows], lines, strict=True)]
    written = "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |") for line in lines)
    return f"\n{written}\n" + ("" if "brief" in options else provenance(runs))


def bold(cells, names, options):
    """The cells, the best among each of :func:`compared` in bold."""
    for group, best in compared(cells, names, options):
        numbers = [number(row[j]) for row, j in group]
        top = best((n for n in numbers if n is not None), default=None)
        for (row, j), n in zip(group, numbers, strict=True):
            if n is not None and n == top:
                row[j] = re.sub(r"^[-+\d.,]+", r"**\g<0>**", row[j])
    return cells


def compared(cells, names, options):
    """([(row, place), ...], max or min): cells among which the best is bold."""
    for option, best in (("best", max), ("least", min), ("best of row", max)):
        places = [names.index(name) for name in options.get(option, "").split(", ") if name]
        if option == "best of row":
            yield from (([(row, j) for j in places], best) for row in cells)
        else:
            yield from (([(row, j) for row in cells], best) for j in places)


def shown(cell):
    """A cell with at most three decimals, and no zero below zero."""
    cell = re.sub(r"\d+\.\d{4,}", lambda match: f"{float(match[0]):.3f}", cell)
    return re.sub(r"-0\b(?!\.)", "0", cell).replace(" +- ", " ± ").rstrip("*")


def number(cell):
    """The number that a cell begins with, if any."""
    match = re.match(r"[-+]?[\d,]*\.?\d+", cell)
    return float(match[0].replace(",", "")) if match else None


def provenance(runs):
    """Command, date, machine and versions of each run."""
    told = ""
    for run in runs:
        versions = ", ".join(map(" ".join, run["versions"].items()))
        machine = f"{run['processor']}, {run['cores'].split()[0]} cores, load {run['load']}"
        told += f"`{run['command']}`\n({run['date']}; {machine}; {versions}.)\n\n"
    return told


def main():
    for page in pages():
        before = page.read_text(encoding="utf-8")
        after = rendered(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print("written:", page.relative_to(ROOT))


if __name__ == "__main__":
    main()
