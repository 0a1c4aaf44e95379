"""Topics as global parameters of the local steps of topic models."""

from typing import NamedTuple

from skvt.models._dirichlet_correction import Gammas
from skvt.typing import Array, IndexArray


class Topics(NamedTuple):
    """Word probabilities of K topics, given which a local step infers the topics of tokens."""

    # (A, K): log probabilities, or expected log probabilities, of the A words of the batch.
    log_beta: Array
    # Seed of the sampler of :class:`~skvt.models.lda.LDAGivenTopics`; if it is None, CVB0 replaces
    # Gibbs sampling.
    seed: int | None = None
    # The gamma variates of which the topics were made; None unless SSVI corrects the statistics.
    gammas: Gammas | None = None

    def select_words(self, positions: IndexArray) -> "Topics":
        """Return the topics for the words at these positions; ``gammas`` must be None."""
        return self._replace(log_beta=self.log_beta[positions])
