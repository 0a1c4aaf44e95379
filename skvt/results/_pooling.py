"""Pooling of estimates from several draws and fits, with the variance between fits."""

from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as student
from sklearn.utils import check_scalar

from skvt.readers.chunks import require_rows_in_memory
from skvt.results._consensus import matched
from skvt.sklearn_private import check_sample_weight, num_samples


class Settings(NamedTuple):
    """Weights of rows (n,), after checks of options that effects and outcomes share."""

    weights: Any

    @classmethod
    def of(cls, whom, X, n_draws, level, sample_weight):
        """Return the settings; raise TypeError or ValueError for illegal options."""
        require_rows_in_memory(X, whom)
        check_scalar(n_draws, "n_draws", Integral, min_val=2)
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must be in the range (0, 1). Got {level!r} instead.")
        rows = np.empty((num_samples(X), 1))
        weights = check_sample_weight(sample_weight, rows, dtype=np.float64)
        if weights.min() < 0.0 or not weights.any():
            raise ValueError(
                "sample_weight must be in the range [0, inf), and not 0 for all rows. Got a "
                f"smallest weight of {weights.min():g}."
            )
        return cls(weights)


@dataclass(frozen=True)
class Pooled:
    """Pooled estimates (Q, K), see :func:`pool`; ``n_fits`` and ``agreement`` are (K,)."""

    estimate: Any
    standard_error: Any
    degrees: Any
    between_fits: Any
    same_sign: Any
    n_fits: Any
    agreement: Any

    def columns(self, level, names):
        """Return the columns of a table with Q rows, one per name, for each topic in turn."""
        n_names, n_topics = self.estimate.shape
        width = student.ppf(0.5 + 0.5 * level, self.degrees) * self.standard_error
        return {
            "component": np.repeat(np.arange(n_topics), n_names),
            "term": list(names) * n_topics,
            "effect": self.estimate.T.ravel(),
            "low": (self.estimate - width).T.ravel(),
            "high": (self.estimate + width).T.ravel(),
            "standard_error": self.standard_error.T.ravel(),
            "between_fits": self.between_fits.T.ravel(),
            "same_sign": self.same_sign.T.ravel(),
            "n_fits": np.repeat(self.n_fits, n_names),
            "agreement": np.repeat(self.agreement, n_names),
        }


def pool(results, shares, degrees):
    """Pool the estimates of several fits, with components matched to those of the first fit.

    ``results`` has for each fit the estimates and squared errors of each draw, (2, M, Q, K). The
    total variance is ``U + (1 + 1/M) B + (1 + 1/R) F``, with the mean squared error U of
    ``degrees`` degrees of freedom, the variance B between draws, and the variance F between fits
    [Rubin87 eq. 3.1.5]. Its degrees of freedom are Satterthwaite's.
    """
    n_draws, n_names, n_topics = results[0].shape[1:]
    aligned = np.zeros((len(results), 2, n_draws, n_names, n_topics))
    agreement, is_matched = np.zeros((2, len(results), n_topics))
    for r, (result, fit) in enumerate(zip(results, shares, strict=True)):
        mass, topics, partners = matched(shares[0].profiles, fit.profiles)
        if r == 0:
            partners = topics = np.arange(n_topics)
        aligned[r][..., topics] = result[..., partners]
        agreement[r, topics], is_matched[r, topics] = mass, 1.0
    n_fits, effects = is_matched.sum(axis=0), aligned[:, 0]
    several = np.maximum(n_fits - 1.0, 1.0)
    of_fits = effects.mean(axis=1)
    estimate = of_fits.sum(axis=0) / n_fits
    within = aligned[:, 1].mean(axis=1).sum(axis=0) / n_fits
    draws = (1.0 + 1.0 / n_draws) * effects.var(axis=1, ddof=1).sum(axis=0) / n_fits
    deviations = is_matched[:, None] * (of_fits - estimate) ** 2
    fits = (1.0 + 1.0 / n_fits) * deviations.sum(axis=0) / several
    variance = within + draws + fits
    inverse = within**2 / degrees + draws**2 / (n_fits * (n_draws - 1)) + fits**2 / several
    same_sign = is_matched[:, None] * (np.sign(of_fits) == np.sign(estimate))
    with np.errstate(invalid="ignore", divide="ignore"):
        return Pooled(
            estimate=estimate,
            standard_error=np.sqrt(variance),
            degrees=variance**2 / inverse,
            between_fits=np.where(n_fits > 1.0, fits / variance, np.nan),
            same_sign=same_sign.sum(axis=0).astype(int),
            n_fits=n_fits.astype(int),
            agreement=agreement[1:].sum(axis=0) / np.where(n_fits > 1.0, several, np.nan),
        )
