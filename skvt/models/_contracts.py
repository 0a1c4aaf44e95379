"""The contract between a model and the engines, on one page.

A model is conditionally conjugate: with global variables beta and the local variables z of a row,

    E_q[log p(x, z | beta)] = <S, E_q[t(beta)]> + a local term,

so that its globals live in natural parameters, ``lam = prior + S``, and an engine is arithmetic on
statistics S. A local step never asks for q(beta), only for numbers ``global_params``:
``E_q[t(beta)]`` (mean field) or ``t(beta)`` with beta drawn from q (structured inference).

Temperature multiplies the energy ``E_q[log p(x, z | beta)]`` and the statistics; it never
multiplies the natural parameters of a prior.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from skvt.expfam import Stats


@dataclass(frozen=True)
class LocalResult:
    """What a local step says of n rows.

    Attributes
    ----------
    stats : Stats or None
        Expected sufficient statistics summed over the rows, each multiplied by its weight; at one
        temperature per row also by the row's inverse temperature, relative to their weighted mean.
        None where they were not asked for.
    bound : ndarray of float64, shape (n,)
        Each row's part of the tempered bound in nats (weights not applied): inverse temperature
        times energy, plus entropy.
    energy : ndarray of float64, shape (n,), or None
        ``E_q[log p(x, z | beta)]`` in nats, untempered; None where it was not asked for.
    q : ndarray, shape (n, ...)
        Parameters of the local variational distributions.
    marginal_energy : ndarray of float64, shape (n,), or None
        The untempered energy with z summed out at the expectations of the other variables, as far
        as the model can; None where it was not asked for.
    start : ndarray, shape (n, ...), or None
        Where the next local step of these rows may begin; None for models that begin anew.
    """

    stats: Stats | None
    bound: np.ndarray
    energy: np.ndarray | None
    q: Any
    marginal_energy: np.ndarray | None = None
    start: np.ndarray | None = None

    def entropy(self, inv_temp):
        """Local entropy (and untempered local priors) in nats, shape (n,)."""
        return self.bound - inv_temp * self.energy


@dataclass(frozen=True)
class RowBatch:
    """Rows prepared for local steps: a view of the data where they follow each other."""

    X: object
    weights: np.ndarray
    rows: np.ndarray

    @classmethod
    def of(cls, X, rows, weights):
        """The given rows of X."""
        consecutive = rows.size > 0 and rows[-1] - rows[0] == rows.size - 1
        if consecutive and np.array_equal(rows, np.arange(rows[0], rows[0] + rows.size)):
            X = X[rows[0] : rows[-1] + 1]
        else:
            X = X[rows]
        return cls(X, np.asarray(weights, dtype=np.float64), rows)

    @property
    def n_rows(self):
        """Number of rows."""
        return self.weights.size

    @property
    def lengths(self):
        """A row is one unit of data."""
        return np.ones(self.n_rows)


class Model(Protocol):
    """A model: immutable; arrays in, arrays out.

    Attributes
    ----------
    families : tuple of Family
        One for each block of the globals.
    """

    families: tuple

    def prior(self):
        """Natural parameters of the prior: a Stats, arrays broadcastable to the blocks."""

    def natural_parameters(self, stats):
        """``lam = prior + S`` as a tuple of arrays, events in the last axis."""

    def size(self, stats):
        """Number of components K under these statistics."""

    def initial(self, data, rng):
        """Statistics that break the symmetry, at random or found on the data: a RunningStats."""

    def batch(self, X, rows, weights):
        """Rows of X, prepared for local steps."""

    def affected_rows(self, X):
        """Indices of the statistics' rows that a step on X can change; None for all."""

    def expectation(self, stats, batch, run):
        """``E_q[t(beta)]`` under ``lam = prior + stats``, as far as the batch needs it."""

    def mean_field(self):
        """The model whose local step gives the bound: itself but for structured inference."""

    def local_step(
        self,
        batch,
        global_params,
        inv_temp,
        run,
        *,
        with_energy=False,
        with_marginal=False,
        with_stats=True,
    ):
        """Optimise q(z) of the batch at the given inverse temperature; a LocalResult.

        ``inv_temp`` is a float or an array (n,). ``run(function, tasks)`` maps a function over
        tuples of arguments, in parallel or not, and returns the results in order.
        """

    def tempered_log_partition(self, inv_temps):
        """log C(T) of a unit of data and its slope in 1/T, (M,) each; for learned temperatures."""

    def prior_statistics(self, batch, result):
        """``(sum, weight)`` of what the priors are learned from, or None if they are given."""

    def with_learned_priors(self, prior_stats, stats=None):
        """The model with its priors moved to the maximum of the bound; itself if they are given.

        ``prior_stats.mean`` is the mean of :meth:`prior_statistics`; global priors are learned
        only where the global statistics are handed over too.
        """


class StructuredModel(Model, Protocol):
    """A model whose rows can be solved given drawn globals [HB15 sec. 2].

    Attributes
    ----------
    updates_all_rows : bool
        Whether a step changes all statistics, not those of some rows alone.
    """

    updates_all_rows: bool

    def drawn_globals(self, stats, batch, kind, rng, run):
        """What a local step takes for the globals, by the kind of the global step.

        "mean_field" is ``E_q[t(beta)]``, "map" ``t(E_q[beta])``, "ssvi-a" ``t(beta)`` of a draw
        beta ~ q, and "ssvi" the same with what :meth:`corrected` needs to know of the draw.
        """

    def corrected(self, stats, global_params, result_stats, run):
        """``V(beta, lam) eta_hat`` of a draw and a local step's statistics: a Stats."""

    def project(self, stats):
        """Keep ``lam = prior + stats`` legal, and in the best order, in place."""
