"""Which wrong lines do the tests notice? Lines of the package are changed one at a time.

A mutant is the package with one small mistake: another operator, a factor left out, a bound off by
one, a statement missing. Of each file as many lines are drawn as its share of the code, and of each
line one mutant. The tests that execute the line are run on a private copy of the tree, those first
that mirror the module and take least time, and stop at the first failure. What no test notices has
survived: either it is equivalent (no result that the package promises changes; ``EQUIVALENT`` names
the reason), or a test is missing.

Which test executes which line is measured once with coverage.py, and again for files of tests that
changed (``--trace``: for all). Compiled loops are invisible to it: their tests are those that
execute a line from which the loop can be reached. Numba's cache on disk notices changes of a
function's file, not of the functions that it calls; so the compiled functions that a mutant reaches
are removed from the cache of its copy, and all others stay. Tools such as mutmut and cosmic-ray
know nothing of either: they would run stale machine code, or compile everything for each mutant.

Results are appended to a file and never computed twice: a run that was stopped is taken up again,
``--n 600`` after ``--n 300`` adds 300. Needs coverage.py and ``os.fork``.
"""

import argparse
import ast
import difflib
import functools
import hashlib
import json
import os
import pickle
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("compiled", "expfam", "models", "inference", "moves", "temperature")
# Files of tests that say nothing sharp about a line of these packages, or take very long.
LEFT_OUT = (
    "tests/plotting/", "tests/datasets/", "tests/test_docstrings.py", "tests/test_guide.py",
    "tests/test_equations.py", "tests/test_layers.py", "tests/test_metrics",
    "tests/estimators/test_common.py", "tests/estimators/test_bad_input.py",
    "tests/estimators/test_callbacks.py",
)  # fmt: skip
EQUIVALENT = Path(__file__).with_name("mutation_equivalent.toml")
# Seconds of the processor that a test may take beyond ten times its usual ones, and for compiling.
GRACE, COMPILING = 20, 90
# The same of the clock, when a test sleeps or waits for a lock; machines may be busy.
PATIENCE = 900
KEEPING = threading.Lock()


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
        """The same as long as the function holds the same text, wherever it stands."""
        what = (self.file, self.function, self.operator, self.before, self.after, self.occurrence)
        return hashlib.sha1(repr(what).encode()).hexdigest()[:8]

    def apply(self, source):
        """The mutated file; lines keep their numbers."""
        raw = source.encode()
        return (raw[: self.start] + self.after.encode() + raw[self.end :]).decode()

    def __str__(self):
        before, after = (" ".join(text.split()) for text in (self.before, self.after))
        return f"{self.id} {self.file}:{self.line} {self.operator}: `{before}` -> `{after}`"


OPERATORS = {
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
SYMMETRIC = {"max", "min", "maximum", "minimum", "add", "multiply", "array_equal"}


class _Mutations(ast.NodeVisitor):
    """All mutants of one file."""

    def __init__(self, file, source):
        self.file, self.source, self.raw = file, source, source.encode()
        self.starts = [0]
        for line in self.raw.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.scope, self.assigned, self.found = [], [set()], []
        tree = ast.parse(source)
        self.visit(tree)

    def _span(self, node):
        start = self.starts[node.lineno - 1] + node.col_offset
        return start, self.starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node):
        start, end = self._span(node)
        return self.raw[start:end].decode()

    def _edit(self, operator, start, end, after, line):
        before = self.raw[start:end].decode()
        scope = ".".join(self.scope)
        self.found.append(Mutant(self.file, scope, line, operator, start, end, before, after))

    def _expression(self, node, operator, after):
        """Another expression in the place of a node, in brackets, with as many lines."""
        start, end = self._span(node)
        before = self.raw[start:end].decode()
        after = "(" + after + "\n" * (before.count("\n") - after.count("\n")) + ")"
        self._edit(operator, start, end, after, node.lineno)

    def _statement(self, node):
        start, end = self._span(node)
        after = "pass" + "\n" * self.raw[start:end].count(b"\n")
        self._edit("statement removed", start, end, after, node.lineno)

    # --- where nothing is changed
    def _skip(self, node):
        pass

    visit_Import = visit_ImportFrom = visit_Raise = visit_JoinedStr = visit_Global = _skip

    def visit_Expr(self, node):
        if isinstance(node.value, ast.Constant):
            return
        if isinstance(node.value, ast.Call):
            self._statement(node)
            if "warn" in ast.unparse(node.value.func):
                return
        self.generic_visit(node)

    def _visit_definition(self, node):
        self.scope.append(node.name)
        self.assigned.append(set())
        if not isinstance(node, ast.ClassDef):
            arguments = node.args
            self.assigned[-1].update(a.arg for a in arguments.args + arguments.kwonlyargs)
            for default in [*arguments.defaults, *arguments.kw_defaults]:
                if default is not None:
                    self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self.scope.pop()
        self.assigned.pop()

    visit_FunctionDef = visit_ClassDef = _visit_definition

    # --- statements
    def visit_Assign(self, node):
        (target,) = node.targets[:1]
        if isinstance(target, ast.Name) and target.id == "__all__":
            return
        places = isinstance(target, (ast.Subscript, ast.Attribute))
        if self.scope and (places or getattr(target, "id", None) in self.assigned[-1]):
            self._statement(node)
        for name in ast.walk(target):
            if isinstance(name, ast.Name):
                self.assigned[-1].add(name.id)
        for part in node.targets:
            self.visit(part)
        self.visit(node.value)

    def visit_AnnAssign(self, node):
        if node.value is not None:
            self.visit(node.value)

    def visit_AugAssign(self, node):
        self._statement(node)
        symbol = OPERATORS[type(node.op)]
        start, end = self._span(node.target)[1], self._span(node.value)[0]
        between = self.raw[start:end].decode()
        for other in (SWAPPED.get(symbol), ""):
            if other is not None:
                after = between.replace(f"{symbol}=", f"{other}=", 1)
                self._edit("augmented", start, end, after, node.lineno)
        self.generic_visit(node)

    def visit_Continue(self, node):
        self._statement(node)

    visit_Break = visit_Continue

    def visit_Return(self, node):
        if isinstance(node.value, ast.Tuple) and len(node.value.elts) == 2:
            a, b = node.value.elts
            if ast.dump(a) != ast.dump(b):
                self._expression(node.value, "return", f"{self._text(b)}, {self._text(a)}")
        self.generic_visit(node)

    def visit_If(self, node):
        for value in ("True", "False"):
            self._expression(node.test, "condition", value)
        self.generic_visit(node)

    visit_IfExp = visit_If

    def visit_While(self, node):
        self._expression(node.test, "condition", "False")
        self.generic_visit(node)

    def visit_comprehension(self, node):
        for test in node.ifs:
            self._expression(test, "condition", "True")
        self.generic_visit(node)

    # --- expressions
    def visit_BinOp(self, node):
        left, right, symbol = (
            self._text(node.left),
            self._text(node.right),
            OPERATORS[type(node.op)],
        )
        if isinstance(node.left, ast.Constant) and isinstance(node.left.value, str):
            return
        for part in (left, right) if symbol in "+*@|&^" else (left,):
            self._expression(node, "operand dropped", part)
        if symbol in SWAPPED:
            self._expression(node, "operator", f"({left}) {SWAPPED[symbol]} ({right})")
        self.generic_visit(node)

    def visit_BoolOp(self, node):
        parts = [f"({self._text(value)})" for value in node.values]
        symbol = OPERATORS[type(node.op)]
        for i in range(len(parts)):
            self._expression(
                node, "operand dropped", f" {symbol} ".join(parts[:i] + parts[i + 1 :])
            )
        self._expression(node, "operator", f" {SWAPPED[symbol]} ".join(parts))
        self.generic_visit(node)

    def visit_Compare(self, node):
        parts = [f"({self._text(value)})" for value in [node.left, *node.comparators]]
        symbols = [OPERATORS[type(op)] for op in node.ops]
        for i, symbol in enumerate(symbols):
            for other in {SWAPPED[symbol], {"<": ">", ">": "<"}.get(symbol, SWAPPED[symbol])}:
                changed = [*symbols[:i], other, *symbols[i + 1 :]]
                text = parts[0]
                for op, part in zip(changed, parts[1:], strict=True):
                    text += f" {op} {part}"
                self._expression(node, "comparison", text)
        self.generic_visit(node)

    def visit_UnaryOp(self, node):
        if not isinstance(node.op, ast.UAdd):
            self._expression(node, "sign or not dropped", self._text(node.operand))
        self.generic_visit(node)

    def visit_Constant(self, node):
        value = node.value
        if isinstance(value, bool):
            others = [not value]
        elif isinstance(value, int):
            others = [value + 1, value - 1]
        elif isinstance(value, float):
            others = [value * 1.01, 2.0 * value, 0.0] if value else [1.0]
        else:
            return
        for other in others:
            self._expression(node, "constant", repr(other))

    def visit_Subscript(self, node):
        places = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for place in places:
            if isinstance(place, ast.Slice):
                for end in (place.lower, place.upper):
                    if end is not None and not isinstance(end, ast.Constant):
                        self._expression(end, "index shifted", f"{self._text(end)} + 1")
                    if end is not None:
                        start, stop = self._span(end)
                        # a whole slice instead of a part
                        if b"\n" not in self.raw[start:stop]:
                            self._edit("slice widened", start, stop, "", end.lineno)
            elif isinstance(place, (ast.Name, ast.BinOp)):
                self._expression(place, "index shifted", f"{self._text(place)} - 1")
        self.generic_visit(node)

    def visit_keyword(self, node):
        if node.arg not in ("strict", "stacklevel"):  # of zip and of warnings
            self.visit(node.value)

    def visit_Call(self, node):
        function = node.func
        name = getattr(function, "attr", getattr(function, "id", ""))
        known = isinstance(function, (ast.Attribute, ast.Name))
        if known and name in FUNCTIONS:
            start, end = self._span(function)
            text = self._text(function)[: -len(name)] + FUNCTIONS[name]
            self._edit("function", start, end, text, node.lineno)
        if known and name in OMITTED:
            method = isinstance(function, ast.Attribute) and not node.args
            if method or node.args:
                kept = function.value if method else node.args[0]
                self._expression(node, "call omitted", self._text(kept))
        plain = [a for a in node.args if not isinstance(a, ast.Starred)]
        if len(plain) >= 2 and len(plain) == len(node.args) and name not in SYMMETRIC:
            first, second = (self._span(a) for a in plain[:2])
            one, two = (self._text(a) for a in plain[:2])
            if one != two and name not in ("isinstance", "hasattr", "getattr", "lit", "range"):
                gap = self.raw[first[1] : second[0]].decode()
                self._edit("arguments swapped", first[0], second[1], two + gap + one, node.lineno)
        for keyword in node.keywords:
            self._keyword(keyword)
        self.generic_visit(node)

    def _keyword(self, keyword):
        value = keyword.value
        if keyword.arg in (None, "strict", "stacklevel"):
            return
        if keyword.arg == "axis" and isinstance(value, (ast.Constant, ast.UnaryOp)):
            axis = int(self._text(value))
            self._expression(value, "axis", str(axis + 1 if axis < 0 else abs(axis - 1)))
        start, end = self._span(keyword)
        following = re.match(rb"\s*,", self.raw[end:])
        preceding = re.search(rb",\s*$", self.raw[:start])
        if following:
            end += following.end()
        elif preceding:
            start = preceding.start()
        after = "\n" * self.raw[start:end].count(b"\n")
        self._edit("keyword dropped", start, end, after, keyword.value.lineno)


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
    """``n`` mutants: files in proportion to their lines, of each line one mutant.

    The order of a file's lines is fixed by the seed, so that a larger draw holds a smaller one.
    """
    by_file = {}
    for file, source in files.items():
        by_file[file] = defaultdict(list)
        for mutant in mutants_of(file, source):
            by_file[file][mutant.line].append(mutant)
    total, chosen, past = sum(map(len, by_file.values())), [], 0
    for file, lines in by_file.items():
        # rounded so that the shares of all files sum to n
        share = n * (past + len(lines)) // total - n * past // total
        past += len(lines)
        order = sorted(lines)
        random.Random(f"{seed} {file}").shuffle(order)
        for line in order[:share]:
            pick, by_operator = random.Random(f"{seed} {file} {line}"), defaultdict(list)
            for mutant in lines[line]:
                by_operator[mutant.operator].append(mutant)
            # first the operator: constants and dropped operands would be most of all
            candidates = []
            for operator in pick.sample(sorted(by_operator), len(by_operator)):
                candidates += pick.sample(by_operator[operator], len(by_operator[operator]))
            chosen += next(([m] for m in candidates if compiles(m, files[file])), [])
    return chosen


# ------------------------------------------------------------- what reaches what in the sources
class Reach:
    """Which compiled functions a definition ends up in, and from which lines it is reached."""

    def __init__(self, root):
        self.modules, self.users = {}, defaultdict(set)  # users: definition -> [(file, node)]
        # tests too: some compile loops of their own around compiled functions
        for path in sorted([*(root / "skvt").rglob("*.py"), *(root / "tests").rglob("test_*.py")]):
            file = path.relative_to(root).as_posix()
            self.modules[file] = ast.parse(path.read_text())
        self.compiled, self.lines = set(), defaultdict(set)
        for file, tree in self.modules.items():
            names, modules = self._imports(file, tree)
            for node in tree.body:
                for name in self._defined(node):
                    names[name] = (file, name)
            for node in tree.body:
                self._references(file, node, names, modules)

    def _imports(self, file, tree):
        names, modules = {}, {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("skvt"):
                for alias in node.names:
                    local = alias.asname or alias.name
                    module = self._find(f"{node.module}.{alias.name}")
                    if module:
                        modules[local] = module
                    elif self._find(node.module):
                        names[local] = self._origin(self._find(node.module), alias.name)
        return names, modules

    def _origin(self, file, name):
        """Where a name of a file is defined, if the file only hands it on."""
        for node in self.modules[file].body:
            if isinstance(node, ast.ImportFrom) and self._find(node.module or ""):
                for alias in node.names:
                    if name == (alias.asname or alias.name):
                        return self._origin(self._find(node.module), alias.name)
        return file, name

    def _find(self, dotted):
        path = dotted.replace(".", "/")
        for candidate in (f"{path}.py", f"{path}/__init__.py"):
            if (ROOT / candidate).exists():
                return candidate
        return None

    def _defined(self, node):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            return [node.name]
        names = (inner for inner in ast.walk(node) if isinstance(inner, ast.Name))
        return [name.id for name in names if isinstance(name.ctx, ast.Store)]

    def _references(self, file, node, names, modules):
        plain = not isinstance(node, (ast.FunctionDef, ast.ClassDef))
        if isinstance(node, ast.FunctionDef):
            marks = " ".join(ast.unparse(d).split("(")[0] for d in node.decorator_list)
            if marks and not re.search("cache|dataclass|contextmanager", marks):
                self.compiled.add((file, node.name))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            return
        for inner in ast.walk(node):
            target = None
            if isinstance(inner, ast.Name):
                target = names.get(inner.id)
            elif isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name):
                module = modules.get(inner.value.id)
                target = self._origin(module, inner.attr) if module else None
            if target is None:
                continue
            if file.startswith("tests/"):
                self.lines[target].add((file, 0))  # all tests of the file
                continue
            for name in self._defined(node):
                if target != (file, name):
                    self.users[target].add((file, name))
            function = isinstance(node, ast.FunctionDef) and (file, node.name) not in self.compiled
            if not plain and (function or isinstance(node, ast.ClassDef)):
                self.lines[target].add((file, inner.lineno))

    def dependents(self, definitions):
        """The definitions and all that use them, at whatever distance, up to classes."""
        found, waiting = set(), list(definitions)
        while waiting:
            definition = waiting.pop()
            if definition not in found:
                found.add(definition)
                waiting.extend(self.users[definition])
        return found

    def definition_at(self, file, line):
        """The node at the top of the file that holds a line, and the names that it defines."""
        for node in self.modules[file].body:
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
            if first <= line <= node.end_lineno:
                return node, {(file, name) for name in self._defined(node)}
        return None, set()

    def stale(self, definitions):
        """The compiled functions whose machine code a change of the definitions changes."""
        return self.dependents(definitions) & self.compiled

    def lines_for(self, mutant):
        """Lines (file, number) of which a test must execute one to notice the mutant."""
        node, names = self.definition_at(mutant.file, mutant.line)
        if node is None:
            return set()
        if names & self.compiled or not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found, waiting, lines = set(), list(names), set()
            while waiting:
                definition = waiting.pop()
                if definition in found:
                    continue
                found.add(definition)
                lines |= self.lines[definition]
                for user in self.users[definition]:
                    if user in self.compiled or self._is_value(user):
                        waiting.append(user)
            return lines
        return self._statement_lines(mutant.file, node, mutant.line)

    def _is_value(self, definition):
        file, name = definition
        return any(
            name in self._defined(node)
            for node in self.modules.get(file, ast.Module([])).body
            if not isinstance(node, (ast.FunctionDef, ast.ClassDef))
        )

    def _statement_lines(self, file, node, line):
        """The lines of the innermost statement; the body's where it runs at import."""
        inner = node
        while True:
            children = [
                child for child in ast.iter_child_nodes(inner)
                if isinstance(child, (ast.stmt, ast.ExceptHandler))
                and child.lineno <= line <= child.end_lineno
            ]  # fmt: skip
            if not children:
                break
            if isinstance(children[0], (ast.FunctionDef, ast.ClassDef)):
                node = children[0]
            if isinstance(children[0], (ast.Break, ast.Continue)):
                break  # of a jump the tracer sees the condition alone
            inner = children[0]
        if inner is node or (isinstance(node, ast.ClassDef)):  # a default, a field of a class
            return {(file, i) for i in range(node.lineno, node.end_lineno + 1)}
        body = getattr(inner, "body", None)
        last = body[0].lineno - 1 if isinstance(body, list) else inner.end_lineno
        return {(file, i) for i in range(inner.lineno, max(last, inner.lineno) + 1)}


# ---------------------------------------------------------------------------- copies of the tree
def tree_files():
    """The files that git tracks or would track."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    names = sorted({name for name in listed.stdout.decode().split("\0") if name})
    return [name for name in names if (ROOT / name).is_file()]


def update_base(base):
    """Bring ``base`` up to the tree; what was compiled stays where nothing it needs has changed."""
    names, changed = tree_files(), set()
    for name in names:
        source, target = ROOT / name, base / name
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            if name.startswith("skvt/") and name.endswith(".py"):
                changed.add(name)
    for path in [p for p in base.rglob("*.py") if p.relative_to(base).as_posix() not in set(names)]:
        path.unlink()
    reach = Reach(base)
    definitions = {
        (file, name)
        for file in changed
        for node in reach.modules[file].body
        for name in reach._defined(node)
    }
    forget(base, reach.stale(definitions))
    return reach


def forget(root, compiled):
    """Remove compiled functions from numba's cache."""
    for file, name in compiled:
        folder = (root / file).parent / "__pycache__"
        for path in folder.glob(f"{Path(file).stem}.{name}-*.nb?"):
            path.unlink()


def keep_compiled(copy, base, mutated, stale):
    """What was compiled in a copy for the first time, and is not that of the mutant, is kept."""
    stale = {f"{Path(file).stem}.{name}" for file, name in stale} | {Path(mutated).stem}
    for folder in (copy / "skvt").rglob("__pycache__"):
        there = base / folder.relative_to(copy)
        there.mkdir(exist_ok=True)
        for index in folder.glob("*.nbi"):
            # ``_module.function-line.py311``; the file of a changed module has another stamp
            function = index.name.split("-")[0]
            if stale.isdisjoint({function, function.split(".")[0]}):
                if not (there / index.name).exists():
                    for path in folder.glob(index.name.removesuffix("nbi") + "*nb?"):
                        shutil.copyfile(path, there / path.name)


def keep_others(file, stale):
    """Mark what is cached of the unchanged functions of a changed file as that of this file."""
    module = sys.modules[file.removesuffix(".py").replace("/", ".")]
    for name, value in vars(module).items():
        cache = getattr(getattr(value, "_cache", None), "_cache_file", None)
        if cache is None or value.__module__ != module.__name__ or (file, name) in stale:
            continue
        index = Path(cache._index_path)
        if index.exists():
            with index.open("rb") as stream:
                pickle.load(stream)
                _, overloads = pickle.loads(stream.read())
            cache._save_index(overloads)


# ------------------------------------------------------------------------------- running tests
def import_what_is_slow():
    """What all tests need and no mutant changes: children of this process have it already."""
    import joblib  # noqa: F401
    import numba  # noqa: F401
    import pytest  # noqa: F401
    import scipy.optimize
    import scipy.sparse
    import scipy.stats  # noqa: F401
    import sklearn.base
    import sklearn.metrics
    import sklearn.utils.estimator_checks  # noqa: F401


def run_pytest(arguments, plugin):
    """In this process, in the current folder."""
    import pytest

    sys.path.insert(0, os.getcwd())
    os.environ["PYTHONPATH"] = os.getcwd()
    os.environ.setdefault("MPLBACKEND", "Agg")
    options = ["-q", "-p", "no:cacheprovider", "--tb=line", "-m", "not slow"]
    addopts = "addopts=--import-mode=importlib"
    return int(pytest.main([*options, "-o", addopts, *arguments], plugins=[plugin]))


def in_child(function, log, seconds):
    """Call ``function`` in a forked child: (exit code or None if it was killed, CPU seconds)."""
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            os.setsid()
            file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, 1)
            os.dup2(file, 2)
            code = function()
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(code)
    began = time.monotonic()
    while True:
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            break
        if time.monotonic() - began > seconds:
            os.killpg(pid, signal.SIGKILL)
            _, status, usage = os.wait4(pid, 0)
            break
        time.sleep(0.02)
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
    return code, usage.ru_utime + usage.ru_stime


def _wrapper(hook):
    """What ``pytest.hookimpl(wrapper=True)`` does; pytest is imported late."""
    hook.pytest_impl = {
        "wrapper": True, "hookwrapper": False, "optionalhook": False, "tryfirst": False,
        "trylast": False, "specname": None,
    }  # fmt: skip
    return hook


class Tracing:
    """A plugin of pytest: which lines of the package each test executes, and its CPU seconds."""

    def __init__(self, base):
        self.base, self.seconds, self.fixtures = base, {}, defaultdict(set)
        self.failed = set()

    def start(self):
        """Begin to trace."""
        import coverage

        self.coverage = coverage.Coverage(
            data_file=None, include=[f"{self.base}/skvt/*"], branch=False, config_file=False
        )
        self.coverage.start()

    @_wrapper
    def pytest_runtest_protocol(self, item, nextitem):
        """A context for each test."""
        for module in [m for n, m in sys.modules.items() if n.startswith("skvt")]:
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear"):
                    value.cache_clear()  # else the first test alone would execute these lines
        self.coverage.switch_context(item.nodeid)
        began = time.process_time()
        result = yield
        self.seconds[item.nodeid] = time.process_time() - began
        self.coverage.switch_context("")
        return result

    @_wrapper
    def pytest_fixture_setup(self, fixturedef, request):
        """A context for each fixture that several tests share."""
        if fixturedef.scope == "function":
            return (yield)
        context = f"{request.node.nodeid}::{fixturedef.argname}"
        self.coverage.switch_context(context)
        for item in request.session.items:
            if item.nodeid.startswith(request.node.nodeid):
                self.fixtures[item.nodeid].add(context)
        result = yield
        self.coverage.switch_context(request._pyfuncitem.nodeid)
        return result

    def pytest_runtest_logreport(self, report):
        """Remember who failed."""
        if report.failed:
            self.failed.add(report.nodeid)

    def lines(self):
        """{test: {file: lines}} of those that pass."""
        self.coverage.stop()
        data, found = self.coverage.get_data(), defaultdict(dict)
        for path in data.measured_files():
            file = Path(path).relative_to(self.base).as_posix()
            for line, contexts in data.contexts_by_lineno(path).items():
                for context in contexts:
                    found[context].setdefault(file, set()).add(line)
        result = {}
        for test in self.seconds.keys() - self.failed:
            lines = defaultdict(set)
            for context in (test, *self.fixtures[test]):
                for file, numbers in found[context].items():
                    lines[file] |= numbers
            result[test] = {file: sorted(numbers) for file, numbers in lines.items()}
        return result


def digest(path):
    """A name for the text of a file."""
    return hashlib.sha1(path.read_bytes()).hexdigest()


def trace(base, store, chosen, forced, log):
    """Update the map from tests to lines: {test file: {"digests", "tests": {name: (s, lines)}}}.

    ``digests`` name the sources as they were, which are kept: lines that have moved are found.
    """
    known = json.loads(store.read_text()) if store.exists() else {}
    sources = store.with_name("sources")
    sources.mkdir(exist_ok=True)

    files = [
        path.relative_to(base).as_posix()
        for path in sorted((base / "tests").rglob("test_*.py"))
        if path.relative_to(base).as_posix().startswith(chosen)
        and not path.relative_to(base).as_posix().startswith(LEFT_OUT)
    ]
    old = [
        file
        for file in files
        if forced or file not in known or digest(base / file) != known[file]["digests"][file]
    ]
    part = store.with_suffix(".part")
    for file in old:
        print(f"tracing {file}", file=sys.stderr)

        def child(file=file):
            os.chdir(base)
            tracing = Tracing(base)
            tracing.start()
            code = run_pytest([file], tracing)
            part.write_text(json.dumps([tracing.lines(), tracing.seconds, *tracing.failed]))
            return code

        code, _ = in_child(child, log, 24 * 3600)
        if code not in (0, 1, 5):
            raise SystemExit(f"The tests of the unchanged package do not run, see {log}.")
        lines, seconds, *failed = json.loads(part.read_text())
        for test in failed:
            print(f"fails without any mutant, left out: {test}", file=sys.stderr)
        tests = {test: (seconds[test], lines[test]) for test in lines}
        used = {f for _, parts in tests.values() for f in parts}
        for name in used:
            shutil.copyfile(base / name, sources / digest(base / name))
        known[file] = {"digests": {f: digest(base / f) for f in {file, *used}}, "tests": tests}
        store.write_text(json.dumps(known))
    return {file: known[file] for file in files}


class Verdict:
    """A plugin of pytest: the first test that fails; none may take far longer than usual."""

    def __init__(self, path, seconds, compiling):
        self.path, self.seconds, self.compiling = path, seconds, compiling

    def pytest_runtest_logstart(self, nodeid, location):
        """Give this test its time."""
        Path(self.path).write_text(nodeid)
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = used.ru_utime + used.ru_stime + GRACE + 10 * self.seconds.get(nodeid, 1.0)
        limit += COMPILING if self.compiling else 0
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, resource.RLIM_INFINITY))

    def pytest_runtest_logreport(self, report):
        """Remember who failed."""
        if report.failed:
            Path(self.path).write_text(f"{report.nodeid} failed")


@functools.cache
def _moved(before, after):
    """For each line of a file, numbered from 1, that of an earlier version of it."""
    one, two = before.read_text().splitlines(), after.read_text().splitlines()
    places = [0] * (len(two) + 1)
    for block in difflib.SequenceMatcher(None, one, two, autojunk=False).get_matching_blocks():
        for i in range(block.size):
            places[block.b + i + 1] = block.a + i + 1
    for i in range(1, len(places)):  # of a new line, that of the one before
        places[i] = places[i] or places[i - 1]
    return places


def tests_for(mutant, reach, known, killers, work, budget):
    """Tests that execute the mutant, likely and quick ones first, for so many CPU seconds."""
    here = defaultdict(set)
    for file, line in reach.lines_for(mutant):
        here[file].add(line)
    folder, *room, stem = mutant.file.split("/")[1:]
    stems = [*room[:1], stem.strip("_").removesuffix(".py")]
    found, mirroring = [], []
    for file, entry in known.items():
        weight = 0.3 if any(f"tests/{folder}/test_{stem}" in file for stem in stems) else 1.0
        weight *= 1.0 if f"tests/{folder}/" in file else 4.0
        lines, ranks = {}, Counter()
        for name in here.keys() & entry["digests"].keys():
            lines[name] = here[name]
            if name.startswith("skvt/"):
                before, after = work / "sources" / entry["digests"][name], work / "base" / name
                places = _moved(before, after) if digest(after) != before.name else None
                lines[name] = {places[i] for i in here[name]} if places else here[name]
        executing = {
            test: seconds
            for test, (seconds, executed) in entry["tests"].items()
            if file in lines
            or any(not numbers.isdisjoint(executed.get(f, ())) for f, numbers in lines.items())
        }
        for test, seconds in sorted(executing.items(), key=lambda pair: pair[1]):
            # of a test with many parameters the first few come early
            function = test.split("[")[0]
            ranks[function] += 1
            order = weight * (seconds + 0.02) * ranks[function]
            order *= 0.2 if killers[mutant.file, function] else 1.0
            found.append((order, test, seconds))
        if weight < 1.0:
            mirroring += [(seconds, test, seconds) for test, (seconds, _) in entry["tests"].items()]
    found = found or mirroring  # what a thread that is not traced executes, or another process
    chosen, total = [], 0.0
    for _, test, seconds in sorted(found):
        if total + seconds <= budget:
            chosen.append(test)
            total += seconds + 0.01
    return chosen, {test: seconds for _, test, seconds in found}


def examine(mutant, worker, reach, known, killers, args):
    """Run the tests on a mutant: what to write down of it."""
    base, copy = args.work / "base", args.work / f"copy{worker}"
    tests, seconds = tests_for(mutant, reach, known, killers, args.work, args.budget)
    result = {
        "id": mutant.id, "file": mutant.file, "line": mutant.line, "operator": mutant.operator,
        "before": mutant.before, "after": mutant.after, "n_tests": len(tests), "cpu": 0.0,
        "function": mutant.function,
    }  # fmt: skip
    if not tests:
        return result | {"status": "no test", "by": None}
    if copy.exists():
        shutil.rmtree(copy)
    shutil.copytree(base, copy, ignore=shutil.ignore_patterns("*.tmp.*"))
    _, names = reach.definition_at(mutant.file, mutant.line)
    node, _ = reach.definition_at(mutant.file, mutant.line)
    stale = reach.stale(set() if isinstance(node, ast.ClassDef) else names)
    forget(copy, stale)
    source = (base / mutant.file).read_text()
    (copy / mutant.file).write_text(mutant.apply(source))
    verdict, log = args.work / f"verdict{worker}", args.work / "logs" / f"{mutant.id}.txt"
    log.parent.mkdir(exist_ok=True)
    verdict.write_text("import")

    def child():
        os.chdir(copy)
        sys.path.insert(0, str(copy))
        __import__("skvt")
        name = mutant.file.removesuffix(".py").replace("/", ".")
        __import__(name)
        keep_others(mutant.file, stale)
        plugin = Verdict(verdict, seconds, bool(stale))
        resource.setrlimit(resource.RLIMIT_AS, (12 << 30, resource.RLIM_INFINITY))
        return run_pytest([*tests, "-x"], plugin)

    code, cpu = in_child(child, log, PATIENCE)
    with KEEPING:
        keep_compiled(copy, base, mutant.file, stale)
    by = verdict.read_text()
    if code == 0:
        status, by = "survived", None
    elif code in (-signal.SIGXCPU, -signal.SIGKILL):
        status = "timeout"
    elif code < 0:
        status = "crash"
    else:
        status = "killed"
    return result | {"status": status, "by": by, "cpu": round(cpu, 1)}


# --------------------------------------------------------------------------------------- report
def equivalents():
    """{id: reason} of the mutants that change no result that is promised."""
    return tomllib.loads(EQUIVALENT.read_text()) if EQUIVALENT.exists() else {}


def report(mutants, results, reasons):
    """Print the score of each package and what survived."""
    rows, survived = defaultdict(Counter), []
    for mutant in mutants:
        result = results.get(mutant.id)
        package = mutant.file.split("/")[1]
        if result is None:
            status = "not run"
        elif result["status"] in ("survived", "no test"):
            status = "equivalent" if mutant.id in reasons else "survived"
            if status == "survived":
                survived.append((mutant, result))
        else:
            status = "timeouts" if result["status"] == "timeout" else "killed"
        for row in (package, "all"):
            rows[row][status] += 1
            rows[row]["made"] += 1
            rows[row]["cpu"] += result["cpu"] if result else 0.0
    columns = ["made", "equivalent", "killed", "timeouts", "survived", "not run"]
    print(f"{'':12}" + "".join(f"{c:>12}" for c in [*columns, "score %", "CPU s each"]))
    for row in (*PACKAGES, "all"):
        c = rows[row]
        tried = c["killed"] + c["timeouts"] + c["survived"]
        score = 100.0 * (c["killed"] + c["timeouts"]) / tried if tried else float("nan")
        ran = max(1, c["made"] - c["not run"])
        numbers = "".join(f"{c[name]:12d}" for name in columns)
        print(f"{row:12}{numbers}{score:12.1f}{c['cpu'] / ran:12.1f}")
    for mutant, result in survived:
        note = "no test executes it" if result["status"] == "no test" else result["n_tests"]
        print(f"survived ({note}): {mutant}")


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--n", type=int, default=300, help="mutants to draw")
    add("--seed", type=int, default=0)
    add("--files", nargs="+", help="of these only the ones in such files or folders")
    add("--at", nargs="+", metavar="FILE:LINE", help="all mutants of these lines instead")
    add("--only", nargs="+", metavar="ID", help="these mutants instead")
    add("--list", action="store_true", help="print the mutants, run nothing")
    add("--rerun-survivors", action="store_true", help="survivors again, after tests were added")
    add("--trace", action="store_true", help="measure again which tests execute which lines")
    add("--budget", type=float, default=30.0, help="CPU seconds of tests for a mutant")
    add("--limit", type=int, help="stop after so many mutants")
    add("--tests", nargs="+", default=["tests/"], help="files or folders of tests")
    add("--workers", type=int, default=1)
    folder = Path(tempfile.gettempdir()) / "skvt-mutation"
    add("--work", type=Path, default=folder, help="copies of the tree, results, logs")
    return parser.parse_args()


def main():
    args = arguments()
    args.work.mkdir(parents=True, exist_ok=True)
    files = {
        path.relative_to(ROOT).as_posix(): path.read_text()
        for package in PACKAGES
        for path in sorted((ROOT / "skvt" / package).rglob("*.py"))
    }
    if args.at or args.only:
        mutants = [m for file, source in files.items() for m in mutants_of(file, source)]
        at = args.at or []
        mutants = [m for m in mutants if f"{m.file}:{m.line}" in at or m.id in (args.only or [])]
        mutants = [m for m in mutants if compiles(m, files[m.file])]
    else:
        mutants = drawn(files, args.n, args.seed)
    if args.files:
        mutants = [m for m in mutants if m.file.startswith(tuple(args.files))]
    record = args.work / "results.jsonl"
    results = {}
    if record.exists():
        for line in record.read_text().splitlines():
            entry = json.loads(line)
            results[entry["id"]] = entry
    reasons = equivalents()
    if args.list:
        for mutant in mutants:
            print(results.get(mutant.id, {}).get("status", "not run").ljust(9), mutant)
        return
    import_what_is_slow()
    base = args.work / "base"
    reach = update_base(base)
    store, log = args.work / "map.json", args.work / "trace.txt"
    known = trace(base, store, tuple(args.tests), args.trace, log)
    killers = Counter(
        (entry["file"], (entry["by"] or "").split("[")[0].removesuffix(" failed"))
        for entry in results.values()
    )
    missed = ("survived", "no test")
    waiting = [
        mutant
        for mutant in mutants
        if mutant.id not in reasons
        and (
            mutant.id not in results
            or (args.rerun_survivors and results[mutant.id]["status"] in missed)
        )
    ]  # fmt: skip
    if not args.at and not args.only:
        random.Random(args.seed).shuffle(waiting)
    waiting = waiting[: args.limit]
    _run(waiting, reach, known, killers, results, record, args)
    report(mutants, results, reasons)


def _run(waiting, reach, known, killers, results, record, args):
    """Examine the mutants, several side by side in processes of their own."""
    import concurrent.futures as futures
    import queue

    idle = queue.SimpleQueue()
    for worker in range(args.workers):
        idle.put(worker)

    def one(mutant):
        worker = idle.get()
        try:
            return mutant, examine(mutant, worker, reach, known, killers, args)
        finally:
            idle.put(worker)

    with futures.ThreadPoolExecutor(args.workers) as pool:
        tasks = [pool.submit(one, mutant) for mutant in waiting]
        for task in futures.as_completed(tasks):
            mutant, entry = task.result()
            results[mutant.id] = entry
            killers[mutant.file, (entry["by"] or "").split("[")[0].removesuffix(" failed")] += 1
            with record.open("a") as stream:
                stream.write(json.dumps(entry) + "\n")
            print(f"{entry['status']:9} {entry['cpu']:6.1f} s  {mutant}  {entry['by'] or ''}",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
