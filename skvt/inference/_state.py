"""What an engine carries from step to step, and the rows it works on."""

from dataclasses import dataclass, field

import numpy as np

from skvt.expfam import RunningStats


class PriorStats:
    """Weighted mean of what a model learns its priors from; None where nothing is learned.

    Kept as sum and weight, both faded alike, so that the mean is unbiased from the first step.
    """

    def __init__(self):
        self.total, self.weight = 0.0, 0.0

    def add(self, addend):
        """Add (sum, weight) of one batch, or None."""
        if addend is not None:
            self.total = self.total + addend[0]
            self.weight = self.weight + addend[1]

    def blend(self, rho, addend):
        """Fade by ``1 - rho``, then add ``rho`` times (sum, weight) of one batch."""
        if addend is not None:
            self.total = (1.0 - rho) * self.total + rho * addend[0]
            self.weight = (1.0 - rho) * self.weight + rho * addend[1]

    @property
    def mean(self):
        """The weighted mean, or None before any data."""
        return self.total / self.weight if self.weight > 0.0 else None


@dataclass
class State:
    """The variational posterior over the globals and the position in the fit.

    Attributes
    ----------
    stats : RunningStats
        Tempered statistics S; the posterior is ``lam = prior + S``.
    n_steps : int
        Global updates made.
    rows_seen : float
        Sum of the weights of all rows worked on.
    prior_stats : PriorStats
        What priors are learned from.
    replication : float
        How many times ``stats`` count each row at present.
    """

    stats: RunningStats
    n_steps: int = 0
    rows_seen: float = 0.0
    prior_stats: PriorStats = field(default_factory=PriorStats)
    replication: float = 1.0

    @property
    def plain_stats(self):
        """The statistics with each row counted once."""
        return self.stats if self.replication == 1.0 else self.stats.scaled(1.0 / self.replication)

    def replicate(self, replication):
        """Let the statistics count each row so many times."""
        if replication != self.replication:
            self.stats.rescale(replication / self.replication)
            self.replication = replication


@dataclass(frozen=True)
class Rows:
    """Data, row weights, and how they are divided into batches.

    Parameters
    ----------
    X : array or CSR matrix, shape (N, D)
    weights : ndarray, shape (N,)
        Positive.
    batch_size : int
        Rows of a batch.
    total : float
        Weight of the whole data set for which these rows stand; their own by default.
    """

    X: object
    weights: np.ndarray
    batch_size: int
    total: float = field(default=None)

    def __post_init__(self):
        if self.total is None:
            object.__setattr__(self, "total", float(self.weights.sum()))

    @property
    def n_rows(self):
        """Number of rows N."""
        return self.weights.size

    @property
    def n_batches(self):
        """Batches of one pass."""
        return -(-self.n_rows // self.batch_size)

    def order(self, rng=None):
        """Row numbers of each batch of one pass: shuffled by ``rng``, in order without."""
        rows = np.arange(self.n_rows) if rng is None else rng.permutation(self.n_rows)
        return [
            rows[start : start + self.batch_size]
            for start in range(0, self.n_rows, self.batch_size)
        ]

    def batch(self, model, rows):
        """The model's preparation of these rows."""
        return model.batch(self.X, rows, self.weights[rows])
