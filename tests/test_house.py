"""The code keeps the rules of doc/architecture.md, and functions and classes stay small."""

import ast
import functools
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "skvt"
MAX_LINES = 55
MAX_DEPTH = 3
# A method with at most this many statements is a default, which a subclass may replace.
MAX_STATEMENTS_OF_DEFAULT = 4
# Decorators of compiled functions. These may be long, because shorter ones compile more slowly.
COMPILED = {"jit", "jit_allocating", "jit_inlined", "jit_inlined_allocating"}
# In these folders no code looks for methods by `hasattr`.
COLLABORATORS = "contracts", "inference", "moves", "models", "expfam", "temperature"
# Questions that are allowed, with the reason.
ALLOWED = {
    ("inference/_blas.py", "hasattr(os, 'register_at_fork')"): "the operating system's",
    ("readers/_table_blocks.py", "isinstance(component, ComponentSpec)"): "a parameter of the user",
    ("inference/_memos.py", "isinstance(memos, Memos)"): "its own kind, whose sums it shares",
    ("inference/_parallel.py", "isinstance(tasks, SharedLoop)"): "tasks, or what makes them",
    ("models/lda/_collapsed.py", "isinstance(global_params, TopicCounts)"): "counts, or topics",
}


@functools.cache
def sources():
    """(path within the package, text) of all modules."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return [(path.relative_to(PACKAGE).as_posix(), path.read_text("utf-8")) for path in paths]


@functools.cache
def nodes(source):
    """All nodes of the syntax tree of a source."""
    return list(ast.walk(ast.parse(source)))


@functools.cache
def bases_of_classes():
    """The names of the bases of each class in the package, by the name of the class."""
    return {
        node.name: [ast.unparse(base).split("[")[0] for base in node.bases]
        for _, source in sources()
        for node in nodes(source)
        if isinstance(node, ast.ClassDef)
    }


def is_compiled(node):
    return bool({part.id for part in node.decorator_list if isinstance(part, ast.Name)} & COMPILED)


def lines_of_code(node, lines):
    """Count the lines of a function without its docstring and without lines of comments."""
    first = node.body[0]
    described = ast.get_docstring(node) is not None
    n_lines = node.end_lineno - node.lineno + 1
    n_comments = sum(line.lstrip().startswith("#") for line in lines[node.lineno : node.end_lineno])
    return n_lines - n_comments - described * (first.end_lineno - first.lineno + 1)


def questions(source):
    """Calls of hasattr, getattr and isinstance."""
    for node in nodes(source):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in {"hasattr", "getattr", "isinstance"}:
                yield ast.unparse(node)


def test_no_code_asks_for_the_class_or_the_methods_of_a_part():
    ours = set(bases_of_classes())
    found = {
        (path, call)
        for path, source in sources()
        for call in questions(source)
        if {part.id for part in nodes(call) if isinstance(part, ast.Name)} & ours
        or (call.startswith("hasattr") and path.startswith(COLLABORATORS))
    }
    assert found == set(ALLOWED), "capabilities are declared, see skvt.contracts.Capability"


def test_a_function_fits_on_a_screen():
    """The constructors of estimators list their parameters as scikit-learn does."""
    lengths = {
        (path, node.name): lines_of_code(node, source.splitlines())
        for path, source in sources()
        for node in nodes(source)
        if isinstance(node, ast.FunctionDef)
        and not is_compiled(node)
        and not (path.startswith("_estimators/") and node.name == "__init__")
    }
    assert not {place: length for place, length in lengths.items() if length > MAX_LINES}


def test_a_class_has_few_generations_of_ancestors():
    """A mixin does not count, because it adds methods beside the line of descent."""
    bases = bases_of_classes()

    def depth(name):
        above = [base for base in bases[name] if base in bases and not base.endswith("Mixin")]
        return 1 + max(map(depth, above), default=0)

    assert not {name: depth(name) for name in bases if depth(name) > MAX_DEPTH}


def test_concrete_methods_are_extended_and_not_replaced():
    """Models and families are left out, because their methods are the formulas of one interface."""
    classes = {
        node.name: node
        for path, source in sources()
        if not path.startswith(("models/", "expfam/"))
        for node in nodes(source)
        if isinstance(node, ast.ClassDef)
    }
    methods = {
        name: {part.name: part for part in node.body if isinstance(part, ast.FunctionDef)}
        for name, node in classes.items()
    }
    bases = {name: above for name, above in bases_of_classes().items() if name in classes}

    def count_statements(method):
        number = sum(isinstance(node, ast.stmt) for node in ast.walk(method)) - 1
        return number - (ast.get_docstring(method) is not None)

    def replaced_methods(name, ancestor):
        for base in filter(classes.get, bases[ancestor]):
            for method, body in methods[name].items():
                inherited = methods[base].get(method)
                extends = f"super().{method}" in ast.unparse(body) or method.startswith("__")
                is_default = inherited and count_statements(inherited) <= MAX_STATEMENTS_OF_DEFAULT
                if inherited and not extends and not is_default:
                    yield name, method, base
            yield from replaced_methods(name, base)

    assert not [each for name in classes for each in replaced_methods(name, name)]
