"""Mixture components by the formulas of a textbook, one row and one component at a time.

Nothing here is taken from skvt but the classes: parameters are those of ``family.to_standard``,
whose means are relative to the component's centre.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.special import betaln, digamma, gammaln, multigammaln
from scipy.stats import multivariate_normal, multivariate_t, nbinom, norm

from skvt.expfam import Normal, NormalGamma, NormalWishart, Wishart
from skvt.models.mixture import Categorical, NegativeBinomial, Poisson, components

LOG_2PI = np.log(2.0 * np.pi)


# ------------------------------------------------------------------------ Gaussians, full
def wishart_expected_log_det(nu, scale_inverse):
    D = len(scale_inverse)
    return (
        digamma(0.5 * (nu - np.arange(D))).sum()
        + D * np.log(2.0)
        - np.linalg.slogdet(scale_inverse)[1]
    )


def full_log_density(q, x, center):
    """The expected log density. It integrates over NaN, which is the bound at the best q(x_m)."""
    D, covariance = x.size, q["scale_inverse"] / q["degrees_of_freedom"]
    seen = ~np.isnan(x)
    if not seen.any():
        return 0.0
    deviation = (x - center - q.get("mean", 0.0))[seen]
    uncertain = D / q["mean_precision"] if "mean" in q else 0.0
    log_det = wishart_expected_log_det(q["degrees_of_freedom"], q["scale_inverse"])
    log_det -= np.linalg.slogdet(np.linalg.inv(covariance))[1]
    marginal = multivariate_normal(np.zeros(seen.sum()), covariance[np.ix_(seen, seen)])
    return marginal.logpdf(deviation) + 0.5 * (log_det - uncertain)


def full_update(q, X, r, center):
    X, n = X - center, r.sum()
    if "mean" not in q:
        return {
            "degrees_of_freedom": q["degrees_of_freedom"] + n,
            "scale_inverse": q["scale_inverse"] + (X.T * r) @ X,
        }
    kappa, m, average = q["mean_precision"], q["mean"], r @ X / n
    scatter = ((X - average).T * r) @ (X - average)
    shift = np.outer(average - m, average - m) * kappa * n / (kappa + n)
    return {
        "mean": (kappa * m + n * average) / (kappa + n),
        "mean_precision": kappa + n,
        "degrees_of_freedom": q["degrees_of_freedom"] + n,
        "scale_inverse": q["scale_inverse"] + scatter + shift,
    }


def full_predictive(q, x, center):
    freedom = q["degrees_of_freedom"] - x.size + 1.0
    factor = 1.0 + 1.0 / q["mean_precision"] if "mean" in q else 1.0
    mean = center + q.get("mean", np.zeros(x.size))
    seen = ~np.isnan(x)
    if not seen.any():
        return 0.0
    matrix = factor / freedom * q["scale_inverse"][np.ix_(seen, seen)]
    return multivariate_t(mean[seen], matrix, freedom).logpdf(x[seen])


def wishart_log_normalizer(nu, scale_inverse):
    D = len(scale_inverse)
    log_det = np.linalg.slogdet(scale_inverse)[1]
    return 0.5 * nu * (D * np.log(2.0) - log_det) + multigammaln(0.5 * nu, D)


def full_divergence(q, p):
    D, nu = len(q["scale_inverse"]), q["degrees_of_freedom"]
    precision = nu * np.linalg.inv(q["scale_inverse"])
    kl = wishart_log_normalizer(p["degrees_of_freedom"], p["scale_inverse"])
    kl -= wishart_log_normalizer(nu, q["scale_inverse"])
    log_det = wishart_expected_log_det(nu, q["scale_inverse"])
    kl += 0.5 * (nu - p["degrees_of_freedom"]) * log_det
    kl += 0.5 * np.trace((p["scale_inverse"] - q["scale_inverse"]) @ precision)
    if "mean" in q:
        ratio, gap = p["mean_precision"] / q["mean_precision"], q["mean"] - p["mean"]
        kl += 0.5 * (
            D * (ratio - 1.0 - np.log(ratio)) + p["mean_precision"] * gap @ precision @ gap
        )
    return kl


# ------------------------------------------------------- Gaussians, diagonal and spherical
def _columns(q, x, center):
    """Return shapes, rates, deviations and precisions of the mean of columns with values."""
    D = x.size
    a, b = (np.broadcast_to(q[name], D) for name in ("shape", "rate"))
    mean, kappa = np.broadcast_to(q["mean"].reshape(-1), D), q["mean_precision"].reshape(-1)
    seen = ~np.isnan(x)
    return a[seen], b[seen], (x - center - mean)[seen], np.broadcast_to(kappa, D)[seen]


def columns_log_density(q, x, center):
    a, b, deviation, kappa = _columns(q, x, center)
    each = digamma(a) - np.log(b) - LOG_2PI - 1.0 / kappa - a / b * deviation**2
    return 0.5 * each.sum()


def diagonal_update(q, X, r, center):
    columns = [
        _spherical_update(
            {name: value[d] for name, value in q.items()}, X[:, d : d + 1] - center[d], r
        )
        for d in range(X.shape[1])
    ]
    return {name: np.stack([column[name] for column in columns]) for name in q}


def spherical_update(q, X, r, center):
    return _spherical_update(q, X - center, r)


def _spherical_update(q, X, r):
    seen = ~np.isnan(X)
    weights = r[:, None] * seen
    X, n = np.where(seen, X, 0.0), weights.sum(axis=0)
    shape = q["shape"] + 0.5 * n.sum()
    kappa, m = q["mean_precision"], q["mean"]
    # A column without values has no average. Its terms are 0 for any value of it.
    average = (weights * X).sum(axis=0) / np.where(n > 0.0, n, 1.0)
    squares = (weights * (X - average) ** 2).sum() + (
        kappa * n / (kappa + n) * (average - m) ** 2
    ).sum()
    return {
        "mean": (kappa * m + n * average) / (kappa + n), "mean_precision": kappa + n,
        "shape": shape, "rate": q["rate"] + 0.5 * squares,
    }  # fmt: skip


def diagonal_predictive(q, x, center):
    a, b, deviation, kappa = _columns(q, x, center)
    scale = b / a * (1.0 + 1.0 / kappa)
    return sum(
        multivariate_t([0.0], [[s]], 2.0 * shape).logpdf([d])
        for s, shape, d in zip(scale, a, deviation, strict=True)
    )


def spherical_predictive(q, x, center):
    a, b, deviation, kappa = _columns(q, x, center)
    if deviation.size == 0:
        return 0.0
    scale = np.diag(b / a * (1.0 + 1.0 / kappa))
    return multivariate_t(np.zeros(deviation.size), scale, 2.0 * a[0]).logpdf(deviation)


def _gamma_divergence(a, b, a0, b0):
    return (
        (a - a0) * digamma(a)
        - gammaln(a)
        + gammaln(a0)
        + a0 * (np.log(b) - np.log(b0))
        + a * (b0 - b) / b
    )


def columns_divergence(q, p):
    a, b = q["shape"], q["rate"]
    kl = np.sum(_gamma_divergence(a, b, p["shape"], p["rate"]))
    ratio = p["mean_precision"] / q["mean_precision"]
    precision = np.reshape(a / b, np.shape(a) + (1,) * (q["mean"].ndim - np.ndim(a)))
    gap = p["mean_precision"] * (q["mean"] - p["mean"]) ** 2 * precision
    return kl + 0.5 * np.sum(ratio - 1.0 - np.log(ratio) + gap)


# ------------------------------------------------------------- Gaussians of known variance
NOISE = 0.8


def known_log_density(q, x, center):
    """E log N(x; mu, s) is the log density at the mean minus a term for its variance."""
    each = norm(q["mean"] + center, np.sqrt(NOISE)).logpdf(x) - 0.5 * q["variance"] / NOISE
    return np.nansum(each)


def known_update(q, X, r, center):
    there = ~np.isnan(X)
    n, total = r @ there, r @ np.where(there, X - center, 0.0)
    variance = 1.0 / (1.0 / q["variance"] + n / NOISE)
    return {"mean": variance * (q["mean"] / q["variance"] + total / NOISE), "variance": variance}


def known_predictive(q, x, center):
    return np.nansum(norm(q["mean"] + center, np.sqrt(NOISE + q["variance"])).logpdf(x))


def known_divergence(q, p):
    ratio, gap = q["variance"] / p["variance"], (q["mean"] - p["mean"]) ** 2 / p["variance"]
    return 0.5 * np.sum(ratio - 1.0 - np.log(ratio) + gap)


# ----------------------------------------------------------------------------- discrete
def bernoulli_log_density(q, x, center):
    c, seen = q["concentration"], ~np.isnan(x)
    logs = digamma(c) - digamma(c.sum(axis=1, keepdims=True))
    return np.where(x == 1.0, logs[:, 0], logs[:, 1])[seen].sum()


def bernoulli_update(q, X, r, center):
    ones, zeros = r @ (X == 1.0), r @ (X == 0.0)
    return {"concentration": q["concentration"] + np.stack([ones, zeros], axis=1)}


def bernoulli_predictive(q, x, center):
    c, seen = q["concentration"], ~np.isnan(x)
    p = c[:, 0] / c.sum(axis=1)
    return np.log(np.where(x == 1.0, p, 1.0 - p))[seen].sum()


def multinomial_log_density(q, x, center):
    c = q["concentration"]
    return x @ (digamma(c) - digamma(c.sum()))


def multinomial_update(q, X, r, center):
    return {"concentration": q["concentration"] + r @ X}


def multinomial_predictive(q, x, center):
    """The tokens come one after the other."""
    c, total = q["concentration"].copy(), 0.0
    for token in np.repeat(np.arange(x.size), x.astype(int)):
        total += np.log(c[token] / c.sum())
        c[token] += 1.0
    return total


def dirichlet_divergence(q, p):
    c, c0 = np.atleast_2d(q["concentration"]), np.atleast_2d(p["concentration"])
    kl = gammaln(c.sum(axis=1)) - gammaln(c0.sum(axis=1)) + (gammaln(c0) - gammaln(c)).sum(axis=1)
    logs = digamma(c) - digamma(c.sum(axis=1, keepdims=True))
    return float((kl + ((c - c0) * logs).sum(axis=1)).sum())


# -------------------------------------------------------------------------------- sticks
def stick_divergence(a, b, alpha):
    """KL(Beta(a, b) || Beta(1, alpha))."""
    total = digamma(a + b)
    first, second = (a - 1.0) * (digamma(a) - total), (b - alpha) * (digamma(b) - total)
    return betaln(1.0, alpha) - betaln(a, b) + first + second


def categorical_log_density(q, x, center):
    """The columns have two, three, ... categories, and NaN does not count."""
    return sum(
        digamma(c[int(value)]) - digamma(c.sum())
        for c, value in zip(_by_column(q, x.size), x, strict=True)
        if not np.isnan(value)
    )


def categorical_update(q, X, r, center):
    columns = _by_column(q, X.shape[1])
    counts = [
        [r[column == c].sum() for c in range(own.size)]
        for own, column in zip(columns, X.T, strict=True)
    ]
    return {"concentration": q["concentration"] + np.concatenate(counts)}


def categorical_predictive(q, x, center):
    return sum(
        np.log(c[int(value)] / c.sum())
        for c, value in zip(_by_column(q, x.size), x, strict=True)
        if not np.isnan(value)
    )


def categorical_divergence(q, p):
    n_columns = len(sizes_of(q["concentration"]))
    pairs = zip(_by_column(q, n_columns), _by_column(p, n_columns), strict=True)
    return sum(
        dirichlet_divergence({"concentration": own}, {"concentration": other})
        for own, other in pairs
    )


def sizes_of(concentration):
    """Return the numbers of categories [2, 3, 4, ...] whose sum is the number of concentrations."""
    sizes = [2]
    while sum(sizes) < np.shape(concentration)[-1]:
        sizes.append(sizes[-1] + 1)
    return sizes


def _by_column(q, n_columns):
    sizes = np.arange(2, 2 + n_columns)
    return np.split(q["concentration"], np.cumsum(sizes)[:-1])


def poisson_log_density(q, x, center):
    a, b, seen = q["shape"], q["rate"], ~np.isnan(x)
    terms = x * (digamma(a) - np.log(b)) - a / b - gammaln(x + 1.0)
    return terms[seen].sum()


def poisson_update(q, X, r, center):
    seen = ~np.isnan(X)
    return {"shape": q["shape"] + r @ np.where(seen, X, 0.0), "rate": q["rate"] + r @ seen}


def poisson_predictive(q, x, center):
    """The predictive distribution is a negative binomial."""
    seen = ~np.isnan(x)
    p = q["rate"] / (1.0 + q["rate"])
    return nbinom.logpmf(x, q["shape"], p)[seen].sum()


def gamma_divergence(q, p):
    return float(_gamma_divergence(q["shape"], q["rate"], p["shape"], p["rate"]).sum())


# ------------------------------------------------------------------------ negative binomials
NB_SIZES = np.geomspace(0.05, 100.0, 16)


def log_binomials(x):
    """Return the log of Gamma(x + r) / (Gamma(r) x!) for each size r, (..., G)."""
    x = np.nan_to_num(x)[..., None]
    return gammaln(x + NB_SIZES) - gammaln(NB_SIZES) - gammaln(x + 1.0)


def negative_binomial_log_density(q, x, center):
    seen, both = ~np.isnan(x), digamma(q["a"] + q["b"])
    logs = log_binomials(x) + NB_SIZES * (digamma(q["a"]) - both)
    logs += np.nan_to_num(x)[:, None] * (digamma(q["b"]) - both)
    return (q["probability"] * logs)[seen].sum()


def negative_binomial_update(q, X, r, center):
    seen = ~np.isnan(X)
    a = q["a"] + NB_SIZES * (r @ seen)[:, None]
    b = q["b"] + (r @ np.nan_to_num(X))[:, None]
    logs = np.log(q["probability"]) + np.einsum("n,ndg->dg", r, log_binomials(X))
    logs += betaln(a, b) - betaln(q["a"], q["b"])
    share = np.exp(logs - logs.max(axis=1, keepdims=True))
    share /= share.sum(axis=1, keepdims=True)
    return {"probability": share, "a": a, "b": b, "scale": q["scale"]}


def negative_binomial_predictive(q, x, center):
    """The predictive distribution is a mixture of beta negative binomials."""
    seen, x = ~np.isnan(x), np.nan_to_num(x)
    logs = betaln(q["a"] + NB_SIZES, q["b"] + x[:, None]) - betaln(q["a"], q["b"])
    return np.log((q["probability"] * np.exp(logs + log_binomials(x))).sum(axis=1))[seen].sum()


def negative_binomial_divergence(q, p):
    a, b, c, d = q["a"], q["b"], p["a"], p["b"]
    kl = betaln(c, d) - betaln(a, b) + (a - c) * digamma(a) + (b - d) * digamma(b)
    kl += (c + d - a - b) * digamma(a + b) + np.log(q["probability"] / p["probability"])
    return float((q["probability"] * kl).sum())


# ----------------------------------------------------------------------------- the kinds
@dataclass(frozen=True)
class Kind:
    """A component with the functions of the textbook that belong to it.

    ``make(D, dtype)`` builds it with a prior that is not symmetric; ``rows(n, D, rng)`` draws data.
    ``log_density(q, x, center)`` is E_q[log p(x | phi)], ``update(q, X, r, center)`` the posterior
    after rows of weights r, ``predictive(q, x, center)`` the log predictive density of a row and
    ``divergence(q, p)`` KL(q || p), all by the parameters of ``family.to_standard``.
    """

    make: Callable
    rows: Callable
    log_density: Callable
    update: Callable
    predictive: Callable
    divergence: Callable


def _matrix(D):
    root = np.random.default_rng(D).standard_normal((D + 2, D))
    return root.T @ root + 0.5 * np.eye(D)


def _center(D):
    return np.linspace(3.0, -1.0, D) if D > 1 else np.array([3.0])


def _mean(D):
    return np.linspace(-0.5, 0.8, D)


def _full(D, dtype):
    prior = NormalWishart.from_standard(_mean(D), 0.7, D + 1.5, _matrix(D))
    return components.FullGaussian(prior, _center(D), dtype)


def _zero_full(D, dtype):
    return components.ZeroMeanFullGaussian(Wishart.from_standard(D + 1.5, _matrix(D)), D, dtype)


def _diagonal(D, dtype):
    prior = NormalGamma.from_standard(
        _mean(D)[:, None], np.linspace(0.4, 1.5, D)[:, None], np.linspace(1.2, 2.0, D),
        np.linspace(0.7, 1.9, D),
    )  # fmt: skip
    return components.DiagonalGaussian(prior, _center(D), dtype)


def _spherical(D, dtype):
    prior = NormalGamma.from_standard(_mean(D), np.linspace(0.4, 1.5, D), 1.7, 0.9)
    return components.SphericalGaussian(prior, _center(D), dtype)


def _known(D, dtype):
    prior = Normal.from_standard(_mean(D), np.linspace(1.5, 4.0, D))
    return components.KnownVarianceGaussian(prior, _center(D), NOISE, dtype)


def _bernoulli(D, dtype):
    prior = np.stack([np.linspace(0.3, 1.5, D), np.linspace(1.1, 0.6, D)], axis=1)
    return components.Bernoulli(prior, dtype)


def _multinomial(D, dtype):
    return components.Multinomial(np.linspace(0.3, 1.4, D), dtype)


def _categorical(D, dtype):
    sizes = tuple(range(2, 2 + D))
    return Categorical(np.linspace(0.3, 1.4, sum(sizes)), sizes, dtype)


def _poisson(D, dtype):
    prior = np.stack([np.linspace(0.8, 2.5, D), np.linspace(0.4, 1.3, D)], axis=1)
    return Poisson(prior, dtype)


def _negative_binomial(D, dtype):
    share = np.linspace(2.0, 1.0, NB_SIZES.size)
    shape, rate = np.linspace(0.8, 2.5, D), np.linspace(0.4, 1.3, D)
    component = NegativeBinomial(np.empty((D, 0)), dtype, np.ones(1))
    return component.with_prior(shape, rate, share)


def gaussian_rows(n, D, rng):
    """Draw two clusters on either side of the centre."""
    sides = rng.choice([-2.0, 2.0], size=(n, 1))
    return _center(D) + sides * np.linspace(1.0, 0.3, D) + rng.standard_normal((n, D))


def around_zero(n, D, rng):
    """Draw rows of two scales."""
    return rng.choice([0.4, 3.0], size=(n, 1)) * rng.standard_normal((n, D))


def binary_rows(n, D, rng):
    """Draw rows of two profiles."""
    p = np.stack([np.linspace(0.1, 0.8, D), np.linspace(0.9, 0.3, D)])
    return (rng.random((n, D)) < p[rng.integers(2, size=n)]).astype(float)


def count_rows(n, D, rng):
    """Draw rows of two profiles, some of which are empty."""
    p = np.stack([np.arange(1.0, D + 1.0), np.arange(D, 0.0, -1.0) ** 2])
    p /= p.sum(axis=1, keepdims=True)
    return np.stack([rng.multinomial(rng.poisson(4.0), p[rng.integers(2)]) for _ in range(n)]) * 1.0


def category_rows(n, D, rng):
    """Draw rows of two profiles. The columns have 2, 3, ..., D + 1 categories."""
    low = rng.random((n, 1)) < 0.5
    uniform = rng.random((n, D))
    return np.floor(np.where(low, uniform**2, 1.0 - uniform**2) * np.arange(2, 2 + D))


def event_rows(n, D, rng):
    """Draw counts of events of two profiles."""
    rates = np.stack([np.linspace(0.5, 4.0, D), np.linspace(9.0, 1.0, D)])
    return rng.poisson(rates[rng.integers(2, size=n)]).astype(float)


KINDS = {
    "full": Kind(_full, gaussian_rows, full_log_density, full_update, full_predictive,
                 full_divergence),
    "zero-mean full": Kind(_zero_full, around_zero, full_log_density, full_update,
                           full_predictive, full_divergence),
    "diagonal": Kind(_diagonal, gaussian_rows, columns_log_density, diagonal_update,
                     diagonal_predictive, columns_divergence),
    "spherical": Kind(_spherical, gaussian_rows, columns_log_density, spherical_update,
                      spherical_predictive, columns_divergence),
    "known variance": Kind(_known, gaussian_rows, known_log_density, known_update,
                           known_predictive, known_divergence),
    "Bernoulli": Kind(_bernoulli, binary_rows, bernoulli_log_density, bernoulli_update,
                      bernoulli_predictive, dirichlet_divergence),
    "multinomial": Kind(_multinomial, count_rows, multinomial_log_density, multinomial_update,
                        multinomial_predictive, dirichlet_divergence),
    "categorical": Kind(_categorical, category_rows, categorical_log_density, categorical_update,
                        categorical_predictive, categorical_divergence),
    "Poisson": Kind(_poisson, event_rows, poisson_log_density, poisson_update,
                    poisson_predictive, gamma_divergence),
    "negative binomial": Kind(_negative_binomial, event_rows, negative_binomial_log_density,
                              negative_binomial_update, negative_binomial_predictive,
                              negative_binomial_divergence),
}  # fmt: skip


def center_of(component):
    """Return the centre (D,) of a component's coordinates, or 0."""
    return np.broadcast_to(getattr(component, "center", 0.0), component.n_features)


def with_gaps(X, rng, share=0.3):
    """Replace some entries of X, and all of one row, by NaN."""
    X = np.where(rng.random(X.shape) < share, np.nan, X)
    X[1] = np.nan
    return X


def posterior(component, X, resp):
    """Natural parameters of components that have seen rows X with responsibilities (n, K)."""
    features = component.features(X)
    features = features.toarray() if sp.issparse(features) else features
    return component.natural_parameters(resp.T @ features)


def standard_of(component, lam, k):
    """Return the textbook parameters of component k."""
    return {name: value[k] for name, value in component.family.to_standard(lam).items()}


def log_marginal(kind, component, X):
    """Log marginal likelihood of rows under one component, predicted one after the other."""
    q = component.family.to_standard(component.prior)
    center, total = center_of(component), 0.0
    for x in X:
        total += kind.predictive(q, x, center)
        q = kind.update(q, x[None], np.ones(1), center)
    return total
