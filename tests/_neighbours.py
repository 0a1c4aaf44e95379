"""A pytest plugin by which scikit-learn's own tests of an estimator meet ours under its name.

``SKVT_NEIGHBOUR="Theirs=Ours"`` says which. Ours is a subclass of that name: names of features and
errors of estimators that are not fitted have the class's name in them, as theirs have.
"""

import os

import skvt


def pytest_collection_modifyitems(items):
    """In each module of theirs, ours stands where their class was imported."""
    theirs, ours = os.environ["SKVT_NEIGHBOUR"].split("=")
    for module in {item.module for item in items}:
        setattr(module, theirs, type(theirs, (getattr(skvt, ours),), {}))
