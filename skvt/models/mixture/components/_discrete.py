"""Columns of bits, categories, tokens and counts."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln, xlogy

from skvt.compiled import digamma_array
from skvt.expfam import Dirichlet, DirichletColumns, Gamma
from skvt.files import PRIOR, in_files
from skvt.models.mixture._kernels import indicators
from skvt.models.mixture._marginals import Marginals, of_probabilities, of_rates
from skvt.models.mixture.components._base import (
    ConjugateComponent,
    PairOfEachColumn,
    dense_rows,
    with_draws,
    with_means,
)
from skvt.rows import dense, without_missing
from skvt.ties import exceeds, stable_argmax
from skvt.typing import Array

# Average number of categories per column at which indicators become sparse.
_LEVELS_OF_SPARSE = 64


class OfLevels(ConjugateComponent):
    """Independent columns of bits or categories, of which two distributions mix to a third one."""

    def mixed(self, lam: Array, other: Array, shares: Array) -> Array:
        shares = np.repeat(shares, self.sizes_of_columns, axis=-1).reshape(lam.shape)
        mean = self.family.mean
        return np.asarray(shares * mean(lam) + (1.0 - shares) * mean(other))

    def log_predictive_mixed(self, X: Any, lam: Array, other: Array, shares: Array) -> Array:
        return self.log_predictive(X, self.mixed(lam, other, shares))


@in_files("models.Bernoulli")
@dataclass(frozen=True)
class Bernoulli(OfLevels, PairOfEachColumn):
    """Independent binary columns with beta priors; features [x, seen - x]; ``prior`` (D, 2).

    With ``sparse``, they are ``[x, -x - missing, 1]``; all but the last are 0 where x is 0.
    """

    prior: Annotated[Array, "d 2"]
    dtype: np.dtype[Any]
    sparse: bool = False

    family = Dirichlet
    missing = True

    def features(self, X: Any) -> Any:
        """Return the features, see the class; both are 0 where x is missing, unless ``sparse``."""
        if not self.sparse:
            X = dense_rows(X)
            ones = np.concatenate([X, 1.0 - X], axis=1)
            return np.nan_to_num(ones, copy=False)
        X = sp.csr_array(X, dtype=np.float64)
        missing = np.isnan(X.data)
        ones, others = (
            sp.csr_array((data, X.indices, X.indptr), X.shape)
            for data in (np.where(missing, 0.0, X.data), np.where(missing, -1.0, -X.data))
        )
        rows = sp.csr_array(np.ones((X.shape[0], 1)))
        return sp.csr_array(sp.hstack([ones, others, rows], format="csr"))

    def spread(self, sums: Array) -> Array:
        """(..., P) -> (..., D, 2)."""
        if not self.sparse:
            return super().spread(sums)
        D = len(self.prior)
        return np.stack([sums[..., :D], sums[..., D:-1] + sums[..., -1:]], axis=-1)

    def gather(self, t: Array) -> Array:
        rows = [t[..., 1].sum(axis=-1, keepdims=True)] if self.sparse else []
        return np.concatenate([t[..., 0], t[..., 1], *rows], axis=-1)

    def sums_of(self, own: Array) -> Array:
        """Return sums with this ``M S``, non-negative if ``M S`` is."""
        sums = self.gather(own)
        sums[..., 2 * len(self.prior) :] = 0.0
        return sums

    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Return log densities, linear in the features since columns are independent."""
        return self.features(X) @ self.gather(np.log(Dirichlet.mean(lam))).T

    def repeated(self, number: int) -> "Bernoulli":
        """Return the component of dense rows in which these columns occur ``number`` times."""
        return replace(self, prior=np.tile(self.prior, (number, 1)), sparse=False)

    def column_probabilities(self, lam: Array, column: int, X: Any = None) -> Array:
        """Return predictive probabilities of a zero and a one in a column, (K, 2)."""
        return Dirichlet.mean(lam)[:, column, ::-1]

    def imputed(self, X: Array, lam: Array, memberships: Array) -> Array:
        """Replace missing values by the more probable value, or by zero at ties."""
        out = np.array(X, np.float64)
        ones = memberships @ Dirichlet.mean(lam)[..., 0]
        return np.where(np.isnan(out), exceeds(ones, 0.5), out)

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        probability = Dirichlet.mean(lam)[:, 0]
        return (rng.random((n_rows, self.n_features)) < probability).astype(self.dtype)

    def conditional_mean(self, X: Any, lam: Array) -> Array:
        """Return rows with missing values at the probabilities of ones, (K, n, D)."""
        return with_means(X, Dirichlet.mean(lam)[..., 0])

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        ones = np.ones(self.n_features, np.intp)
        return (of_probabilities(lam[..., 0], lam[..., 1], categories=ones),)


@in_files("models.Multinomial")
@dataclass(frozen=True)
class Multinomial(ConjugateComponent):
    """Rows of counts, each token from Dir(phi_k); features are the counts; ``prior`` (D,).

    The density is that of the sequence of tokens: it has no multinomial coefficient, which does not
    depend on parameters. The number of tokens is not modelled; drawn rows have ``n_tokens``.
    """

    prior: Annotated[Array, "d"]
    dtype: np.dtype[Any]
    n_tokens: int = 1

    family = Dirichlet
    sparse = True

    @property
    def n_features(self) -> int:
        return self.prior.size

    def features(self, X: Any) -> Any:
        return sp.csr_array(X, dtype=np.float64) if sp.issparse(X) else dense_rows(X)

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draw rows of ``n_tokens`` tokens; probabilities are drawn anew for each row."""
        probabilities = Dirichlet.sample(np.broadcast_to(lam, (n_rows, lam.size)), rng)
        return rng.multinomial(self.n_tokens, probabilities).astype(self.dtype)

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        """Return the probabilities that a token belongs to each column."""
        return (of_probabilities(lam, lam.sum(axis=1, keepdims=True) - lam),)

    def column_evidence(self, sums: Array) -> Array:
        """Return the evidence of a model in which tokens belong to a column or to any other."""
        after, before = (
            np.stack([lam, lam.sum(axis=1, keepdims=True) - lam], axis=-1)
            for lam in (self.natural_parameters(sums), self.prior[None])
        )
        return Dirichlet.log_normalizer(after) - Dirichlet.log_normalizer(before)


@in_files("models.Categorical")
@dataclass(frozen=True)
class Categorical(OfLevels):
    """Independent columns of categories with Dirichlet priors; features are indicators.

    Codes of C_d or more are levels that do not occur in the fit. They have no features, so that
    assignments do not depend on them.
    """

    # (sum_d C_d,): concentrations, column after column.
    prior: Annotated[Array, "n"]
    # Number of categories C_d of each column; the data have 0, ..., C_d - 1, or NaN.
    sizes: tuple[int, ...]
    dtype: np.dtype[Any]
    # Whether predictive densities keep a share for an unseen level.
    open_levels: bool = False

    missing = True

    def validate(self, d: int, k: int) -> bool:
        return min(self.sizes) > 0 and sum(self.sizes) == self.prior.size

    @cached_property
    def family(self) -> DirichletColumns:
        return DirichletColumns(self.sizes)

    @property
    def sizes_of_columns(self) -> tuple[int, ...]:
        return self.sizes

    @property
    def n_features(self) -> int:
        return len(self.sizes)

    def features(self, X: Any) -> Any:
        """Return ``[x_d = c]`` for each column and category, all 0 where x_d is missing.

        The result is CSR if categories are many, so that the cost of a row is proportional to its
        columns rather than to their categories.
        """
        X, ends = dense_rows(X), np.cumsum(self.sizes)
        if ends[-1] < _LEVELS_OF_SPARSE * len(ends):
            out = np.zeros((X.shape[0], ends[-1]))
            indicators(X, ends, out)
            return out
        known = (X >= 0.0) & (self.sizes > X)
        places = (np.where(known, X, 0.0) + (ends - self.sizes)).astype(np.int32)[known]
        rows = np.append(0, known.sum(axis=1).cumsum()).astype(np.int32)
        return sp.csr_array((np.ones(places.size), places, rows), (X.shape[0], ends[-1]))

    def own_fits(self, features: Any) -> tuple[Array, Array]:
        """Return the fit of each row under a component that was fitted to this row alone."""
        totals = np.repeat(self.family.totals(self.prior), self.sizes)
        table = digamma_array(self.prior + 1.0) - digamma_array(totals + 1.0)
        return features @ table, features @ np.abs(table)

    @property
    def opened(self) -> "Categorical":
        return replace(self, open_levels=True)

    def log_predictive(self, X: Any, lam: Array, n_values: Array | None = None) -> Array:
        """Return log densities, linear in the features since columns are independent.

        With open levels, ``lam`` must contain all components, unless ``n_values`` (D,), the numbers
        N of values in all rows, are passed. An unseen level has the same probability
        ``u = a / (N + A + a)`` in each component, where A is the sum of the column's concentrations
        and ``a`` the smallest one. The levels of the fit share the rest. Each has at least the
        probability ``(1 - u) a / (N + A) = u`` in every component, so that an unseen level is never
        more probable than another level.
        """
        of_levels = np.asarray(self.features(X) @ np.log(self.family.mean(lam)).T)
        if not self.open_levels:
            return of_levels
        X, before = dense_rows(X), self.family.totals(self.prior)
        if n_values is None:
            n_values = (self.family.totals(lam) - before).sum(axis=0)
        starts = np.cumsum(self.sizes, dtype=np.intp) - np.array(self.sizes, np.intp)
        smallest = np.minimum.reduceat(self.prior, starts)
        log_known, log_unseen = (
            np.log(part / (n_values + before + smallest)) for part in (n_values + before, smallest)
        )
        of_column = np.where(self.sizes > X, log_known, log_unseen)
        return of_levels + np.where(np.isnan(X), 0.0, of_column).sum(axis=1, keepdims=True)

    def log_predictive_mixed(self, X: Any, lam: Array, other: Array, shares: Array) -> Array:
        n_values = self.family.totals((lam - self.prior).sum(axis=0))
        return self.log_predictive(X, self.mixed(lam, other, shares), n_values)

    def repeated(self, number: int) -> "Categorical":
        """Return the component of rows in which these columns occur ``number`` times."""
        return replace(self, prior=np.tile(self.prior, number), sizes=self.sizes * number)

    def column_probabilities(self, lam: Array, column: int, X: Any = None) -> Array:
        """Return predictive probabilities of a column's categories, (K, C)."""
        ends = np.cumsum(self.sizes)
        return self.family.mean(lam)[..., ends[column] - self.sizes[column] : ends[column]]

    def imputed(self, X: Array, lam: Array, memberships: Array) -> Array:
        """Replace missing values by the most probable category; ties go to the first."""
        out = np.array(X, np.float64)
        for d in np.flatnonzero(np.isnan(out).any(axis=0)).tolist():
            holes = np.isnan(out[:, d])
            chances = np.asarray(memberships[holes] @ self.column_probabilities(lam, d))
            out[holes, d] = stable_argmax(chances)
        return out

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        probabilities = np.split(self.family.mean(lam), np.cumsum(self.sizes)[:-1])
        columns = [rng.choice(p.size, n_rows, p=p / p.sum()) for p in probabilities]
        return np.stack(columns, axis=1).astype(self.dtype)

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        columns = np.repeat(np.arange(self.n_features), self.sizes)
        codes = np.concatenate([np.arange(size) for size in self.sizes])
        others = self.family.totals(lam)[:, columns] - lam
        return (of_probabilities(lam, others, columns, codes),)

    def column_evidence(self, sums: Array) -> Array:
        """Return the exact evidence of each column, since columns are independent."""
        after = self.family.log_normalizers(self.natural_parameters(sums))
        return after - self.family.log_normalizers(self.prior)


def split_exposure(
    X: Any, exposure: str, typical: float = 1.0, shares: Array | None = None
) -> tuple[Any, Array]:
    """Return counts, as CSR or a dense array, and the exposure of each row, (n,).

    The exposure is 1 ("none"), the last column ("column"), or the total of the row ("row_total").
    With missing values, the total is divided by the share that the row's observed columns have of
    the total of all rows. A row without values has the typical exposure.
    """
    X = sp.csr_array(X, dtype=np.float64) if sp.issparse(X) else dense_rows(X)
    if exposure == "none":
        return X, np.ones(X.shape[0])
    if exposure == "column":
        return X[:, :-1], dense(X[:, [-1]]).ravel()
    seen, holes = without_missing(X)
    if holes is None:
        return X, np.asarray(X.sum(axis=1)).ravel()
    even = np.full(X.shape[1], 1.0 / X.shape[1])
    share = 1.0 - holes @ (even if shares is None else shares)
    known = share > 1e-9
    total = np.asarray(seen.sum(axis=1)).ravel() / np.where(known, share, 1.0)
    return X, np.where(known, total, typical)


class OfExposure(ConjugateComponent):
    """Independent columns of counts in proportion to an exposure of the row."""

    # "none", "column" or "row_total", see `split_exposure`.
    exposure: str = "none"
    # Mean exposure of the rows of the fit; drawn rows have this exposure.
    typical: float = 1.0
    # (D,): shares of the columns in the total of all rows.
    shares: Array | None = None

    def validate(self, d: int, k: int) -> bool:
        return self.exposure in ("none", "column", "row_total")

    def means(self, lam: Array) -> Array:
        """Return expected counts for an exposure of 1, (K, D)."""
        raise NotImplementedError

    def _drawn(self, lam: Array, exposures: Array, rng: np.random.Generator) -> Array:
        """Draw rows of the posterior predictive with these exposures."""
        raise NotImplementedError

    @property
    def n_features(self) -> int:
        return len(self.prior) + (self.exposure == "column")

    def repeated(self, number: int) -> Any:
        """Return the component of dense rows in which the columns of counts occur ``number`` times.

        An exposure in the last column occurs once.
        """
        prior = np.tile(self.prior, (number, 1))
        return replace(self, prior=prior)  # type: ignore[type-var]

    def split(self, X: Any) -> tuple[Any, Array]:
        """Return counts and exposures, see :func:`split_exposure`."""
        return split_exposure(X, self.exposure, self.typical, self.shares)

    def of_all_columns(self, values: Array, exposures: Any) -> Array:
        """Return values (..., D) of columns of counts; append exposures if they are a column."""
        if self.exposure != "column":
            return values
        last = np.broadcast_to(exposures, values.shape[:-1]).astype(values.dtype)
        return np.concatenate([values, last[..., None]], axis=-1)

    def conditional_mean(self, X: Any, lam: Array) -> Array:
        """Return rows with missing values at expected rates times the exposure, (K, n, D)."""
        X, (_, exposures) = np.asarray(X, np.float64), self.split(X)
        means = exposures[:, None] * self.means(lam)[:, None]
        return np.where(np.isnan(X), self.of_all_columns(means, exposures), X)

    def conditional_sample(self, X: Array, lam: Array, rng: np.random.Generator) -> Array:
        return with_draws(X, self._drawn(lam, self.split(X)[1], rng))

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draw rows at the typical exposure."""
        return self._drawn(lam, np.full(n_rows, self.typical), rng)

    def column_evidence(self, sums: Array) -> Array:
        """Return the evidence of the independent columns; that of an exposure column is 0."""
        return self.of_all_columns(super().column_evidence(sums), 0.0)


@in_files("models.Poisson")
@dataclass(frozen=True)
class Poisson(OfExposure):
    """Independent columns of counts, each Poisson(e_n rate_kd), gamma priors; ``prior`` (D, 2).

    Features are ``[x_d, e seen_d, rest]``, D of each of the first two, with the row's exposure e
    and ``rest = sum_d x_d log e - log x_d!``, the part of the log density that does not depend on
    the rates. With ``sparse`` they are ``[x_d, -e missing_d, rest, e]``; the first two are 0 where
    x_d is 0.
    """

    # (D, 2): shape and rate of each column's gamma prior.
    prior: Annotated[Array, "n 2"]
    dtype: np.dtype[Any]
    sparse: bool = False
    exposure: str = "none"
    typical: Annotated[float, PRIOR] = 1.0
    shares: Annotated[Array | None, "n"] = None

    family = Gamma
    missing = True

    @property
    def base(self) -> Array:
        return np.append(np.zeros(2 * len(self.prior)), [1.0, 0.0] if self.sparse else 1.0)

    def features(self, X: Any) -> Any:
        """Return the features, see the class."""
        counts, exposures = self.split(X)
        if sp.issparse(counts) and self.sparse:
            missing = np.isnan(counts.data)
            values = np.where(missing, 0.0, counts.data)
            rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
            rest = xlogy(values, exposures[rows]) - gammaln(values + 1.0)
            rest = np.bincount(rows, rest, counts.shape[0])
            structure = counts.indices, counts.indptr
            entries = np.where(missing, -exposures[rows], 0.0), *structure
            holes = sp.csr_array(entries, counts.shape, copy=True)
            holes.eliminate_zeros()
            counts = sp.csr_array((values, *structure), counts.shape)
            of_rows = sp.csr_array(np.column_stack([rest, exposures]))
            return sp.csr_array(sp.hstack([counts, holes, of_rows], format="csr"))
        X = dense_rows(counts)
        seen = ~np.isnan(X)
        X = np.where(seen, X, 0.0)
        rest = -gammaln(X + 1.0).sum(axis=1, keepdims=True)
        exposures = exposures[:, None]
        if self.exposure != "none":
            rest += xlogy(X, exposures).sum(axis=1, keepdims=True)
        if self.sparse:
            return np.concatenate([X, np.where(seen, 0.0, -exposures), rest, exposures], axis=1)
        return np.concatenate([X, seen * exposures, rest], axis=1)

    def spread(self, sums: Array) -> Array:
        """(..., P) -> (..., D, 2)."""
        D = len(self.prior)
        seen = sums[..., D : 2 * D] + (sums[..., -1:] if self.sparse else 0.0)
        return np.stack([sums[..., :D], seen], axis=-1)

    def gather(self, t: Array) -> Array:
        rest = [np.zeros((*t.shape[:-2], 1))]
        if self.sparse:
            rest.append(t[..., 1].sum(axis=-1, keepdims=True))
        return np.concatenate([t[..., 0], t[..., 1], *rest], axis=-1)

    def sums_of(self, own: Array) -> Array:
        """Return sums with this ``M S``, which count no row as complete."""
        sums = self.gather(own)
        sums[..., 2 * len(self.prior) :] = 0.0
        return sums

    def repeated(self, number: int) -> "Poisson":
        return replace(super().repeated(number), sparse=False)

    def means(self, lam: Array) -> Array:
        return Gamma.mean(lam)

    def _drawn(self, lam: Array, exposures: Array, rng: np.random.Generator) -> Array:
        """Draw from independent negative binomials."""
        shape, rate = lam[..., 0], lam[..., 1]
        rates = rng.standard_gamma(shape, size=(exposures.size, shape.size)) / rate
        draws = rng.poisson(exposures[:, None] * rates).astype(self.dtype)
        return self.of_all_columns(draws, exposures)

    def marginals(self, lam: Array) -> tuple[Marginals, ...]:
        """Return the rates of the columns for an exposure of 1."""
        return (of_rates(lam[..., 0], lam[..., 1]),)
