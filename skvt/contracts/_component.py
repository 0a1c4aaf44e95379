"""The contract of a mixture's components.

The likelihood of a component is conjugate-exponential. Component k has the parameters phi_k. Their
prior has the natural parameters eta, and their posterior q has the natural parameters lam_k. A row
x has features F(x), a vector of P numbers, and

    log p(x | phi_k) = <F(x), T(phi_k)>,      lam_k = eta + M sum_n r_nk F(x_n).

Here r_nk is the responsibility of component k for row n. The matrix M maps P features to natural
parameters, and ``T(phi) = M' t(phi) + constant`` with the sufficient statistics t of the family.
The *table* (K, P) has T(phi_k), or its expectation under q, in row k. The log densities of a batch
are the matrix product ``F @ table.T``, and the sums of features are ``R.T @ F`` with the
responsibilities R. Engines and moves therefore do not depend on the likelihood.

In shapes, n is the number of rows, D the number of columns, K the number of components and P the
number of features. ``lam`` (K, ..., E) has the natural parameters of all components. If the
posterior of a component is a product of independent factors, the axes ``...`` have one entry for
each factor. The last axis has the E natural parameters of a factor.

The contract consists of five protocols, one for each kind of caller: :class:`Likelihood` for global
steps, :class:`Completes` for local steps, :class:`SharesGlobals` for moves and initialisation,
:class:`Predicts` for predictions, and :class:`Describes` for descriptions.

A missing value (NaN) contributes no features, so that it is integrated out. With full covariances,
missing values are local variables with a posterior q: see :mod:`skvt.models.mixture._missing`.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy as np

from skvt.contracts._model import Capability
from skvt.expfam import Family
from skvt.typing import Array, IndexArray


class HiddenValues(Protocol):
    """The missing values of n rows, with their posterior q under each of K components.

    A local step calls :meth:`add_to` before it computes the responsibilities, and
    :meth:`add_statistics` afterwards.
    """

    def add_to(self, logits: Array, entropy: Array) -> None:
        """Correct ``logits`` (n, K) for missing values, and add their entropies to ``entropy``.

        Both arrays change in place. The logits are the logarithms of unnormalised responsibilities.
        Entry (n, k) of ``entropy`` is the entropy in nats of the missing values of row n under
        component k.

        The bounds and energies that ``skvt.models.mixture._kernels.responsibilities`` computes from
        corrected logits differ: the bounds include the entropies of missing values, and the
        energies are too large by ``T sum_k r_nk entropy[n, k]``.
        """

    def add_statistics(self, weighted_resp: Array, sums: Array) -> None:
        """Add the expected features of missing values to ``sums`` (K, P), in place.

        ``weighted_resp`` (n, K) has the responsibilities times the weights of the rows.
        """


#: ``completion(X, inv_temps)`` returns the :class:`HiddenValues` of rows X under one table, or None
#: if no value is missing. ``inv_temps`` has the inverse temperature of each row, (n,), or one
#: inverse temperature for all rows, (1,).
Completion: TypeAlias = Callable[[Any, Array], HiddenValues | None]


class Likelihood(Protocol):
    """Features of rows and posterior of the parameters, for global steps."""

    # Exponential family of the parameters phi_k of a component.
    @property
    def family(self) -> Family: ...
    # (..., E): natural parameters eta of the prior of one component.
    @property
    def prior(self) -> Array: ...
    # Number D of columns of the data.
    @property
    def n_features(self) -> int: ...
    # Type of the numbers in data, responsibilities and draws: float32 or float64. Features are
    # always float64, since covariances are differences of sums of squares.
    @property
    def dtype(self) -> np.dtype[Any]: ...
    # TEMPERABLE if the integral of ``p(x | phi_k)^b`` over x does not depend on phi_k. The
    # likelihood then has a method ``log_partition(b)``, from which temperatures are learned: it
    # returns the logarithm of the integral in nats, and the derivative of this logarithm by b.
    @property
    def capabilities(self) -> frozenset[Capability]: ...
    # (P,): the constant ``T(phi) - M' t(phi)``; a number if it is the same for all features.
    @property
    def base(self) -> Any: ...

    def features(self, X: Any) -> Any:
        """Return F(x) of each row, (n, P); features of missing values are 0 or not stored."""

    def natural_sums(self, sums: Array) -> Array:
        """Return ``M S``, (K, ..., E), the part of ``lam`` that rows add to the prior.

        ``sums`` (K, P) are the sums S of features over the rows of each component.
        """

    def feature_coefficients(self, t: Array) -> Array:
        """Return ``M' t``, (K, P), for values ``t`` (K, ..., E) of the sufficient statistics."""

    def natural_parameters(self, sums: Array) -> Array:
        """Return ``lam = eta + M S``, (K, ..., E), for the sums S of features ``sums`` (K, P)."""

    def expected_table(self, lam: Array) -> Array:
        """Return the table ``E_q[T(phi_k)]``, (K, P), for the parameters ``lam`` of q."""

    def table_at(self, t: Array) -> Array:
        """Return the table ``T(phi_k)``, (K, P), for the values ``t`` (K, ..., E) of t(phi_k)."""


class Completes(Protocol):
    """Densities and sums of features of rows in which values may be missing, for local steps."""

    # Whether NaN in the data is read as a missing value.
    @property
    def missing(self) -> bool: ...
    # Whether features of sparse rows are sparse.
    @property
    def sparse(self) -> bool: ...
    # Whether the features of a batch are not built, because they may need much more memory than
    # the rows. Sums of features, and densities under few components, are then computed from the
    # rows.
    @property
    def avoids_features(self) -> bool: ...

    def log_densities_and_sums(
        self, X: Any, table: Array
    ) -> tuple[Array, Callable[[Array], Array]]:
        """Return log densities of rows, (n, K), and a function for their sums of features.

        ``table`` is the transposed table, (P, K). The function takes ``weighted_resp`` and returns
        the :meth:`weighted_sums` of the rows X, without computing the features of X again.
        """

    def weighted_sums(self, X: Any, weighted_resp: Array) -> Array:
        """Return the sums of features ``R.T @ F``, (K, P).

        ``weighted_resp``, R (n, K), has the responsibilities times the weights of the rows.
        """

    def completion(self, table: Array) -> Completion | None:
        """Return the completion of missing values under the table (K, P).

        Return None if missing values only leave out features, so that no completion is needed.
        """

    def filled_features(self, X: Any) -> Any:
        """Return the features (n, P) of rows X.

        If features need complete rows, the prior means take the place of missing values.
        """

    def with_completed(self, X: Any, completed: Array) -> Any:
        """Return rows X with values of ``completed`` (n, D) in place of missing values.

        Missing values that the likelihood integrates out instead of completing them stay NaN.
        """

    def without_indicator(self, column: int) -> "Component":
        """Return the component that does not model whether ``column`` is observed."""

    @property
    def without_jacobian(self) -> "Component":
        """The component without the Jacobian of logarithms.

        In columns that are modelled in logarithms, its density is that of the logarithm. The
        density of the component itself is that of the value, which includes a Jacobian.
        """


class SharesGlobals(Protocol):
    """Evidence of components, for moves and initialisation.

    Components may share global parameters: for instance, all may have the same covariance matrix.
    The argument ``sums`` (K, P) has the sums of features over the rows of each component.
    """

    @property
    def without_shared_globals(self) -> "Component":
        """The likelihood without shared global parameters, for operations on a single component."""

    # Log density in nats of the parameters of the prior under their prior; 0 if no parameter has a
    # prior.
    @property
    def log_hyperprior(self) -> float: ...

    @property
    def has_common_columns(self) -> bool:
        """Whether all components may have the same distribution in some columns."""

    def with_shared_globals(self, lam: Array) -> Array:
        """Return ``lam`` with the posterior of shared global parameters given all rows.

        In ``lam``, they have their posterior given the rows of one component. Predictions and
        descriptions need the result, which differs from ``lam`` only if components share global
        parameters.
        """

    def log_evidence(self, sums: Array) -> Array:
        """Return the log marginal likelihood of the rows of each component, (K,), in nats.

        The total over the components is the log marginal likelihood of all rows.
        """

    def merge_gains(self, sums: Array, a: IndexArray, b: IndexArray) -> Array:
        """Return the gain of log evidence in nats by each of n possible merges, (n,).

        Merge i gives the rows of component b[i] to component a[i], and changes no other component.
        Gains of several merges may be estimates if they are clear losses. The gain of a single
        merge is exact.
        """

    def row_fits(self, X: Any) -> Any:
        """Return a `skvt.models.mixture.components.RowFits`, which fits a component to each row.

        Initialisation compares rows with each other by their components.
        """

    def projected(self, X: Any, weights: Array, directions: Callable[[Array, Array], Array]) -> Any:
        """Return the :meth:`row_fits` of rows X after a projection to a subspace.

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

        The missing values of a row have a mixture distribution, whose weights are the probabilities
        of the components in ``memberships`` (n, K).
        """

    def conditional_sample(self, X: Any, lam: Array, rng: np.random.Generator) -> Array:
        """Draw the missing values of rows (n, D) of a component, whose ``lam`` is (..., E).

        Missing values have the predictive distribution of the component or, if columns are
        dependent within the component, this distribution given the observed values of the row.
        """

    def drawn(self, lam: Array, rng: np.random.Generator) -> tuple["Component", Array]:
        """Draw parameters from q; return a likelihood, and a ``lam`` concentrated at the draw.

        With both results, predictive densities and draws are those given the drawn parameters. The
        family needs a method ``concentrate_at(x)``, which returns natural parameters of a
        distribution concentrated at x.
        """

    @property
    def with_unknown_levels(self) -> "Component":
        """The likelihood for rows that may have unknown levels in columns of categories.

        The code of an unknown level is the number of known levels of the column. A likelihood
        without columns of categories returns itself.
        """


class Describes(Protocol):
    """Parameters in the units of the data, for descriptions of components and for attributes.

    The likelihood may centre the data. ``lam`` then describes centred rows.
    """

    def in_data_coordinates(self, lam: Array) -> tuple[Any, Array]:
        """Return the family, and ``lam`` in the coordinates of the data before centring."""

    def parts(self, lam: Array) -> dict[str, tuple["Component", Array]]:
        """Return the likelihood and ``lam`` of each block of columns, by the name of the block.

        The result is empty if the likelihood does not consist of blocks.
        """

    def marginals(self, lam: Array) -> tuple[Any, ...]:
        """Return the `skvt.models.mixture.Marginals` of the columns, in units of the data."""

    def gaussians(self, lam: Array) -> tuple[Array, Array] | None:
        """Return means (K, D) and covariances (K, D, D); None if components are not Gaussian."""

    def column_evidence(self, sums: Array) -> Array:
        """Return the log evidence of each column by itself, (K, D), in nats.

        The terms of the base measure, which depend only on the rows, are left out.
        """


class Component(Likelihood, Completes, SharesGlobals, Predicts, Describes, Protocol):
    """The likelihood of a mixture's components, with the members of all five protocols.

    It is immutable: no method changes it.
    """
