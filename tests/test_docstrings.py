"""Docstrings of all public objects: numpydoc's checks, and the examples in them."""

import doctest
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest
from numpydoc.validate import validate

ROOT = Path(__file__).parents[1]

# Of numpydoc's checks, those that do not hold here.
LEFT_OUT = {
    "GL01",  # the summary begins on the line of the quotes
    "ES01",  # a summary may say all there is
    "SA01",  # not everything has a neighbour
    "EX01",  # examples stand with the class, not with each of its methods
    "SS05",  # not each word that ends in s is a verb
    "RT02",  # what is returned may have a name, as in scikit-learn
}


def documented_names():
    """The functions and classes of the page api.rst."""
    page = (ROOT / "doc" / "api.rst").read_text(encoding="utf-8")
    return re.findall(r"^ +(skvt[\w.]*)$", page, flags=re.MULTILINE)


def named(name):
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


def members(name):
    """Dotted names of the public members of a class that are defined in skvt.

    Those that override the member of another public class need no more than a summary.
    """
    cls = named(name)
    for attribute, value in inspect.getmembers(cls):
        function = getattr(value, "fget", value)
        ours = (getattr(function, "__module__", None) or "").startswith("skvt")
        defining = [base for base in cls.__mro__ if attribute in vars(base)]
        overrides = any(not base.__name__.startswith("_") for base in defining[1:])
        if ours and not attribute.startswith("_") and not overrides:
            yield f"{name}.{attribute}"


def complaints(name):
    return [
        f"{name}: {code} {message}"
        for code, message in validate(name)["errors"]
        if code not in LEFT_OUT
    ]


@pytest.mark.parametrize("name", documented_names())
def test_docstrings_are_complete(name):
    names = [name, *members(name)] if inspect.isclass(named(name)) else [name]
    found = [complaint for each in names for complaint in complaints(each)]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("name", documented_names())
def test_examples_in_docstrings_are_true(name):
    for test in doctest.DocTestFinder(recurse=False).find(named(name), name):
        assert doctest.DocTestRunner().run(test).failed == 0


def incomplete(X, y):
    """return the sum of two numbers.

    Parameters
    ----------
    X : int
        The first one.
    """
    return X + y


def test_an_incomplete_docstring_is_found(monkeypatch):
    import skvt

    monkeypatch.setattr(skvt, "incomplete", incomplete, raising=False)
    codes = {complaint.split()[1] for complaint in complaints("skvt.incomplete")}
    assert {"PR01", "RT01", "SS02"} <= codes
