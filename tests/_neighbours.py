"""A pytest plugin that runs scikit-learn's tests of an estimator with one of ours in its place.

``SKVT_NEIGHBOUR="Theirs=Ours"`` names the two. Ours becomes a subclass with their name, because
names of features and messages of errors contain the name of the class.
"""

import os

import skvt


def pytest_collection_modifyitems(items):
    """Put our class into each module that imports theirs."""
    theirs, ours = os.environ["SKVT_NEIGHBOUR"].split("=")
    for module in {item.module for item in items}:
        setattr(module, theirs, type(theirs, (getattr(skvt, ours),), {}))
