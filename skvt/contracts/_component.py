"""The contract of a mixture's components.

The likelihood of a component is conjugate-exponential. Component k has the parameters phi_k. Their
prior has the natural parameters eta, their posterior lam_k. A row x has features F(x), a vector of
P numbers, and

    log p(x | phi_k) = <F(x), T(phi_k)>,      lam_k = eta + M sum_n r_nk F(x_n).

The matrix M maps P features to natural parameters, and ``T(phi) = M' t(phi) + constant`` with the
sufficient statistics t of the family. T(phi_k) or its expectation is row k of the ``table`` (K, P).
All log densities of a batch are one matrix product ``F @ table.T``, and all statistics are another,
``R.T @ F`` with the responsibilities R. Engines and moves therefore do not depend on the
likelihood.

The contract consists of five protocols, one for each kind of caller: global steps, local steps,
moves and initialisation, predictions, and descriptions.

A missing value (NaN) contributes no features, so that it is integrated out. With full covariances,
missing values are further local variables: see :mod:`skvt.models.mixture._missing`.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy as np

from skvt.contracts._model import Capability
from skvt.expfam import Family
from skvt.typing import Array, IndexArray


class Holes(Protocol):
    """Missing values of n rows, with the q of these values under each of K components."""

    def add_to(self, logits: Array, entropy: Array) -> None:
        """Correct ``logits`` (n, K) for missing values, and add their entropies to ``entropy``.

        The entropies h have the shape (n, K). With corrected logits, the bound of a row that the
        function ``responsibilities`` returns includes the entropy of the missing values. The energy
        that it returns is too large by ``T sum_k r_k h_k``.
        """

    def add_statistics(self, weighted: Array, sums: Array) -> None:
        """Add expected features of missing values to ``sums`` (K, P), weighted by (n, K)."""


#: ``completion(X, inv_temps)`` returns the :class:`Holes` of rows X, or None if no value is
#: missing. ``inv_temps`` has the shape (n,) or (1,). The function belongs to one table.
Completion: TypeAlias = Callable[[Any, Array], Holes | None]


class Likelihood(Protocol):
    """Features of rows and posterior of the parameters, for global steps."""

    # Family of the globals of a component.
    @property
    def family(self) -> Family: ...
    # (..., E): natural parameters eta of one component.
    @property
    def prior(self) -> Array: ...
    # Number D of columns of the data.
    @property
    def n_features(self) -> int: ...
    # Precision of data, responsibilities and draws. Features are always in double precision, since
    # covariances are differences of sums of squares.
    @property
    def dtype(self) -> np.dtype[Any]: ...
    # TEMPERABLE if the integral of ``p(x | phi_k)^b`` over x does not depend on phi_k. The method
    # ``log_partition(b)`` then returns the logarithm of the integral in nats and its slope in b,
    # from which temperatures are learned.
    @property
    def capabilities(self) -> frozenset[Capability]: ...
    # (P,): the constant of T, ``T(phi) - M' t(phi)``; a number if it is the same for all features.
    @property
    def base(self) -> Any: ...

    def features(self, X: Any) -> Any:
        """Return F(x) of each row, (n, P), with 0 or no entry for missing values."""

    def natural_sums(self, sums: Array) -> Array:
        """Return ``M S``, sums of features (K, P) mapped to natural parameters (K, ..., E)."""

    def feature_coefficients(self, t: Array) -> Array:
        """Return ``M' t``, (K, P), for values ``t`` (K, ..., E) of the sufficient statistics."""

    def natural_parameters(self, sums: Array) -> Array:
        """Return ``lam = eta + M S``, (K, ..., E), for sums of features S, (K, P)."""

    def table(self, lam: Array) -> Array:
        """Return the table ``E_q[T(phi_k)]``, (K, P)."""

    def table_of(self, t: Array) -> Array:
        """Return the table ``T(phi_k)``, (K, P), for values ``t`` of ``t(phi_k)``."""


class Completes(Protocol):
    """Densities and weighted sums of rows in which values may be missing, for local steps."""

    # Whether NaN in the data is read as a missing value.
    @property
    def missing(self) -> bool: ...
    # Whether features of sparse rows are sparse.
    @property
    def sparse(self) -> bool: ...
    # Whether sums of features, and densities under few components, are computed without features.
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
        """Return sums of features, (K, P), with the weighted responsibilities (n, K)."""

    def completion(self, table: Array) -> Completion | None:
        """Return the completion of missing values under the table (K, P); None if not needed."""

    def filled(self, X: Any) -> Any:
        """Return rows X; if features need complete rows, with missing values at the prior means."""

    def filled_features(self, X: Any) -> Any:
        """Return the features of rows that :meth:`filled` has completed."""

    def with_completed(self, X: Any, completed: Array) -> Any:
        """Return rows X with missing values taken from ``completed`` (n, D).

        Values for which q has no factor stay NaN, because q integrates them out.
        """

    def without_indicator(self, column: int) -> "Component":
        """Return the component that does not model whether ``column`` is observed."""


class SharesGlobals(Protocol):
    """Evidence of components, for moves and initialisation; components may share globals.

    For instance, all components may have the same covariance matrix.
    """

    @property
    def without_shared_globals(self) -> "Component":
        """The likelihood without shared globals, for operations on a single component."""

    # Log density of parameters of the prior that have a prior themselves, in nats; 0 if none have.
    @property
    def log_hyperprior(self) -> float: ...

    @property
    def has_common_columns(self) -> bool:
        """Whether components may have a common distribution in some columns."""

    def with_shared_globals(self, lam: Array) -> Array:
        """Return ``lam`` in the form that predictions and descriptions need.

        The result differs from ``lam`` only if components share globals: the posterior of shared
        globals is that of all rows.
        """

    def log_evidence(self, sums: Array) -> Array:
        """Return the log marginal likelihood of the rows of each component, (K,), in nats.

        The sum is the log marginal likelihood of all rows.
        """

    def merge_gains(self, sums: Array, a: IndexArray, b: IndexArray) -> Array:
        """Return the gain of log evidence if b[i] is merged with a[i] alone, (n,), in nats."""

    def row_fits(self, X: Any) -> Any:
        """Return the `skvt.models.mixture.components.RowFits` of components of a single row."""

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
        """Draw rows from the predictive of a component with the posterior ``lam`` (..., E)."""

    def imputed(self, X: Array, lam: Array, memberships: Array) -> Array:
        """Return rows (n, D) with means or the most probable categories for missing values.

        Row i has the distribution of the mixture of components with weights ``memberships[i]``.
        ``memberships`` has the shape (n, K).
        """

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        """Draw missing values of rows (n, D) from the predictive of a component, as in `sample`."""

    def drawn(self, lam: Array, rng: np.random.Generator) -> tuple["Component", Array]:
        """Draw parameters from q; return a likelihood, and a ``lam`` concentrated at the draw.

        The predictive densities and draws of this likelihood under the new ``lam`` are those given
        the drawn parameters. The family needs a method ``certain(x)``, which returns natural
        parameters concentrated at x.
        """

    @property
    def with_unknown_levels(self) -> "Component":
        """The likelihood for rows that may have unknown levels in columns of categories.

        The code of an unknown level is the number of known categories of the column. A likelihood
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
