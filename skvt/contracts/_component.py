"""The contract of a mixture's components.

The likelihood of a component is conjugate-exponential. Component k has the parameters phi_k. Their
prior has the natural parameters eta, their posterior lam_k. A row x has features F(x), a vector of
P numbers, and

    log p(x | phi_k) = <F(x), T(phi_k)>,      lam_k = eta + M sum_n r_nk F(x_n).

Here r_nk is the responsibility of component k for row n. The matrix M maps P features to natural
parameters, and ``T(phi) = M' t(phi) + constant`` with the sufficient statistics t of the family.
The *table* (K, P) has T(phi_k), or its expectation under q, in row k. All log densities of a batch
are one matrix product ``F @ table.T``, and all sums of features are another, ``R.T @ F`` with the
responsibilities R. Engines and moves therefore do not depend on the likelihood.

In shapes, n is a number of rows, D of columns, K of components, P of features, and ``...`` stands
for the axes of factors of the family. The last axis of ``lam`` (K, ..., E) has the E natural
parameters of a factor.

The contract consists of five protocols, one for each kind of caller: global steps, local steps,
moves and initialisation, predictions, and descriptions.

A missing value (NaN) contributes no features, so that it is integrated out. With full covariances,
missing values are local variables, too: see :mod:`skvt.models.mixture._missing`.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy as np

from skvt.contracts._model import Capability
from skvt.expfam import Family
from skvt.typing import Array, IndexArray


class HiddenValues(Protocol):
    """The missing values of n rows, with the q of these values under each of K components."""

    def add_to(self, logits: Array, entropy: Array) -> None:
        """Correct ``logits`` (n, K) for missing values, and add their entropies to ``entropy``.

        The logits are the logarithms of unnormalised responsibilities. Entry (n, k) of ``entropy``,
        in nats, is that of the missing values of row n under component k.

        The function ``skvt.models.mixture._kernels.responsibilities`` computes the bounds and the
        energies of rows from the logits. With corrected logits, the bounds include the entropies of
        missing values, and the energies are too large by ``T sum_k r_nk entropy[n, k]``.
        """

    def add_statistics(self, weighted: Array, sums: Array) -> None:
        """Add the expected features of missing values to ``sums`` (K, P).

        ``weighted`` (n, K) has the responsibilities times the weights of the rows.
        """


#: ``completion(X, inv_temps)`` returns the :class:`HiddenValues` of rows X under one table, or None
#: if no value is missing. ``inv_temps`` has the inverse temperature of each row, (n,), or of all,
#: (1,).
Completion: TypeAlias = Callable[[Any, Array], HiddenValues | None]


class Likelihood(Protocol):
    """Features of rows and posterior of the parameters, for global steps."""

    # Family of the global parameters of a component.
    @property
    def family(self) -> Family: ...
    # (..., E): natural parameters eta of one component.
    @property
    def prior(self) -> Array: ...
    # Number D of columns of the data.
    @property
    def n_features(self) -> int: ...
    # Type of the numbers in data, responsibilities and draws: float32 or float64. Features are
    # always float64, since covariances are differences of sums of squares.
    @property
    def dtype(self) -> np.dtype[Any]: ...
    # The likelihood declares TEMPERABLE if the integral of ``p(x | phi_k)^b`` over x does not
    # depend on phi_k. It then has a method ``log_partition(b)``, which returns the logarithm of the
    # integral in nats and its derivative by b, from which temperatures are learned.
    @property
    def capabilities(self) -> frozenset[Capability]: ...
    # (P,): the constant of T, ``T(phi) - M' t(phi)``; a number if it is the same for all features.
    @property
    def base(self) -> Any: ...

    def features(self, X: Any) -> Any:
        """Return F(x) of each row, (n, P); features of missing values are 0 or not stored."""

    def natural_sums(self, sums: Array) -> Array:
        """Return ``M S``, (K, ..., E): natural parameters from ``sums`` of features S, (K, P)."""

    def feature_coefficients(self, t: Array) -> Array:
        """Return ``M' t``, (K, P), for values ``t`` (K, ..., E) of the sufficient statistics."""

    def natural_parameters(self, sums: Array) -> Array:
        """Return ``lam = eta + M S``, (K, ..., E), for ``sums`` of features S, (K, P)."""

    def expected_table(self, lam: Array) -> Array:
        """Return the table ``E_q[T(phi_k)]``, (K, P), for the parameters ``lam`` of q."""

    def table_at(self, t: Array) -> Array:
        """Return the table ``T(phi_k)``, (K, P), for values ``t`` of ``t(phi_k)``."""


class Completes(Protocol):
    """Densities and sums of features of rows in which values may be missing, for local steps."""

    # Whether NaN in the data is read as a missing value.
    @property
    def missing(self) -> bool: ...
    # Whether features of sparse rows are sparse.
    @property
    def sparse(self) -> bool: ...
    # Whether sums of features, and densities under few components, are computed from the rows
    # without making their features, which may be much larger than the rows.
    @property
    def avoids_features(self) -> bool: ...

    def log_densities_and_sums(
        self, X: Any, table: Array
    ) -> tuple[Array, Callable[[Array], Array]]:
        """Return log densities of rows, (n, K), and a function for their sums of features.

        ``table`` is the transposed table, (P, K). ``function(weighted)`` returns
        :meth:`weighted_sums` of the rows.
        """

    def weighted_sums(self, X: Any, weighted: Array) -> Array:
        """Return the sums of features ``R.T @ F``, (K, P).

        ``weighted``, R (n, K), has the responsibilities times the weights of the rows.
        """

    def completion(self, table: Array) -> Completion | None:
        """Return the completion of missing values under the table (K, P); None if not needed."""

    def filled(self, X: Any) -> Any:
        """Return rows X, with missing values at the prior means if features need complete rows."""

    def filled_features(self, X: Any) -> Any:
        """Return the features (n, P) of rows that :meth:`filled` has completed."""

    def with_completed(self, X: Any, completed: Array) -> Any:
        """Return rows X with missing values taken from ``completed`` (n, D).

        Missing values that the likelihood integrates out, and does not complete, stay NaN.
        """

    def without_indicator(self, column: int) -> "Component":
        """Return the component that does not model whether ``column`` is observed."""


class SharesGlobals(Protocol):
    """Evidence of components, for moves and initialisation.

    Components may share global parameters: for instance, all may have the same covariance matrix.
    ``sums`` are the sums of features of each component, (K, P).
    """

    @property
    def without_shared_globals(self) -> "Component":
        """The likelihood without shared global parameters, for operations on a single component."""

    # Log density of parameters of the prior that have a prior themselves, in nats; 0 if none have.
    @property
    def log_hyperprior(self) -> float: ...

    @property
    def has_common_columns(self) -> bool:
        """Whether all components may have the same distribution in some columns."""

    def with_shared_globals(self, lam: Array) -> Array:
        """Return ``lam`` with the posterior that shared global parameters have given all rows.

        Predictions and descriptions need this form. It differs from ``lam`` only if components
        share global parameters.
        """

    def log_evidence(self, sums: Array) -> Array:
        """Return the log marginal likelihood of the rows of each component, (K,), in nats.

        The total over the components is the log marginal likelihood of all rows.
        """

    def merge_gains(self, sums: Array, a: IndexArray, b: IndexArray) -> Array:
        """Return the gain of log evidence in nats by each of n possible merges, (n,).

        Merge i gives the rows of component b[i] to component a[i], and changes no other component.
        """

    def row_fits(self, X: Any) -> Any:
        """Return a `skvt.models.mixture.components.RowFits`, in which each row is a component."""

    def projected(self, X: Any, weights: Array, directions: Callable[[Array, Array], Array]) -> Any:
        """Return :meth:`row_fits` of rows X after a projection to a subspace.

        Missing values are filled in first. ``directions(rows, weights)`` then returns the projected
        rows (n, D). The result is None if the likelihood has no form for projected rows.
        """


class Predicts(Protocol):
    """Posterior predictive densities and draws, for predictions, sampling and imputation."""

    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Return the log predictive density of rows under each component, (n, K), in nats."""

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draw rows from the predictive distribution of a component, whose ``lam`` is (..., E)."""

    def imputed(self, X: Array, lam: Array, memberships: Array) -> Array:
        """Return rows (n, D) with means or the most probable categories for missing values.

        ``memberships`` (n, K) has the probabilities of the components for each row. A missing value
        has the mixture of the distributions under the components, with these probabilities.
        """

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        """Draw the missing values of rows (n, D) of one component, whose ``lam`` is (..., E).

        Their distribution is the predictive distribution of the component, given the other values
        of their row if the component has dependent columns.
        """

    def drawn(self, lam: Array, rng: np.random.Generator) -> tuple["Component", Array]:
        """Draw parameters from q; return a likelihood, and a ``lam`` concentrated at the draw.

        The predictive densities and draws of the returned likelihood under the returned ``lam`` are
        those given the drawn parameters. The family needs a method ``concentrate_at(x)``, which
        returns natural parameters concentrated at x.
        """

    @property
    def with_unknown_levels(self) -> "Component":
        """The likelihood for rows that may have unknown levels in columns of categories.

        The code of an unknown level is the number of known levels of the column. A likelihood
        without columns of categories returns itself.
        """


class Describes(Protocol):
    """Parameters in the units of the data, for descriptions of components and for attributes."""

    def in_data_coordinates(self, lam: Array) -> tuple[Any, Array]:
        """Return the family, and ``lam`` in the coordinates of the data before centring."""

    def parts(self, lam: Array) -> dict[str, tuple["Component", Array]]:
        """Return the likelihood and ``lam`` of each named block of columns; {} without blocks."""

    def marginals(self, lam: Array) -> tuple[Any, ...]:
        """Return the `skvt.models.mixture.Marginals` of the columns, in units of the data."""

    def gaussians(self, lam: Array) -> tuple[Array, Array] | None:
        """Return means (K, D) and covariances (K, D, D); None if components are not Gaussian."""

    def column_evidence(self, sums: Array) -> Array:
        """Return the log evidence of each column alone, (K, D), in nats.

        The base measure of the family is left out.
        """


class Component(Likelihood, Completes, SharesGlobals, Predicts, Describes, Protocol):
    """The likelihood of a mixture's components, immutable."""
