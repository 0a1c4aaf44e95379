"""The contract of a mixture's components.

A component's likelihood is conjugate-exponential. With the features ``F(x)`` of a row, a vector of
P numbers, and component k's globals phi_k of prior eta,

    log p(x | phi_k) = <F(x), T(phi_k)>,      lam_k = eta + M sum_n r_nk F(x_n),

where M spreads P features over the family's natural parameters and ``T = M' t(phi) + constant``.
All log densities of a batch are thus one matrix product ``F @ T.T``, all statistics another, ``R.T
@ F``, and engines and moves do not depend on the likelihood.

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
        """Add to ``logits`` (n, K) what the responsibilities' are larger by, and to ``entropy`` h.

        With ``logits`` so corrected, the bound of ``responsibilities`` includes the entropy of the
        missing values; its energy is too large by ``T sum_k r_k h_k``.
        """

    def add_statistics(self, weighted: Array, sums: Array) -> None:
        """Add to ``sums`` (K, P) what features with 0 in the holes lack, for weights (n, K)."""


#: ``completion(X, inv_temps)``: missing values of a chunk of rows, None without any, under one
#: table; ``inv_temps`` is (n,) or (1,).
Completion: TypeAlias = Callable[[Any, Array], Holes | None]


class Component(Protocol):
    """The likelihood of a mixture's components, immutable."""

    # Of the globals of a component.
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
    # Whether NaN in the data is a missing value.
    @property
    def missing(self) -> bool: ...
    # Whether features of sparse rows are sparse.
    @property
    def sparse(self) -> bool: ...
    # TEMPERABLE where ``int p(x | phi_k)^b dx`` does not depend on phi_k: ``log_partition(b)`` then
    # gives its logarithm in nats and the slope in b, for learned temperatures.
    @property
    def capabilities(self) -> frozenset[Capability]: ...
    # (P,): the constant between T and M' t(phi).
    @property
    def base(self) -> Any: ...

    def features(self, X: Any) -> Any:
        """``F(x)`` of each row, shape (n, P); 0, or no entry, for missing values."""

    def completion(self, table: Array) -> Completion | None:
        """Completion of features for missing values under the table (K, P); None if not needed."""

    def filled(self, X: Any) -> Any:
        """Rows with missing values at their prior means, where features need them."""

    def filled_features(self, X: Any) -> Any:
        """Features of such rows."""

    def projected(self, X: Any, weights: Array, directions: Callable[[Array, Array], Array]) -> Any:
        """As :meth:`row_fits`, of a component of the rows in a subspace.

        ``directions`` projects rows (n, D) with their weights. None where there is no such
        component. Missing values are filled in first.
        """

    def natural_parameters(self, sums: Array) -> Array:
        """``lam = eta + M S`` for statistics S of shape (K, P), shape (K, ..., E)."""

    def spread(self, sums: Array) -> Array:
        """``M S``."""

    def gather(self, t: Array) -> Array:
        """``M' t``."""

    def table(self, lam: Array) -> Array:
        """``E_q[T(phi_k)]``, shape (K, P)."""

    def table_of(self, t: Array) -> Array:
        """``T`` of given ``t(phi_k)``, shape (K, P)."""

    def row_fits(self, X: Any) -> Any:
        """`skvt.models.mixture.components.RowFits` of components that saw one row each."""

    def weighted_sums(self, X: Any, weighted: Array) -> Array:
        """Sums of features of rows by weighted responsibilities (n, K), (K, P)."""

    def explain(self, X: Any, table: Array) -> tuple[Array, Callable[[Array], Array]]:
        """``F(x) T`` (n, K) for T' (P, K); ``sums(weighted)`` of features (K, P) given (n, K)."""

    def log_evidence(self, sums: Array) -> Array:
        """Log marginal likelihood of each component's rows, (K,) in nats; the sum is of all."""

    @property
    def alone(self) -> "Component":
        """The component as if there were no others, for what is done to each by itself."""

    @property
    def opened(self) -> "Component":
        """The component whose columns may hold codes of levels that the fit has not seen.

        Such a code is the number of the column's categories. Itself without categories.
        """

    def apart(self, lam: Array) -> Array:
        """``lam`` of each component by itself, as all that follows takes it.

        It differs from ``lam`` where components share globals, with what all say of these.
        """

    def merge_gains(self, sums: Array, a: IndexArray, b: IndexArray) -> Array:
        """Log evidence gained if components a (n,) and b (n,) alone become one, (n,) in nats."""

    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Log density of each row under each component's posterior predictive, (n, K) in nats."""

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """``n_rows`` rows from the posterior predictive of one component, lam of shape (..., E)."""

    def imputed(self, X: Array, lam: Array, memberships: Array) -> Array:
        """Rows (n, D), holes at predictive means or best categories given memberships (n, K)."""

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        """Rows (n, D) with holes drawn from one component's predictive, lam (..., E)."""

    def drawn(self, lam: Array, rng: np.random.Generator) -> tuple["Component", Array]:
        """A component, and its parameters (K, ..., E), nearly certain of parameters drawn from q.

        Its predictive densities and draws are then those given the parameters. Families of other
        packages say by ``certain(x)`` which natural parameters are nearly certain of x.
        """

    def with_completed(self, X: Any, completed: Array) -> Any:
        """Rows (n, D) in which missing values that q counts as observed are as in ``completed``."""

    def without_indicator(self, column: int) -> "Component":
        """The component that does not ask whether a column has been observed, or itself."""

    def marginals(self, lam: Array) -> tuple[Any, ...]:
        """`skvt.models.mixture.Marginals` of the columns' parameters, in units of the data."""

    def column_evidence(self, sums: Array) -> Array:
        """Log evidence of each column alone, (K, D) nats, without the base measure."""
