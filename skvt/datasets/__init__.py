"""Real text without a download, and generators of data from known models."""

from skvt.datasets._bernoulli import make_bernoulli_mixture
from skvt.datasets._docstrings import DOCSTRING_STOP_WORDS, load_docstrings
from skvt.datasets._patches import make_edge_patches
from skvt.datasets._shapes import make_shapes
from skvt.datasets._spectrogram import make_spectrogram
from skvt.datasets._topics import make_topic_corpus

__all__ = [
    "DOCSTRING_STOP_WORDS", "load_docstrings", "make_bernoulli_mixture",
    "make_edge_patches", "make_shapes", "make_spectrogram", "make_topic_corpus",
]  # fmt: skip
