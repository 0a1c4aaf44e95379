"""Scores for fitted models: document completion, topic coherence, agreement with a truth.

All functions take plain arrays, dense or sparse, so that they work for models of any library.
Logarithms are natural.
"""

from skvt.metrics._clusters import cluster_alignment, match_components
from skvt.metrics._stability import topic_stability
from skvt.metrics._topics import (
    document_completion_score,
    document_completion_split,
    held_out_log_likelihood,
    perplexity,
    topic_coherence,
)

__all__ = [
    "cluster_alignment", "document_completion_score", "document_completion_split",
    "held_out_log_likelihood", "match_components", "perplexity", "topic_coherence",
    "topic_stability",
]  # fmt: skip
