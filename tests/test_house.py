"""House rules of functions and classes: few parameters, short, no questions about collaborators."""

import ast
import functools
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "skvt"
MAX_PARAMETERS = 7
MAX_LINES = 55
DEEPEST = 3
# Statements of a default, which a subclass may replace.
MAX_OF_DEFAULT = 4
MAX_ANCESTORS = 5
# Compiled functions work on arrays, which cannot be bundled without a copy or a longer compilation.
COMPILED = {"jit", "jit_allocating", "jit_inlined", "jit_inlined_allocating"}

# Nobody asks which of our classes an object is, nor do collaborators ask for attributes, with these
# exceptions.
COLLABORATORS = "contracts", "inference", "moves", "models", "expfam", "temperature"
ALLOWED = {
    ("inference/_blas.py", "hasattr(os, 'register_at_fork')"): "the operating system's",
    ("readers/_table_blocks.py", "isinstance(component, ComponentSpec)"): "a parameter of the user",
    ("inference/_memos.py", "isinstance(memos, Memos)"): "its own kind, whose sums it shares",
    ("inference/_parallel.py", "isinstance(tasks, SharedLoop)"): "tasks, or what makes them",
    ("models/lda/_collapsed.py", "isinstance(global_params, TopicCounts)"): "counts, or topics",
}
# What users call with a keyword for each thing, as they do scikit-learn's functions of this kind.
FOR_USERS = {
    "datasets/_topics.py": {"make_topic_corpus"},
    "metrics/_topics.py": {"held_out_log_likelihood"},
    "_results/_effects.py": {"covariate_effects"},
    "_results/_outcomes.py": {"outcome_by_cluster"},
    "_results/topic_tables.py": {"topic_table"},
    "plotting/_components.py": {"plot", "from_estimator"},
    "plotting/_effects.py": {"from_estimator"},
    "plotting/_explorer.py": {"topic_explorer"},
    "plotting/_profiles.py": {"from_estimator"},
}
# A decorator.
HANDED_THROUGH = {
    ("fitting/_twin.py", "on_a_twin"),
    ("_sklearn_private/_callbacks.py", "fit_and_tear_down"),
    ("readers/chunks.py", "apply_to_rows"),
    # (options of ``plot``, which documents and checks them)
    ("plotting/_effects.py", "from_data"),
    ("plotting/_effects.py", "from_estimator"),
    *(
        (f"plotting/_{name}.py", "from_estimator")
        for name in ("clusters", "components", "history", "profiles", "topics")
    ),
}


@functools.cache
def nodes(source):
    """All nodes of a source, which is read once for all rules."""
    return list(ast.walk(ast.parse(source)))


def is_compiled(node):
    return bool({part.id for part in node.decorator_list if isinstance(part, ast.Name)} & COMPILED)


def too_long(path, source):
    """(name, number of parameters) of functions with too many, receivers not counted."""
    found = []
    for node in nodes(source):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        # (parameters of estimators, and of components, are one by one as in scikit-learn)
        own = path.startswith(("_estimators/", "components/")) and node.name == "__init__"
        if is_compiled(node) or own:
            continue
        if node.name in FOR_USERS.get(path, ()) and len(node.args.args) <= MAX_PARAMETERS:
            continue
        spec = node.args
        parameters = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg]
        given = [part.arg for part in parameters if part is not None]
        number = len(given) - (given[:1] in (["self"], ["cls"]))
        if number > MAX_PARAMETERS:
            found.append((node.name, number))
    return found


def questions(source):
    """Calls of hasattr, getattr and isinstance."""
    for node in nodes(source):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in {"hasattr", "getattr", "isinstance"}:
                yield ast.unparse(node)


def lines_of_code(node, lines):
    """Count the lines of a function without its docstring and without lines of comments."""
    first = node.body[0]
    described = ast.get_docstring(node) is not None
    n_lines = node.end_lineno - node.lineno + 1
    n_comments = sum(line.lstrip().startswith("#") for line in lines[node.lineno : node.end_lineno])
    return n_lines - n_comments - described * (first.end_lineno - first.lineno + 1)


def handed_through(source):
    """Functions that hand keywords on which they do not know."""
    for node in nodes(source):
        if isinstance(node, ast.FunctionDef) and node.args.kwarg is not None:
            unknown = f"**{node.args.kwarg.arg}"
            calls = [part for part in ast.walk(node) if isinstance(part, ast.Call)]
            if any(unknown in ast.unparse(call) for call in calls):
                yield node.name


@functools.cache
def bases_of_classes():
    """The package's classes with their bases, by name."""
    return {
        node.name: [ast.unparse(base).split("[")[0] for base in node.bases]
        for _, source in sources()
        for node in nodes(source)
        if isinstance(node, ast.ClassDef)
    }


@functools.cache
def sources():
    """(path within the package, its text) of all modules."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return [(path.relative_to(PACKAGE).as_posix(), path.read_text("utf-8")) for path in paths]


@pytest.mark.slow
def test_functions_have_few_parameters():
    found = {path: long for path, source in sources() if (long := too_long(path, source))}
    assert not found, f"bundle what belongs together: {found}"


def test_nobody_asks_what_something_is():
    ours = set(bases_of_classes())
    found = {
        (path, call)
        for path, source in sources()
        for call in questions(source)
        if {part.id for part in nodes(call) if isinstance(part, ast.Name)} & ours
        or (call.startswith("hasattr") and path.startswith(COLLABORATORS))
    }
    assert found == set(ALLOWED), "capabilities are declared, see skvt.contracts.Capability"


def test_functions_fit_a_screen():
    long = {
        (path, node.name): lines_of_code(node, source.splitlines())
        for path, source in sources()
        for node in nodes(source)
        if isinstance(node, ast.FunctionDef)
        and not is_compiled(node)
        # (scikit-learn's parameters of estimators are one by one)
        and not (path.startswith("_estimators/") and node.name == "__init__")
    }
    assert not {place: lines for place, lines in long.items() if lines > MAX_LINES}


def test_unknown_keywords_are_not_handed_through():
    found = {(path, name) for path, source in sources() for name in handed_through(source)}
    assert found == HANDED_THROUGH


def test_inheritance_is_shallow():
    bases = bases_of_classes()

    def depth(name):
        # (a mixin adds methods beside the line of descent)
        above = [base for base in bases[name] if base in bases and not base.endswith("Mixin")]
        return 1 + max(map(depth, above), default=0)

    assert not {name: depth(name) for name in bases if depth(name) > DEEPEST}


def test_estimators_have_few_ancestors():
    bases = bases_of_classes()

    def ancestors(name):
        # (callbacks are scikit-learn's from 1.9 on)
        ours = {base for base in bases[name] if base in bases} - {"CallbackSupportMixin"}
        return ours.union(*map(ancestors, ours))

    found = {name: ancestors(name) for name in bases if "VariationalEstimator" in ancestors(name)}
    assert not {name: above for name, above in found.items() if len(above) > MAX_ANCESTORS}


def test_methods_that_work_are_extended_and_not_replaced():
    """Models and families apart, whose methods are formulas of one interface."""
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

    def statements(method):
        number = sum(isinstance(node, ast.stmt) for node in ast.walk(method)) - 1
        return number - (ast.get_docstring(method) is not None)

    def replaced(name, above):
        for base in filter(classes.get, bases[above]):
            for method, body in methods[name].items():
                default = methods[base].get(method)
                extends = f"super().{method}" in ast.unparse(body) or method.startswith("__")
                if default and not extends and statements(default) > MAX_OF_DEFAULT:
                    yield name, method, base
            yield from replaced(name, base)

    assert not [each for name in classes for each in replaced(name, name)]
