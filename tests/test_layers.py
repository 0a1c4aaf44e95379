"""Imports between folders follow the layers of doc/architecture.md."""

import ast
import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def layers():
    """The folders of each layer in the drawing of the architecture page, from top to bottom."""
    page = (ROOT / "doc" / "architecture.md").read_text(encoding="utf-8")
    drawing = page.split("## The layers\n")[1].split("```")[1]
    return [re.split(r" {2,}", line)[0].split(", ") for line in drawing.split("\n")[1:-1]]


LAYER_OF = {
    folder: layer for layer, folders in enumerate([["__init__"], *layers()]) for folder in folders
}
# Helpers beside the layers, and the folders that may import each of them.
LEAVES = {
    "_sklearn_private": {"_estimators", "fitting", "readers", "components", "_results"},
    "schedules": {"_estimators", "fitting", "inference", "monitoring"},
    "monitoring": {"fitting", "inference"},
    "posterior": {"_estimators", "_results"},
}
# What each helper may import.
OF_LEAVES = {
    "posterior": {"expfam", "typing"}, "monitoring": {"_stages"}, "schedules": {"files"}
}  # fmt: skip
# These folders import from every layer, and no layer imports them.
BESIDE = {"metrics", "datasets", "plotting", "io", "callbacks"}
FOLDERS = {*LAYER_OF, *LEAVES, *BESIDE}

# Only the functions that need these packages import them, because they are no dependencies of skvt.
LOADED_ON_DEMAND = {
    "matplotlib", "pandas", "polars", "pyarrow", "gensim", "tomotopy", "rich",
    "dask", "distributed", "formulaic", "pyLDAvis",
}  # fmt: skip


def modules(package):
    """(dotted name, path) of every module under the folder of the package."""
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


@functools.cache
def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imports(name, path):
    """(dotted target, line, whether importing the module runs it) of every import."""
    package, found = name if path.name == "__init__.py" else name.rpartition(".")[0], []
    for node, at_import in _statements(parsed(path).body):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            targets = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        found += [(target, node.lineno, at_import) for target in targets]
    return found


def _statements(body, at_import=True):
    """(statement, whether importing the module runs it) of a body and of the bodies in it."""
    for node in body:
        yield node, at_import
        runs = at_import and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for field in ("body", "handlers", "orelse", "finalbody", "cases"):
            yield from _statements(getattr(node, field, ()), runs)


def folder_of(target):
    """The folder of a dotted name under skvt: `skvt.models.lda._model.LDA` lies in `models`."""
    parts = target.split(".")[1:3]
    if ".".join(parts) in LAYER_OF:
        return ".".join(parts)
    return parts[0] if parts and parts[0] in FOLDERS else "__init__"


def breach(folder_from, folder_to, at_import):
    """What is wrong with an import from one folder into another, or None."""
    if folder_from == folder_to:
        return None
    if folder_to in LEAVES:
        users = sorted(LEAVES[folder_to])
        return None if folder_from in LEAVES[folder_to] else f"{folder_to} is only for {users}"
    if folder_from in LEAVES:
        if folder_to in OF_LEAVES.get(folder_from, ()):
            return None
        return f"{folder_from} imports nothing of skvt but what {sorted(LEAVES)} allow"
    if folder_from in BESIDE:
        return None
    if folder_to in BESIDE:
        if folder_from == "__init__" and not at_import:
            return None
        return f"no layer may import {folder_to}"
    if LAYER_OF[folder_to] <= LAYER_OF[folder_from]:
        return f"{folder_to} is in no lower layer than {folder_from}"
    return None


def private(name, path, target):
    """What is wrong with an import of a private module or name of another folder, or None.

    A folder within the same folder of a layer may import it. Folders whose name begins with an
    underscore are private to the package, and all other folders may import them.
    """
    folder = name if path.name == "__init__.py" else name.rpartition(".")[0]
    parts = target.split(".")
    inner = range(2 if len(parts) > 1 and parts[1] in FOLDERS else 0, len(parts))
    hidden = next((i for i in inner if parts[i].startswith("_")), None)
    if hidden is None or parts[hidden] == "__init__":
        return None
    home = ".".join(parts[:hidden])
    if folder == home or (folder.startswith(f"{home}.") and folder_of(folder) == folder_of(target)):
        return None
    return "private to its folder"


def breaches(package):
    """One line of text for each import that breaks a rule."""
    found = []
    for name, path in modules(package):
        where = path.relative_to(package.parent).as_posix()
        folder_from = folder_of(name + ".")
        if "." in name and name.split(".")[1] not in FOLDERS:
            found.append(f"{where}: no folder of this name in tests/test_layers.py")
            continue
        for target, line, at_import in imports(name, path):
            if target.split(".")[0] == package.name:
                why = breach(folder_from, folder_of(target), at_import) or private(
                    name, path, target
                )
            elif at_import and target.split(".")[0] in LOADED_ON_DEMAND:
                why = "import it inside the function that needs it"
            else:
                why = None
            if why:
                found.append(f"{where}:{line} imports {target}: {why}")
    return found


def test_imports_point_downwards_only():
    found = breaches(ROOT / "skvt")
    assert not found, "\n" + "\n".join(found)


def run_afresh(statements, folder):
    """The output of the statements in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", statements],
        capture_output=True,
        text=True,
        cwd=folder,
        # Where this process found skvt, the fresh one finds it too.
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_all_modules_can_be_imported_without_optional_packages(tmp_path):
    # A None there makes the import fail as if the package were not installed. Looking at what is
    # loaded would not do: scikit-learn itself imports pandas where it finds it.
    absent = f"import sys\nsys.modules.update(dict.fromkeys({sorted(LOADED_ON_DEMAND)}))\n"
    names = [name for name, _ in modules(ROOT / "skvt")]
    reference = (ROOT / "doc" / "api.rst").read_text(encoding="utf-8")
    folders = sorted(set(re.findall(r"^ +(skvt\.\w+)\.\w+$", reference, flags=re.MULTILINE)))
    imports = ["import skvt", *folders, *(f"import {name}" for name in names)]
    run_afresh(absent + "\n".join(imports), tmp_path)


def walks():
    """(title, numbered steps) of each walk of the documentation."""
    page = (ROOT / "doc" / "walks.md").read_text(encoding="utf-8")
    titles = re.split(r"^(\*\*.+)$", page, flags=re.MULTILINE)[1:]
    for title, text in zip(titles[::2], titles[1::2], strict=True):
        yield title, re.findall(r"^\d+\. .*(?:\n   .*)*", text, flags=re.MULTILINE)


def test_the_steps_of_walks_name_code_that_exists():
    found = dict(walks())
    assert len(found) >= 7
    names = {part for _, path in modules(ROOT / "skvt") for part in names_in(path)}
    files = [path.with_suffix("").as_posix() for _, path in modules(ROOT / "skvt")]
    for title, hops in found.items():
        assert 5 <= len(hops) <= 10, title
        for code in re.findall(r"`([^`]+)`", title + " ".join(hops)):
            place = re.fullmatch(r"((?:\w+/)?_\w+)(?:\.\w+)?", code)
            is_file = place and any(file.endswith(f"/{place[1]}") for file in files)
            unknown = (
                set(re.findall(r"[A-Za-z]\w+", re.sub(r'"[^"]*"', "", code))) - names - {"True"}
            )
            assert is_file or not unknown, f"{title}: {code} is nowhere in skvt"


def names_in(path):
    """Names that a module defines or uses, and the names of its folders."""
    yield from path.parts
    for node in ast.walk(parsed(path)):
        for field in ("id", "attr", "arg", "name"):
            if isinstance(name := getattr(node, field, None), str):
                yield name
