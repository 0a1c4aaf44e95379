"""Which wrong lines do the tests notice? Lines of the package are changed one at a time.

A mutant is the package with one small mistake: another operator, a factor left out, a bound off by
one, a statement missing. Of each file as many lines are drawn as its share of the code, and of each
line one mutant. The tests that execute the line are run on a private copy of the tree, quick ones
and those that mirror the module first, up to the first failure. What no test notices has survived:
either it is equivalent (no result that the package promises changes; ``EQUIVALENT`` names the
reason), or a test is missing.

Which test executes which line is measured by coverage.py, file of tests by file, and again after
any change. Compiled loops are invisible to it: their tests are those that execute a line from which
the loop is called. Numba's cache on disk notices changes of a function's file, not of the functions
that it calls, so compiled functions of all modules that import a mutant are removed from the cache
of its copy. (Tools such as mutmut and cosmic-ray would run stale machine code.)

Results are appended to a file: a run that was stopped is taken up again, and ``--n 600`` after
``--n 300`` adds 300. Leave the sources alone while it runs.
"""

import argparse
import ast
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("compiled", "expfam", "models", "inference", "moves", "temperature")
# Tests that say nothing sharp about a line of these packages, or take very long.
LEFT_OUT = re.compile(
    "tests/(plotting|datasets|test_|estimators/test_(common|bad_input|callbacks))"
)
EQUIVALENT = Path(__file__).with_name("mutation_equivalent.toml")
COMPILING = 300  # seconds that a mutant may take beyond ten times its tests' usual ones


# ------------------------------------------------------------------------------------ mutants
@dataclass(frozen=True)
class Mutant:
    """A stretch of a file, in bytes, and what stands there instead."""

    file: str
    function: str
    line: int
    operator: str
    start: int
    end: int
    before: str
    after: str
    occurrence: int = 0

    @property
    def id(self):
        """Stays as long as the function holds this text, wherever it stands."""
        what = (self.file, self.function, self.operator, self.before, self.after, self.occurrence)
        return hashlib.sha1(repr(what).encode()).hexdigest()[:8]

    def apply(self, source):
        """The mutated file; lines keep their numbers."""
        raw = source.encode()
        return (raw[: self.start] + self.after.encode() + raw[self.end :]).decode()

    def __str__(self):
        before, after = (" ".join(text.split()) for text in (self.before, self.after))
        return f"{self.id} {self.file}:{self.line} {self.operator}: `{before}` -> `{after}`"


SYMBOLS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Pow: "**", ast.LShift: "<<", ast.RShift: ">>", ast.BitOr: "|", ast.BitAnd: "&",
    ast.BitXor: "^", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==",
    ast.NotEq: "!=", ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
    ast.And: "and", ast.Or: "or", ast.MatMult: "@",
}  # fmt: skip
SWAPPED = {
    "+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "*", "**": "*", "<<": ">>", ">>": "<<",
    "|": "&", "&": "|", "^": "|", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=",
    "!=": "==", "is": "is not", "is not": "is", "in": "not in", "not in": "in", "and": "or",
    "or": "and",
}  # fmt: skip
_PAIRS = [
    ("max", "min"), ("maximum", "minimum"), ("argmax", "argmin"), ("sum", "mean"), ("any", "all"),
    ("floor", "ceil"), ("zeros", "ones"), ("zeros_like", "ones_like"), ("log1p", "log"),
    ("expm1", "exp"), ("digamma", "log"), ("hstack", "vstack"), ("ascontiguousarray", "array"),
    ("add", "subtract"), ("multiply", "divide"), ("triu", "tril"), ("append", "remove"),
]  # fmt: skip
FUNCTIONS = dict(_PAIRS) | {b: a for a, b in _PAIRS if a not in ("digamma", "ascontiguousarray")}
# Calls that can be left out, so that their argument or the object itself remains.
OMITTED = {"abs", "sqrt", "log1p", "expm1", "square", "sorted", "cumsum", "sort", "copy", "round"}
# Calls whose first two arguments are not exchanged: symmetric ones, and those of types and names.
NOT_SWAPPED = {"max", "min", "maximum", "minimum", "add", "multiply", "array_equal", "isinstance",
               "hasattr", "getattr", "lit", "range"}  # fmt: skip
DEFINITIONS = (ast.FunctionDef, ast.ClassDef)


class _Mutations:
    """All mutants of one file, in ``found``."""

    def __init__(self, file, source):
        self.file, self.raw, self.found = file, source.encode(), []
        self.starts = [0]
        for line in self.raw.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self._walk(ast.parse(source), (), set())

    def span(self, node):
        start = self.starts[node.lineno - 1] + node.col_offset
        return start, self.starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node):
        start, end = self.span(node)
        return self.raw[start:end].decode()

    def _walk(self, node, scope, assigned):
        """Mutants of a node and below; ``assigned`` are the names its function has given so far."""
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        names = isinstance(node, ast.Assign) and self.text(node).startswith("__all__")
        left_out = (ast.Import, ast.ImportFrom, ast.Raise, ast.JoinedStr)
        if docstring or names or isinstance(node, left_out):
            return
        for operator, (start, end), after in self._edits(node, scope, assigned):
            place, before = (node.lineno, operator, start, end), self.raw[start:end].decode()
            self.found.append(Mutant(self.file, ".".join(scope), *place, before, after))
        if isinstance(node, ast.Assign):
            assigned |= {n.id for n in ast.walk(node.targets[0]) if isinstance(n, ast.Name)}
        children = list(ast.iter_child_nodes(node))
        if isinstance(node, DEFINITIONS):
            scope, assigned, children = (*scope, node.name), set(), node.body
            if isinstance(node, ast.FunctionDef):
                assigned |= {a.arg for a in node.args.args + node.args.kwonlyargs}
                children = [*filter(None, node.args.defaults + node.args.kw_defaults), *children]
        elif isinstance(node, ast.AnnAssign):
            children = [node.value] if node.value else []
        elif (isinstance(node, ast.Expr) and "warn" in self.text(node).split("(")[0]) or (
            isinstance(node, ast.keyword) and node.arg in ("strict", "stacklevel")
        ):
            children = []
        for child in children:
            self._walk(child, scope, assigned)

    def _in_brackets(self, node, after):
        """(span, text): another expression in the place of a node, on as many lines."""
        lines = self.text(node).count("\n") - after.count("\n")
        return self.span(node), "(" + after + "\n" * lines + ")"

    def _edits(self, node, scope, assigned):
        """(operator, span in bytes, text instead) of all changes of one node."""
        text, expression = self.text, self._in_brackets
        removed = isinstance(node, (ast.Continue, ast.Break, ast.AugAssign))
        match node:
            case ast.Expr(value=ast.Call()):
                removed = True
            case ast.Assign(targets=[target, *_]):
                places = isinstance(target, (ast.Subscript, ast.Attribute))
                removed = bool(scope) and (places or getattr(target, "id", None) in assigned)
            case ast.AugAssign():
                symbol, span = (
                    SYMBOLS[type(node.op)],
                    (self.span(node.target)[1], self.span(node.value)[0]),
                )
                between = self.raw[slice(*span)].decode()
                for other in {SWAPPED.get(symbol, ""), ""}:
                    yield "augmented", span, between.replace(f"{symbol}=", f"{other}=", 1)
            case ast.Return(value=ast.Tuple(elts=[a, b])) if ast.dump(a) != ast.dump(b):
                yield "return", *expression(node.value, f"{text(b)}, {text(a)}")
            case ast.If() | ast.IfExp() | ast.While():
                for value in ("True", "False")[isinstance(node, ast.While) :]:
                    yield "condition", *expression(node.test, value)
            case ast.BinOp(left=left, right=right):
                symbol = SYMBOLS[type(node.op)]
                if isinstance(left, ast.Constant) and isinstance(left.value, str):
                    return
                for part in (left, right) if symbol in "+*@|&^" else (left,):
                    yield "operand dropped", *expression(node, text(part))
                if symbol in SWAPPED:
                    swapped = f"({text(left)}) {SWAPPED[symbol]} ({text(right)})"
                    yield "operator", *expression(node, swapped)
            case ast.BoolOp(values=values):
                parts, symbol = [f"({text(value)})" for value in values], SYMBOLS[type(node.op)]
                for i in range(len(parts)):
                    rest = f" {symbol} ".join(parts[:i] + parts[i + 1 :])
                    yield "operand dropped", *expression(node, rest)
                yield "operator", *expression(node, f" {SWAPPED[symbol]} ".join(parts))
            case ast.Compare():
                parts = [f"({text(value)})" for value in [node.left, *node.comparators]]
                symbols = [SYMBOLS[type(op)] for op in node.ops]
                for i, symbol in enumerate(symbols):
                    for other in {SWAPPED[symbol], {"<": ">", ">": "<"}.get(symbol)} - {None}:
                        changed = [*symbols[:i], other, *symbols[i + 1 :]]
                        rest = (f" {s} {p}" for s, p in zip(changed, parts[1:], strict=True))
                        yield "comparison", *expression(node, parts[0] + "".join(rest))
            case ast.UnaryOp() if not isinstance(node.op, ast.UAdd):
                yield "sign or not dropped", *expression(node, text(node.operand))
            case ast.Constant(value=int() | float() as value):
                others = [value * 1.01, 2.0 * value, 0.0] if value else [1.0]
                if not isinstance(value, float):
                    others = [not value] if isinstance(value, bool) else [value + 1, value - 1]
                for other in others:
                    yield "constant", *expression(node, repr(other))
            case ast.Subscript():
                for place in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
                    if isinstance(place, ast.Slice):
                        for end in filter(None, (place.lower, place.upper)):
                            if not isinstance(end, ast.Constant):
                                yield "index shifted", *expression(end, f"{text(end)} + 1")
                            if "\n" not in text(end):
                                yield "slice widened", self.span(end), ""
                    elif isinstance(place, (ast.Name, ast.BinOp)):
                        yield "index shifted", *expression(place, f"{text(place)} - 1")
            case ast.Call():
                yield from self._edits_of_call(node)
        if removed:
            yield "statement removed", self.span(node), "pass" + "\n" * text(node).count("\n")
        for test in (test for loop in getattr(node, "generators", []) for test in loop.ifs):
            yield "condition", *expression(test, "True")

    def _edits_of_call(self, node):
        function, text = node.func, self.text
        name = getattr(function, "attr", getattr(function, "id", ""))
        if name in FUNCTIONS:
            yield "function", self.span(function), text(function)[: -len(name)] + FUNCTIONS[name]
        if name in OMITTED and (node.args or isinstance(function, ast.Attribute)):
            kept = node.args[0] if node.args else function.value
            yield "call omitted", *self._in_brackets(node, text(kept))
        plain = [a for a in node.args if not isinstance(a, ast.Starred)]
        if len(plain) >= 2 and len(plain) == len(node.args) and name not in NOT_SWAPPED:
            (start, middle), (end, last) = map(self.span, plain[:2])
            one, gap, two = text(plain[0]), self.raw[middle:end].decode(), text(plain[1])
            yield "arguments swapped", (start, last), two + gap + one
        for keyword in node.keywords:
            if keyword.arg in (None, "strict", "stacklevel"):
                continue
            if keyword.arg == "axis" and re.fullmatch(r"-?\d+", text(keyword.value)):
                axis = int(text(keyword.value))
                other = str(axis + 1 if axis < 0 else abs(axis - 1))
                yield "axis", *self._in_brackets(keyword.value, other)
            start, end = self.span(keyword)
            if following := re.match(rb"\s*,", self.raw[end:]):
                end += following.end()
            elif preceding := re.search(rb",\s*$", self.raw[:start]):
                start = preceding.start()
            yield "keyword dropped", (start, end), "\n" * self.raw[start:end].count(b"\n")


def mutants_of(file, source):
    """All mutants of a file, numbered where the text repeats within a function."""
    seen, counts, result = set(), Counter(), []
    for mutant in _Mutations(file, source).found:
        place = mutant.start, mutant.end, mutant.after
        if mutant.before == mutant.after or place in seen:
            continue
        seen.add(place)
        key = mutant.function, mutant.operator, mutant.before, mutant.after
        result.append(replace(mutant, occurrence=counts[key]))
        counts[key] += 1
    return result


def compiles(mutant, source):
    """Whether the mutated file is Python and another syntax tree."""
    try:
        return ast.dump(ast.parse(mutant.apply(source))) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


def drawn(files, n, seed):
    """``n`` mutants of lines drawn by lot, of each line one; more mutants hold the fewer."""
    by_line = defaultdict(list)
    for file, source in files.items():
        for mutant in mutants_of(file, source):
            by_line[file, mutant.line].append(mutant)
    order, chosen = sorted(by_line), []
    random.Random(seed).shuffle(order)
    for place in order[:n]:
        # first the operator: constants and dropped operands would be most of all
        pick = random.Random(f"{seed} {place}")
        ranks = defaultdict(pick.random)
        candidates = sorted(by_line[place], key=lambda m: (ranks[m.operator], pick.random()))
        chosen += next(([m] for m in candidates if compiles(m, files[place[0]])), [])
    return chosen


# ------------------------------------------------------------------- which tests execute a mutant
def is_compiled(node):
    """Whether a definition is a function for numba."""
    marks = [ast.unparse(mark) for mark in getattr(node, "decorator_list", [])]
    known = [mark for mark in marks if re.search("cache|dataclass|contextmanager", mark)]
    return isinstance(node, ast.FunctionDef) and len(marks) > len(known)


def lines_of(mutant, trees):
    """{file: lines} of which a test must execute one to notice the mutant."""
    top = [n for n in trees[mutant.file].body if first_line(n) <= mutant.line][-1]
    if isinstance(top, DEFINITIONS) and not is_compiled(top):
        around = [n for n in ast.walk(top) if isinstance(n, DEFINITIONS)]
        inner = [n for n in around if first_line(n) <= mutant.line <= n.end_lineno][-1]
        first = inner.body[0].lineno if isinstance(inner, ast.FunctionDef) else inner.lineno
        return {mutant.file: set(range(first, inner.end_lineno + 1))}
    lines, names, new = defaultdict(set), set(), {*names_of(top)}
    while new:
        names, known, new = names | new, new, set()
        for file, tree in trees.items():
            for node in tree.body:
                used = ((n, getattr(n, "id", getattr(n, "attr", None))) for n in ast.walk(node))
                nodes = [n for n, name in used if name in known]
                if isinstance(node, DEFINITIONS) and not is_compiled(node):
                    lines[file] |= {n.lineno for n in nodes}
                elif nodes:
                    new |= {*names_of(node)} - names
    return lines


def first_line(node):
    return min([node.lineno, *(mark.lineno for mark in getattr(node, "decorator_list", []))])


def names_of(node):
    """Names that a statement at the top of a file defines."""
    if isinstance(node, DEFINITIONS):
        return [node.name]
    names = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return [name.id for name in names if isinstance(name.ctx, ast.Store)]


def run_pytest(folder, *arguments, before=("-m", "pytest"), seconds=None):
    """(exit code, output) of pytest in a process of its own; None if it takes longer."""
    env = {**os.environ, "PYTHONPATH": str(folder), "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
    options = ["-q", "-p", "no:cacheprovider", "--tb=line", "-m", "not slow"]
    options += ["-o", "addopts=--import-mode=importlib", *arguments]
    try:
        done = subprocess.run(
            [sys.executable, *before, *options], cwd=folder, env=env, timeout=seconds, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stdout


def trace(folder, chosen):
    """{(file of tests, test): (seconds, {file: lines})}; what is known of the same text is kept."""
    import coverage

    sources = sorted((ROOT / "skvt").rglob("*.py"))
    of_sources = b"".join(path.read_bytes() for path in sources)
    settings = folder / "coverage.ini"
    settings.write_text(f"[run]\ndynamic_context = test_function\nsource = {ROOT}/skvt\n"
                        f"data_file = {folder}/coverage.data\n")  # fmt: skip
    known = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        file = path.relative_to(ROOT).as_posix()
        if not file.startswith(chosen) or LEFT_OUT.match(file):
            continue
        store = folder / f"{hashlib.sha1(of_sources + path.read_bytes()).hexdigest()}.json"
        if not store.exists():
            print(f"tracing {file}", file=sys.stderr)
            before = ("-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest")
            run_pytest(ROOT, file, f"--junitxml={folder}/times.xml", before=before)
            seconds = Counter()
            for case in ElementTree.parse(folder / "times.xml").iter("testcase"):
                if not len(case):  # neither failed nor skipped
                    seconds[case.get("name").split("[")[0]] += float(case.get("time"))
            data, lines = coverage.CoverageData(f"{folder}/coverage.data"), {}
            data.read()
            for name in data.measured_files():
                for line, contexts in data.contexts_by_lineno(name).items():
                    # what runs outside of tests is imports, and fixtures that all may use
                    tests = seconds if "" in contexts else {c.split(".")[-1] for c in contexts}
                    for test in tests:
                        of_test = lines.setdefault(test, {})
                        of_test.setdefault(Path(name).relative_to(ROOT).as_posix(), []).append(line)
            store.write_text(json.dumps({t: (s, lines.get(t, {})) for t, s in seconds.items()}))
        known |= {(file, test): found for test, found in json.loads(store.read_text()).items()}
    return known


def tests_for(mutant, trees, known, budget):
    """(tests that execute the mutant, likely and quick ones first, their seconds)."""
    here, found = lines_of(mutant, trees), []
    folder, *_, stem = mutant.file.removesuffix(".py").split("/")[1:]
    for (file, test), (seconds, executed) in known.items():
        if any(not lines.isdisjoint(executed.get(name, ())) for name, lines in here.items()):
            near = stem.strip("_") in file or f"tests/{folder}/" in file
            found.append(((seconds + 0.1) * (1 if near else 4), seconds, f"{file}::{test}"))
    chosen, total = [], 0.0
    for _, seconds, test in sorted(found):
        if total + seconds <= budget:
            chosen.append(test)
            total += seconds
    return chosen, total


# ------------------------------------------------------------------------------ copies, verdicts
def importers(file, trees):
    """The files that import a file, directly or not, and itself."""
    found, new = set(), {file}
    while new:
        found |= new
        stems = {Path(name).stem if not name.endswith("__init__.py") else Path(name).parent.name
                 for name in new}  # fmt: skip
        new = {
            name for name, tree in trees.items() for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            and stems & {*(node.module or "").split("."), *(a.name for a in node.names)}
        } - found  # fmt: skip
    return found


def forget(root, files):
    """Remove what numba has compiled of some files."""
    for file in files:
        for path in (root / file).parent.glob(f"__pycache__/{Path(file).stem}.*.nb?"):
            path.unlink()


def examine(mutant, trees, known, args):
    """Run the tests on a mutant: what to write down of it."""
    copy = args.work / "copy"
    tests, seconds = tests_for(mutant, trees, known, args.budget)
    result = {"id": mutant.id, "mutant": str(mutant), "n_tests": len(tests), "by": ""}
    if not tests:
        return result | {"status": "no test"}
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", "_build", "*.egg-info"))
    forget(copy, importers(mutant.file, trees))
    (copy / mutant.file).write_text(mutant.apply((ROOT / mutant.file).read_text()))
    code, output = run_pytest(copy, "-x", "-rfE", *tests, seconds=COMPILING + 10 * seconds)
    by = re.search(r"^(?:FAILED|ERROR) (\S+)", output, flags=re.MULTILINE)
    status = {0: "survived", None: "timeout"}.get(code, "killed")
    return result | {"status": status, "by": by[1] if by else ""}


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--n", type=int, default=300, help="mutants to draw")
    add("--seed", type=int, default=0)
    add("--files", nargs="+", default=[""], help="of these only the ones in such files or folders")
    add("--at", nargs="+", metavar="FILE:LINE", help="all mutants of these lines instead")
    add("--list", action="store_true", help="print the mutants, run nothing")
    add("--rerun-survivors", action="store_true", help="survivors again, after tests were added")
    add("--budget", type=float, default=30.0, help="seconds of tests for a mutant")
    add("--tests", nargs="+", default=["tests/"], help="files or folders of tests")
    folder = Path(tempfile.gettempdir()) / "skvt-mutation"
    add("--work", type=Path, default=folder, help="copies of the tree, results")
    return parser.parse_args()


def main():
    args = arguments()
    paths = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "skvt").rglob("*.py")}
    rooms = tuple(f"skvt/{package}/" for package in PACKAGES)
    files = {f: path.read_text() for f, path in sorted(paths.items()) if f.startswith(rooms)}
    if args.at:
        every = [m for file, source in files.items() for m in mutants_of(file, source)]
        mutants = [m for m in every if f"{m.file}:{m.line}" in args.at]
        mutants = [m for m in mutants if compiles(m, files[m.file])]
    else:
        mutants = [
            m for m in drawn(files, args.n, args.seed) if m.file.startswith(tuple(args.files))
        ]
    record, results = args.work / "results.jsonl", {}
    if record.exists():
        results = {e["id"]: e for e in map(json.loads, record.read_text().splitlines())}
    if args.list:
        for mutant in mutants:
            print(results.get(mutant.id, {}).get("status", "not run").ljust(9), mutant)
        return
    trees = {file: ast.parse(path.read_text()) for file, path in paths.items()}
    (args.work / "lines").mkdir(parents=True, exist_ok=True)
    known = trace(args.work / "lines", tuple(args.tests))
    reasons, missed = tomllib.loads(EQUIVALENT.read_text()), ("survived", "no test")
    again = missed if args.rerun_survivors else ()
    noticed = Counter()
    for mutant in (mutant for mutant in mutants if mutant.id not in reasons):
        if mutant.id not in results or results[mutant.id]["status"] in again:
            results[mutant.id] = examine(mutant, trees, known, args)
            with record.open("a") as stream:
                stream.write(json.dumps(results[mutant.id]) + "\n")
        entry = results[mutant.id]
        print(f"{entry['status']:9}  {mutant}  {entry['by']}", flush=True)
        for row in (mutant.file.split("/")[1], "all"):
            noticed[row, entry["status"] not in missed] += 1
    for row in (*PACKAGES, "all"):
        print(f"{row}: {noticed[row, True]} of {noticed[row, True] + noticed[row, False]} noticed")


if __name__ == "__main__":
    main()
