import pytest

from skvt.components import _choices


@pytest.fixture(autouse=True)
def one_short_fit_of_each_type(monkeypatch):
    """Types of covariance are compared at three components alone, in a quarter of the time."""
    monkeypatch.setattr(_choices, "INITIAL_NUMBERS", (3,))
