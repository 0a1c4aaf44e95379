import pytest

from skvt.components import _covariance_types


@pytest.fixture(autouse=True)
def one_short_fit_of_each_type(monkeypatch):
    """Types of covariance are compared at three components alone, in a quarter of the time."""
    monkeypatch.setattr(_covariance_types, "NUMBERS", (3,))
