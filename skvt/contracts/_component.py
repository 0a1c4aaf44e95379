"""The contract of a mixture's components.

A component's likelihood is conjugate-exponential. With the features ``F(x)`` of a row, a vector of
P numbers, and component k's globals phi_k of prior eta,

    log p(x | phi_k) = <F(x), T(phi_k)>,      lam_k = eta + M sum_n r_nk F(x_n),

where M spreads P features over the family's natural parameters and ``T = M' t(phi) + constant``.
All log densities of a batch are thus one matrix product ``F @ T.T``, all statistics another, ``R.T
@ F``, and engines and moves do not depend on the likelihood.

The contract consists of five protocols, each for one kind of user: global steps, local steps, moves
and starts, predictions, and descriptions.

A missing value (NaN) has no features: it is integrated out. With full covariances it is one more
local variable, see :mod:`skvt.models.mixture._missing`.
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
        """Correct ``logits`` (n, K) for missing values, and add their entropy h to ``entropy``.

        With the corrected ``logits``, the bound of ``responsibilities`` includes the entropy of the
        missing values; its energy is too large by ``T sum_k r_k h_k``.
        """

    def add_statistics(self, weighted: Array, sums: Array) -> None:
        """Add the terms of missing values to ``sums`` (K, P) of features, for weights (n, K)."""


#: ``completion(X, inv_temps)`` returns the :class:`Holes` of a chunk of rows under one table, or
#: None if no value is missing; ``inv_temps`` is (n,) or (1,).
Completion: TypeAlias = Callable[[Any, Array], Holes | None]


class Likelihood(Protocol):
    """What the global step asks: the features of rows, and the posterior of the parameters."""

    # Family of the globals of a component.
    @property
    def family(self) -> Family: ...
    # (..., E): natural parameters eta of one component.
    @property
    def prior(self) -> Array: ...
    # Columns D of the data.
    @property
    def n_features(self) -> int: ...
    # Precision of the data, and of responsibilities and draws. Features are in double precision:
    # covariances are differences of sums of squares.
    @property
    def dtype(self) -> np.dtype[Any]: ...
    # TEMPERABLE if ``int p(x | phi_k)^b dx`` does not depend on phi_k: ``log_partition(b)`` then
    # gives the logarithm of the integral in nats and its slope in b, for learned temperatures.
    @property
    def capabilities(self) -> frozenset[Capability]: ...
    # (P,): the constant between T and M' t(phi).
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
    """What the local step asks: densities and sums of rows, in which values may be missing."""

    # Whether NaN in the data is a missing value.
    @property
    def missing(self) -> bool: ...
    # Whether features of sparse rows are sparse.
    @property
    def sparse(self) -> bool: ...

    def explain(self, X: Any, table: Array) -> tuple[Array, Callable[[Array], Array]]:
        """Return ``F(x) T``, (n, K), for T' (P, K), and a function ``sums``.

        ``sums(weighted)`` is :meth:`weighted_sums` of these rows.
        """

    def weighted_sums(self, X: Any, weighted: Array) -> Array:
        """Return the sums of features, (K, P), by weighted responsibilities (n, K)."""

    def completion(self, table: Array) -> Completion | None:
        """Return the completion of features under the table (K, P); None if none is needed."""

    def filled(self, X: Any) -> Any:
        """Return rows with missing values at their prior means, if features need complete rows."""

    def filled_features(self, X: Any) -> Any:
        """Return the features of rows that :meth:`filled` has completed."""

    def with_completed(self, X: Any, completed: Array) -> Any:
        """Return rows (n, D); take missing values that q counts as observed from ``completed``."""

    def without_indicator(self, column: int) -> "Component":
        """Return the component without the indicator of whether ``column`` is observed."""


class SharesGlobals(Protocol):
    """What moves and starts ask, which compare components, also those that share globals."""

    @property
    def alone(self) -> "Component":
        """The component as if it were the only one, for operations on single components."""

    def apart(self, lam: Array) -> Array:
        """Return ``lam`` of separate components, as the methods below take it.

        It differs from ``lam`` if components share globals; these are then informed by all rows.
        """

    def log_evidence(self, sums: Array) -> Array:
        """Return the log marginal likelihood of each component's rows, (K,) nats, which add up."""

    def merge_gains(self, sums: Array, a: IndexArray, b: IndexArray) -> Array:
        """Return the gains of log evidence, (n,) nats, if only component b is merged with a."""

    def row_fits(self, X: Any) -> Any:
        """Return the `skvt.models.mixture.components.RowFits` of components of one row each."""

    def projected(self, X: Any, weights: Array, directions: Callable[[Array, Array], Array]) -> Any:
        """Return :meth:`row_fits` of a component of the rows projected to a subspace.

        ``directions`` projects rows (n, D) with their weights. The result is None if there is no
        such component. Missing values are filled in first.
        """


class Predicts(Protocol):
    """What predictions, draws and imputation ask."""

    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Return the log posterior predictive density of rows by component, (n, K) in nats."""

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draw rows from the posterior predictive of one component, lam of shape (..., E)."""

    def imputed(self, X: Array, lam: Array, memberships: Array) -> Array:
        """Fill holes of rows (n, D) with means or best categories by memberships (n, K)."""

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        """Draw the holes of rows (n, D) from the predictive of one component, lam (..., E)."""

    def drawn(self, lam: Array, rng: np.random.Generator) -> tuple["Component", Array]:
        """Draw parameters from q; return a component and a ``lam`` concentrated at the draw.

        Its predictive densities and draws are then those given the parameters. A family of another
        package has a method ``certain(x)``: natural parameters concentrated at x.
        """

    @property
    def opened(self) -> "Component":
        """The component for columns that may hold the code of unknown levels.

        That code is the number of the column's categories. Without categories, it is this object.
        """


class Describes(Protocol):
    """What descriptions of components and their published parameters ask."""

    def uncentred(self, lam: Array) -> tuple[Any, Array]:
        """Return the family and ``lam`` in the coordinates of the data."""

    def parts(self, lam: Array) -> dict[str, tuple["Component", Array]]:
        """Return the components of blocks of columns with their ``lam``, by name; {} if none."""

    def marginals(self, lam: Array) -> tuple[Any, ...]:
        """Return the `skvt.models.mixture.Marginals` of the columns, in units of the data."""

    def gaussians(self, lam: Array) -> tuple[Array, Array] | None:
        """Return means (K, D) and covariances (K, D, D) of Gaussians; None if these are others."""

    def column_evidence(self, sums: Array) -> Array:
        """Return the log evidence of each column alone, (K, D) nats, without base measure."""


class Component(Likelihood, Completes, SharesGlobals, Predicts, Describes, Protocol):
    """The likelihood of a mixture's components, immutable."""
