"""The contract of a mixture's components.

A component's likelihood is conjugate-exponential. With the features ``F(x)`` of a row, a vector of
P numbers, and component k's globals phi_k of prior eta,

    log p(x | phi_k) = <F(x), T(phi_k)>,      lam_k = eta + M sum_n r_nk F(x_n),

where the matrix M maps P features to the family's natural parameters, and ``T = M' t(phi) +
constant``. All log densities of a batch are thus one matrix product ``F @ T.T``, all statistics are
another, ``R.T @ F``, and engines and moves do not depend on the likelihood.

The contract consists of five protocols, one for each kind of caller: global steps, local steps,
moves and initialisation, predictions, and descriptions.

A missing value (NaN) has no features: it is integrated out. With full covariances, missing values
are further local variables, see :mod:`skvt.models.mixture._missing`.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy as np

from skvt.contracts._model import Capability
from skvt.expfam import Family
from skvt.typing import Array, IndexArray


class Holes(Protocol):
    """Missing values of a chunk of n rows, and their q under each of K components."""

    def add_to(self, logits: Array, entropy: Array) -> None:
        """Correct ``logits`` (n, K) for missing values, and add their entropies h (n, K).

        The entropies are added to ``entropy``. With corrected logits, the bound of a row that the
        function ``responsibilities`` returns includes the entropy of the missing values. The energy
        it returns is too large by ``T sum_k r_k h_k``.
        """

    def add_statistics(self, weighted: Array, sums: Array) -> None:
        """Add the expected features of missing values, weighted by (n, K), to ``sums`` (K, P)."""


#: ``completion(X, inv_temps)`` returns the :class:`Holes` of a chunk of rows under one table, or
#: None if no value is missing; ``inv_temps`` is (n,) or (1,).
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
    # TEMPERABLE if ``int p(x | phi_k)^b dx`` does not depend on phi_k: ``log_partition(b)`` then
    # gives the logarithm of the integral in nats and its slope in b, for learned temperatures.
    @property
    def capabilities(self) -> frozenset[Capability]: ...
    # (P,): the constant ``T - M' t(phi)``; a number if it is the same for all features.
    @property
    def base(self) -> Any: ...

    def features(self, X: Any) -> Any:
        """Return ``F(x)`` of each row, (n, P), with 0 or no entry for missing values."""

    def spread(self, sums: Array) -> Array:
        """Return ``M S``."""

    def gather(self, t: Array) -> Array:
        """Return ``M' t``."""

    def natural_parameters(self, sums: Array) -> Array:
        """Return ``lam = eta + M S``, (K, ..., E), for statistics S of shape (K, P)."""

    def table(self, lam: Array) -> Array:
        """Return ``E_q[T(phi_k)]``, (K, P)."""

    def table_of(self, t: Array) -> Array:
        """Return ``T``, (K, P), for values of ``t(phi_k)``."""


class Completes(Protocol):
    """Densities and weighted sums of rows in which values may be missing, for local steps."""

    # Whether NaN in the data is read as a missing value.
    @property
    def missing(self) -> bool: ...
    # Whether features of sparse rows are sparse.
    @property
    def sparse(self) -> bool: ...
    # Whether sums, and densities under few components, are computed without features.
    @property
    def avoids_features(self) -> bool: ...

    def explain(self, X: Any, table: Array) -> tuple[Array, Callable[[Array], Array]]:
        """Return the log densities ``F(x) T'``, (n, K), given ``table`` (P, K), which is T'.

        Return also a function; ``function(weighted)`` is :meth:`weighted_sums` of these rows.
        """

    def weighted_sums(self, X: Any, weighted: Array) -> Array:
        """Return the sums of features, (K, P), with the weighted responsibilities (n, K)."""

    def completion(self, table: Array) -> Completion | None:
        """Return the completion of features under the table (K, P); None if none is needed."""

    def filled(self, X: Any) -> Any:
        """Return rows with missing values at their prior means, if features need complete rows."""

    def filled_features(self, X: Any) -> Any:
        """Return the features of rows that :meth:`filled` has completed."""

    def with_completed(self, X: Any, completed: Array) -> Any:
        """Return rows X with missing values taken from ``completed`` (n, D) or left missing.

        They are taken from ``completed`` if q has a factor for them, and left NaN if q integrates
        them out.
        """

    def without_indicator(self, column: int) -> "Component":
        """Return the component that ignores whether ``column`` is observed."""


class SharesGlobals(Protocol):
    """Evidence of components, which may share globals, for moves and initialisation."""

    @property
    def alone(self) -> "Component":
        """The component without shared globals, for operations on single components."""

    # Log density of parameters of the prior that have a prior themselves, in nats; otherwise 0.
    @property
    def log_hyperprior(self) -> float: ...

    @property
    def searching(self) -> "Component":
        """The component with the prior of searches for components that differ in few columns.

        It is this object unless components have a common distribution in some columns.
        """

    def apart(self, lam: Array) -> Array:
        """Return ``lam`` in the form that predictions and descriptions take.

        It differs from ``lam`` only if components share globals, whose posterior is that of all
        rows.
        """

    def log_evidence(self, sums: Array) -> Array:
        """Return the log marginal likelihood of each component's rows, (K,) nats.

        The sum is the log marginal likelihood of all rows.
        """

    def merge_gains(self, sums: Array, a: IndexArray, b: IndexArray) -> Array:
        """Return the gain of log evidence of each merge of a and b by itself, (n,) nats."""

    def row_fits(self, X: Any) -> Any:
        """Return the `skvt.models.mixture.components.RowFits` of components of a single row."""

    def projected(self, X: Any, weights: Array, directions: Callable[[Array, Array], Array]) -> Any:
        """Return :meth:`row_fits` of a component of the rows projected to a subspace.

        ``directions(rows, weights)`` returns the projected rows (n, D). The result is None if there
        is no such component. Missing values are filled in first.
        """


class Predicts(Protocol):
    """Predictive densities and draws, for predictions, sampling and imputation."""

    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Return the log posterior predictive density of rows by component, (n, K) in nats."""

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draw rows from the posterior predictive of one component, lam of shape (..., E)."""

    def imputed(self, X: Array, lam: Array, memberships: Array) -> Array:
        """Replace missing values of rows (n, D) by means or by the most probable categories.

        These are of the mixture of components with the probabilities ``memberships`` (n, K).
        """

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        """Draw missing values of rows (n, D) from the predictive of one component, lam (..., E)."""

    def drawn(self, lam: Array, rng: np.random.Generator) -> tuple["Component", Array]:
        """Draw parameters from q; return a component and a ``lam`` concentrated at the draw.

        The predictive densities and draws of this component and ``lam`` are those given the drawn
        parameters. A family needs a method ``certain(x)``, which returns natural parameters
        concentrated at x.
        """

    @property
    def opened(self) -> "Component":
        """The component for columns in which a code marks unknown levels.

        The code is the number of the column's categories. A component without columns of categories
        returns itself.
        """


class Describes(Protocol):
    """Parameters in the units of the data, for descriptions of components and for attributes."""

    def uncentred(self, lam: Array) -> tuple[Any, Array]:
        """Return the family and ``lam`` in the coordinates of the data, before centring."""

    def parts(self, lam: Array) -> dict[str, tuple["Component", Array]]:
        """Return the components of blocks of columns with their ``lam``, by name; {} if none."""

    def marginals(self, lam: Array) -> tuple[Any, ...]:
        """Return the `skvt.models.mixture.Marginals` of the columns, in units of the data."""

    def gaussians(self, lam: Array) -> tuple[Array, Array] | None:
        """Return means (K, D) and covariances (K, D, D); None if components are not Gaussian."""

    def column_evidence(self, sums: Array) -> Array:
        """Return the log evidence of each column alone, (K, D) nats, without the base measure."""


class Component(Likelihood, Completes, SharesGlobals, Predicts, Describes, Protocol):
    """The likelihood of a mixture's components, immutable."""
