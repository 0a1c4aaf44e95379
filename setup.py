"""Make the links of README absolute for the package index; other metadata is in pyproject.toml."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent
SOURCE = tomllib.loads((HERE / "pyproject.toml").read_text("utf-8"))["project"]["urls"]["Source"]


def absolute(link):
    """Return a Markdown link or picture with an absolute address."""
    view = "raw" if link["picture"] else "blob"
    return f"{link['picture']}[{link['text']}]({SOURCE}/{view}/main/{link['target']})"


setup(
    long_description=re.sub(
        r"(?P<picture>!?)\[(?P<text>[^]]*)\]\((?!https?:|#)(?P<target>[^)]+)\)",
        absolute,
        (HERE / "README.md").read_text("utf-8"),
    ),
    long_description_content_type="text/markdown",
)
