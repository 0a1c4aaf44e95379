"""Local variational tempering: a separate temperature of each row [VT16 sec. 2.4, 3.4].

Row i has a latent variable y_i, which chooses a temperature of a *ladder* of M temperatures T_m.
Its distribution is q(y_i) = Mult(r_i). The local step of the row is made at the inverse temperature
E[1 / T_i], which also weights the statistics of the row in the global step [VT16 eq. 11].

Let N_i be the length of a row, that is, its number of units of data, such as tokens. Let e_i be its
energy per unit, a log probability in nats with the local variables summed out. Let c = log C per
unit, where C(T) is the normalising constant of the tempered model. Then r_mi is proportional to

    exp(N_i ((e_i - e_ref_i + c'(1)) / T_m - c(T_m))).        [VT16 eq. 10]

The reference e_ref_i of a row is its energy after a *pilot*, a short run of plain inference before
the fit. A row is thus hot while it is explained worse than by the pilot, and at T = 1 once it is
explained as well. Without the reference, the temperature would measure how unusual a row is, and
not how far its fit has progressed. :mod:`skvt.temperature._variational` explains the term c'(1).

e_i is a running mean over the local steps of the row. All rows have the same ladder, whose highest
temperature, the *ceiling*, falls to 1.
"""

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np

from skvt.contracts import Batch, Energies, FitPlan, RunningPolicy
from skvt.files import in_files
from skvt.rows import pieces
from skvt.temperature._scheduled import SHARE_OF_PASSES
from skvt.temperature._variational import Learned, VariationalTempering
from skvt.typing import Array

# Number of rows whose q(y_i) are held in memory at a time.
ROWS_AT_ONCE = 4096


@in_files("temperature.LearnedByRow", nan=("_energies",))
@dataclass(eq=False)
class _LearnedByRow(Learned):
    """Running policy that learns a temperature for each row.

    The energy of each row is kept until its next local step.
    """

    # (n,): e_ref_i in nats per unit.
    _references: Annotated[Array, "n"] = field(kw_only=True)
    # (n,): e_i in nats per unit; NaN before the first local step of a row.
    _energies: Annotated[Array, "n"] = field(init=False)
    # (n,): N_i.
    _lengths: Annotated[Array, "n"] = field(init=False)
    # The inverse temperature that is learned from the energies of all data. A row has it in its
    # first local step, because its energy is still unknown.
    _all_rows: float = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._energies = np.full(self._references.size, np.nan)
        self._lengths = np.zeros(self._references.size)
        self._all_rows = self.mean_inv_temp

    def forget_rows(self, n_rows: int) -> None:
        """Forget the energies of rows, and prepare for passes over ``n_rows`` other rows.

        Each of these rows gets the reference of all data.
        """
        self._references = np.full(n_rows, self._reference)
        self._energies = np.full(n_rows, np.nan)
        self._lengths = np.zeros(n_rows)

    def inv_temp(self, batch: Batch) -> float | Array:
        """Return E[1 / T_i] of each row, (n,), or 1 once T is 1 for the rest of the fit.

        At the first local step of a row, return the inverse temperature of all data for the row.
        Also set ``mean_inv_temp``, which tempers the statistics, to the mean over the batch.
        """
        if self.done:
            return 1.0
        # The gain of a row is NaN before its first local step.
        gains = self._energies[batch.rows] - self._references[batch.rows]
        r = self._ladder.compute_probabilities(np.nan_to_num(gains), self._lengths[batch.rows])
        inv_temps = np.where(np.isnan(gains), self._all_rows, r @ self._ladder.inv_temps)
        self.mean_inv_temp = float(np.average(inv_temps, weights=batch.weights))
        return inv_temps

    def advance(self, passes: float, step: float, n_steps: int) -> None:
        """Update the temperature of all data. If it reaches 1, all rows are at T = 1."""
        super().advance(passes, step, n_steps)
        self._all_rows = self.mean_inv_temp

    def observe(self, result: Energies, batch: Batch) -> None:
        """Update the running mean of the energy of each row of a batch."""
        super().observe(result, batch)
        if self.done:
            return
        # The energies were requested by ``wants_marginal``.
        assert result.marginal_energy is not None
        # A row without units has energy 0. Divide it by a tiny number instead of 0.
        lengths = np.maximum(np.asarray(batch.lengths, float), 1e-300)
        energies = result.marginal_energy / lengths
        last_means = self._energies[batch.rows]
        # A row is visited once in each pass.
        means = last_means + self._get_rate(passes=1.0) * (energies - last_means)
        self._energies[batch.rows] = np.where(np.isnan(last_means), energies, means)
        self._lengths[batch.rows] = batch.lengths

    def bound_terms(self, total: float) -> float:
        """Return the terms of all y_i in the bound, in nats, estimated from rows of known energy.

        The mean over these rows is multiplied by ``total``, the weight of all rows.
        """
        known_rows = np.flatnonzero(~np.isnan(self._energies))
        if self.done or known_rows.size == 0:
            return 0.0
        terms = 0.0
        for rows in (known_rows[chunk] for chunk in pieces(known_rows.size, ROWS_AT_ONCE)):
            gains = self._energies[rows] - self._references[rows]
            r = self._ladder.compute_probabilities(gains, self._lengths[rows])
            terms += float(self._ladder.bound_terms(r, self._lengths[rows]).sum())
        return terms * total / known_rows.size


@in_files("temperature.LocalTempering")
@dataclass(eq=False, repr=False)
class LocalTempering(VariationalTempering):
    """Learn a separate temperature of each row.

    Parameters
    ----------
    n_temperatures : int, default=100
        Temperatures of the ladder, exponentially spaced between 1 and ``max_temperature``.
    max_temperature : float, default=1.6
        Highest temperature of the ladder, decreasing to 1 as in :class:`VariationalTempering`.
    memory : float, optional
        Number of passes over which the energies of each row, and of all data, are averaged. The
        energies of all data determine two things: the temperature of a row in its first local step,
        and the time at which all rows reach T = 1. If None, half of the fit's passes.
    replication : float, default=10.0
        Number of times that the global update counts each row while T > 1, as in
        :class:`LinearAnnealing`.

    Examples
    --------
    >>> from skvt import TemperedLDA
    >>> from skvt.datasets import make_topic_corpus
    >>> from skvt.temperature import LocalTempering
    >>> X = make_topic_corpus(60, n_components=3, n_features=30, random_state=0).X
    >>> lda = TemperedLDA(3, temperature=LocalTempering(), max_iter=8, random_state=0).fit(X)
    >>> lda.history_["temperature"][-1]
    1.0
    """

    _default_memory = 0.5

    def check(self, plan: FitPlan) -> None:
        """Raise ValueError for illegal parameters, models without log C(T), and streams."""
        super().check(plan)
        if not np.isfinite(plan.n_passes):
            raise ValueError(
                f"{type(self).__name__} remembers each row from one pass to the next, but each "
                "row of a stream is seen once. Use VariationalTempering() or LinearAnnealing() "
                "for partial_fit."
            )

    def start(self, plan: FitPlan) -> RunningPolicy:
        """Return the running policy, with the energy of each row after the pilot as reference."""
        reference, references = plan.pilot(self.replication, every_row=True)
        # The ladder is evenly spaced in log T, although [VT16 sec. 4] spaces it evenly in 1 / T.
        # From T = 1 to 1.6, entries of the two ladders differ by at most 0.022 in 1 / T.
        return _LearnedByRow(
            self._make_ladder(plan), reference, plan.n_units, self._get_memory_in_passes(plan),
            plan.passes(SHARE_OF_PASSES), replication=self.replication, _references=references,
        )  # fmt: skip
