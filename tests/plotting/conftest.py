import matplotlib.pyplot as plt
import pytest


@pytest.fixture(autouse=True)
def _closed_figures():
    plt.close("all")
    yield
    plt.close("all")
