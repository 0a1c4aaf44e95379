#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox>=2024.4"]
# ///
"""Tasks of contributors: `nox -s lint`, `tests`, `docs`. All of them together: `.ci/run`."""

import nox

nox.needs_version = ">=2024.4"
nox.options.default_venv_backend = "venv"


@nox.session
def lint(session):
    """Run the linters and mypy."""
    session.install("-e.", "ruff~=0.17.5", "mypy~=2.4.1", "codespell>=2.3")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("codespell")
    session.run("mypy")


@nox.session
def tests(session):
    """Run the tests; arguments go to pytest."""
    session.install("-e.[test]")
    session.run("pytest", *session.posargs)


@nox.session
def docs(session):
    """Build the documentation."""
    session.install("-e.[doc]")
    session.run("sphinx-build", "-W", "-b", "html", "doc", "doc/_build/html", *session.posargs)


if __name__ == "__main__":
    nox.main()
