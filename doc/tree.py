"""The tree of the package: each module with the first line of its docstring.

``python doc/tree.py`` prints it; the documentation shows it on a page of its own.
"""

import ast
import re
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "skvt"


def first_line(path):
    """Return the first line of a module's docstring, without markup."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    return re.sub(r"``|`|:\w+:`~?", "", text.splitlines()[0]).rstrip(".")


def lines(folder=PACKAGE, depth=0):
    """Yield the line of a folder, those of its modules and those of the folders in it."""
    title = first_line(folder / "__init__.py")
    yield f"{'  ' * depth}{folder.name + '/':<{26 - 2 * depth}} {title}"
    for path in sorted(folder.glob("*.py")):
        if path.name != "__init__.py":
            yield f"{'  ' * (depth + 1)}{path.name:<{24 - 2 * depth}} {first_line(path)}"
    for inner in sorted(path.parent for path in folder.glob("*/__init__.py")):
        yield from lines(inner, depth + 1)


if __name__ == "__main__":
    print("\n".join(lines()))
