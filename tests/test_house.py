"""House rules of functions: few parameters, and no questions about what somebody else is."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "skvt"
ROOMS = ("inference", "moves", "models", "temperature", "expfam", "estimators")
MOST_PARAMETERS = 7
# Compiled functions work on arrays, which cannot be bundled without a copy or a longer compilation.
COMPILED = {"jit", "part", "inner", "inlined"}

# Collaborators say what they can do; nobody asks what they are. What is not a collaborator:
QUESTIONED = {"inference", "moves", "models"}
ALLOWED = {
    ("inference/_loop.py", "getattr(entry, name)"): "a NamedTuple's fields by their names",
    ("inference/_memos.py", "isinstance(memos, Memos)"): "its own kind, whose sums it shares",
    ("inference/_parallel.py", "hasattr(os, 'register_at_fork')"): "the operating system's",
    ("inference/_parallel.py", "isinstance((job := jobs.get()), tuple)"): "a job, or the end",
    ("inference/_parallel.py", "isinstance(tasks, SharedLoop)"): "tasks, or what makes them",
    ("inference/_parallel.py", "getattr(backend, 'supports_sharedmem', False)"): "joblib's",
    ("models/lda/_model.py", "getattr(_scratch, 'arrays', {})"): "a thread's first call has none",
    ("models/lda/_model.py", "isinstance(global_params, ExpectedLog)"): "numbers, or not yet",
}


def too_long(path, source):
    """(name, number of parameters) of functions with too many, receivers not counted."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        names = {part.id for part in node.decorator_list if isinstance(part, ast.Name)}
        # (scikit-learn's parameters of estimators are one by one)
        if names & COMPILED or (path.startswith("estimators/") and node.name == "__init__"):
            continue
        spec = node.args
        parameters = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg]
        given = [part.arg for part in parameters if part is not None]
        number = len(given) - (given[:1] in (["self"], ["cls"]))
        if number > MOST_PARAMETERS:
            found.append((node.name, number))
    return found


def questions(source):
    """Calls of hasattr, getattr and isinstance."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in {"hasattr", "getattr", "isinstance"}:
                yield ast.unparse(node)


def sources():
    """(path within the package, its text) of all modules of the rooms."""
    for room in ROOMS:
        for path in sorted((PACKAGE / room).rglob("*.py")):
            yield path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8")


def test_functions_have_few_parameters():
    found = {path: long for path, source in sources() if (long := too_long(path, source))}
    assert not found, f"bundle what belongs together: {found}"


def test_nobody_asks_what_a_collaborator_is():
    found = {
        (path, call)
        for path, source in sources()
        if path.split("/")[0] in QUESTIONED
        for call in questions(source)
    }
    assert found == set(ALLOWED), "capabilities are declared, see skvt.models.Capability"


@pytest.mark.parametrize(
    ("path", "source", "number"),
    [
        ("models/_a.py", "def f(a, b, c, d, e, f, g): ...", 0),
        ("models/_a.py", "def f(a, b, c, d, e, /, f, *args, g, **others): ...", 9),
        ("models/_a.py", "class A:\n    def f(self, a, b, c, d, e, f, g): ...", 0),
        ("models/_a.py", "class A:\n    def __init__(self, a, b, c, d, e, f, g, h): ...", 8),
        ("estimators/_a.py", "class A:\n    def __init__(self, a, b, c, d, e, f, g, h): ...", 0),
        ("models/_a.py", "@jit\ndef f(a, b, c, d, e, f, g, h): ...", 0),
        ("models/_a.py", "@property\ndef f(a, b, c, d, e, f, g, h): ...", 8),
    ],
)
def test_long_signatures_are_counted_as_callers_see_them(path, source, number):
    assert [found for _, found in too_long(path, source)] == [number] * (number > 0)
