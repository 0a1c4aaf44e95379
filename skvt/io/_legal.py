"""Tables of legal values in files, beyond the types of fields.

Shapes are functions of an object, its number of columns d and its number of components k.
"""

from typing import NamedTuple

import numpy as np

from skvt.models.mixture import SIZES
from skvt.readers.validation import LARGEST

# The models of each estimator.
MODELS = {
    "AnnealedFactorialMixture": {"FactorialMixture"},
    "CAVIGaussianMixture": {"Mixture"},
    "MemoizedDPGMM": {"Mixture"},
    "MemoizedDPMixture": {"Mixture"},
    "MemoizedHDP": {"HDP"},
    "StructuredBernoulliMixture": {"Mixture", "MixtureGivenGlobals"},
    "StructuredGaPNMF": {"GaPNMF"},
    "StructuredLDA": {"LDA", "LDAGivenTopics", "CollapsedLDA"},
    "TemperedLDA": {"LDA", "LDAGivenTopics"},
}
# Suffixes of the legal class names of the weights and components of mixtures.
OF_MIXTURES = {
    "CAVIGaussianMixture": (("KnownWeights",), ("KnownVarianceGaussian",)),
    "MemoizedDPGMM": (("StickBreaking", "SymmetricDirichlet"), ("Gaussian",)),
    "MemoizedDPMixture": (("StickBreaking",), ("Product",)),
    "StructuredBernoulliMixture": (
        ("StickBreaking", "SeparateSticks", "SymmetricDirichlet"),
        ("Bernoulli",),
    ),
}

# Components that consist of blocks.
PRODUCTS = "models.Product", "models.Indicated", "models.Logged", "models.StudentT"
# Learners of the priors of components that consist of blocks.
LEARNERS = "models.ProductLearner", "models.ValuesLearner"

TOPICS = "models.LDA", "models.LDAGivenTopics", "models.CollapsedLDA"
_FULL = (
    "models.FullGaussian",
    "models.TiedGaussian",
    "models.LowRankGaussian",
    "models.LatentGaussian",
    "models.TiedLatentGaussian",
)


def _triangle(d):
    return d * (d + 1) // 2


def _full(own, d, k):
    t = _triangle(d)
    return {"": 1 + d + t, "prior": (2 + d + t,), "center": (d,), "added": (t,)}


def _counts(own, d, width, rest):
    """Return the shapes of a component of counts, with ``width`` numbers for each column."""
    d -= own.exposure == "column"
    return {"prior": (d, width), "shares": (d,), "": d * width + rest}


def _topics(own, d, k):
    return {"doc_topic_prior": (k,), "topic_word_prior": [(d,), (d, k)], "start": (k, d)}


# Shapes of the arrays of a class, unless they are None, for d columns and k components; a list has
# alternatives. "" is the number of statistics of a component of a mixture.
SHAPES = {
    **dict.fromkeys(TOPICS, _topics),
    "models.HDP": lambda own, d, k: {"start": (own.n_initial, d)},
    "models.FactorialMixture": lambda own, d, k: {"activation_prior": (k,)},
    "models.KnownWeights": lambda own, d, k: {"weights": (k,)},
    **dict.fromkeys(_FULL, _full),
    "models.ZeroMeanFullGaussian": lambda own, d, k: {
        "": 1 + _triangle(d), "prior": (1 + _triangle(d),), "added": (_triangle(d),)
    },
    "models.DiagonalGaussian": lambda own, d, k: {
        "": 3 * d, "prior": (d, 4), "center": (d,), "added": (d,)
    },
    "models.SphericalGaussian": lambda own, d, k: {
        "": 2 + 2 * d, "prior": (2 + 2 * d,), "center": (d,), "added": (d,)
    },
    "models.KnownVarianceGaussian": lambda own, d, k: {
        "": 2 * d + 1, "prior": (d, 2), "center": (d,)
    },
    "models.Bernoulli": lambda own, d, k: {"": 2 * d + own.sparse, "prior": (d, 2)},
    "models.Poisson": lambda own, d, k: _counts(own, d, 2, 1 + own.sparse),
    "models.NegativeBinomial": lambda own, d, k: _counts(
        own, d, SIZES.size + 2 * own.points.size, 1 + own.points.size
    ),
    "models.Multinomial": lambda own, d, k: {"": d, "prior": (d,)},
    "models.Categorical": lambda own, d, k: {"": sum(own.sizes), "prior": (sum(own.sizes),)},
    "models.WeightedFullGaussian": lambda own, d, k: {
        "": 2 + d + _triangle(d), "prior": (2 + d + _triangle(d),), "center": (d,),
        "added": (_triangle(d),)
    },
    "models.WeightedDiagonalGaussian": lambda own, d, k: {
        "": 4 * d, "prior": (d, 4), "center": (d,), "added": (d,)
    },
    "models.Freedom": lambda own, d, k: {"": 2 * len(own.prior), "prior": [(1, 2), (d, 2)]},
    "models.GaussianLearner": lambda own, d, k: {"unit": [(d,), (1,)]},
    "models.Joins": lambda own, d, k: {
        "linkage": (k - 1, 4), "shares": (k - 1,), "masses": (k - 1,)
    },
    "temperature.Ladder": lambda own, d, k: {
        "log_partition": own.inv_temps.shape, "inv_temps": (own.inv_temps.size,)
    },
    "temperature.Learned": lambda own, d, k: {"_r": own._ladder.inv_temps.shape},
    "temperature.LearnedByRow": lambda own, d, k: {
        "_r": own._ladder.inv_temps.shape, "_references": own._energies.shape,
        "_lengths": own._energies.shape, "_energies": (own._energies.size,)
    },
}  # fmt: skip
# Shapes of the statistics.
STATISTICS = {
    **dict.fromkeys(TOPICS, lambda own, d, k: [(d, k)]),
    "models.HDP": lambda own, d, k: [(k, d), (k, 5)],
    "models.GaPNMF": lambda own, d, k: [(k, d)] * 2,
    "models.FactorialMixture": lambda own, d, k: [
        (d if own.by_column else 1, k, k), (k, d), (k,), (3,)
    ],
}  # fmt: skip
# Fields of models that are positive, in the range of priors, unless they are None.
POSITIVE = (
    "typical", "points", "doc_topic_prior", "topic_word_prior", "sampling_prior",
    "activation_prior", "concentration", "doc_concentration",
    "component_shape", "activation_shape", "weight_concentration", "data_mean_prior",
    "n_components", "n_features", "n_initial", "n_fewest", "n_samples", "inv_temps",
)  # fmt: skip
# Positive fields that are learned from real values, and may be outside the range of priors.
POSITIVE_OF_DATA = "noise_variance", "prior_variance"
# Largest parameter of q of a topic, above the largest sum of counts.
MOST_WORDS = 1e3 * LARGEST


def is_within(numbers, n):
    """Return whether numbers are integers from 0 to n - 1."""
    return numbers.dtype.kind in "iu" and bool(np.all((numbers >= 0) & (numbers < n)))


# Further conditions on objects, besides the shapes of their arrays.
def _fits_indicators(product, n_features, k):
    names = [block.name for block in product.blocks]
    n_indicators = product.blocks[-1].columns.size
    # since 0.2, an exposure has no indicator
    exposed = getattr(product.blocks[0].component, "exposure", "none") == "column"
    return (
        names == ["values", "indicators"]
        and 0 <= n_features - n_indicators <= exposed
        and _are_blocks(product.blocks, n_features + n_indicators)
        and type(product.blocks[1].component).__name__ == "Bernoulli"
        and len(product.at) in (0, n_features)
        and product.shift in (0.0, 1.0)
        and not product.silent
    )


def _fits_logs(product, n_features, k):
    values, volume = product.blocks
    least, logs = np.array(product.least), volume.columns
    return (
        (values.name, volume.name) == ("values", "volume")
        and type(volume.component).__name__ == "Volume"
        and np.array_equal(values.columns, np.arange(n_features))
        and logs.shape == least.shape == (volume.component.n_features,) != (0,)
        and is_within(logs, n_features)
        and bool(np.all((least > 0.0) & np.isfinite(least)))
    )


def _fits_student(product, n_features, k):
    gaussian, freedom = (block.component for block in product.blocks)
    full = type(gaussian).__name__ == "WeightedFullGaussian"
    return (
        [block.name for block in product.blocks] == ["gaussian", "freedom"]
        and (full or type(gaussian).__name__ == "WeightedDiagonalGaussian")
        and all(np.array_equal(block.columns, np.arange(n_features)) for block in product.blocks)
        and len(freedom.prior) == (1 if full else n_features)
        and 0.0 < freedom.limits[0] <= freedom.limits[1] < np.inf
    )


def _are_blocks(blocks, n_features):
    columns = [block.columns for block in blocks]
    distinct = np.unique(np.concatenate(columns))
    return (
        all(b.columns.shape == (b.component.n_features,) != (0,) for b in blocks)
        and len({block.name for block in blocks}) == len(columns)
        and is_within(distinct, n_features)
        and distinct.size == sum(own.size for own in columns)
    )


def _fits_exposure(own, n_features, k):
    return own.exposure in ("none", "column", "row_total")


def _fits_points(own, n_features, k):
    return (
        _fits_exposure(own, n_features, k)
        and own.points.ndim == 1 <= own.points.size
        and bool(np.all(np.diff(own.points) > 0.0))
    )


def _fits_cells(cells, n_features, k):
    pairs = list(zip(cells.levels, cells.edges, strict=True))
    return (
        is_within(cells.columns, n_features)
        and cells.columns.shape == (len(pairs),)
        and all(levels.shape == (edges.size - 1,) for levels, edges in pairs)
        and all(edges.ndim == 1 < edges.size for _, edges in pairs)
        and all(np.all(one[1:] > one[:-1]) for pair in pairs for one in pair)
    )


def _fits_joins(joins, n_features, k):
    pairs = joins.linkage[:, :2]
    return 0 <= joins.n_vacant < k and bool(
        np.all((pairs >= 0) & (pairs < k + np.arange(k - 1)[:, None]))
    )


def _fits_policy(policy, d, k):
    return 0.0 < policy.mean_inv_temp <= 1.0 <= policy.replication < np.inf


def _fits_schedule(policy, d, k):
    policy._recipe.check(None)
    within = 0.0 <= policy._progress <= 1.0
    return _fits_policy(policy, d, k) and policy._length > 0.0 and within


def _fits_learned(policy, d, k):
    # _hot_passes is infinite in streams; _units is 0 if all counts are 0
    memory = 1.0 if policy._memory is None else policy._memory
    legal = policy._hot_passes > 0.0 and 0.0 < memory < np.inf and 0.0 <= policy._units < np.inf
    return _fits_policy(policy, d, k) and legal


def _fits_ladder(ladder, d, k):
    inv_temps, log_partition = ladder._full
    return (
        inv_temps.shape == log_partition.shape == ladder.inv_temps.shape
        and inv_temps[-1] == 1.0 >= ladder.inv_temps.max()
        and bool(np.all(inv_temps[1:] > inv_temps[:-1]) and inv_temps[0] > 0.0)
    )


CHECKS = {
    "models.HDP": lambda own, d, k: own.topic_word_prior.shape == (d,),
    "temperature.RunningPolicy": _fits_policy,
    "temperature.Scheduled": _fits_schedule,
    "temperature.Learned": _fits_learned,
    "temperature.LearnedByRow": _fits_learned,
    "temperature.Ladder": _fits_ladder,
    "models.Product": lambda product, d, k: _are_blocks(product.blocks, d),
    "models.Indicated": _fits_indicators,
    "models.Logged": _fits_logs,
    "models.StudentT": _fits_student,
    "models.Poisson": _fits_exposure,
    "models.NegativeBinomial": _fits_points,
    "models.Cells": _fits_cells,
    "models.Joins": _fits_joins,
    "models.Categorical": lambda own, d, k: len(own.sizes) == d and min(own.sizes) > 0,
}


class Sizes(NamedTuple):
    """Shapes of the statistics, number of components, and number of steps so far."""

    shapes: list
    k: int
    n_steps: int


# Conditions on the data that engines and moves remember, beyond types; see :class:`Continued`.
RULES = {
    "statistics": lambda value, sizes: (
        value in (None, []) or [a.shape for a in getattr(value, "arrays", value)] == sizes.shapes
    ),
    "fresh": lambda value, sizes: all(
        [a.shape for a in fresh.arrays] == [(len(fresh.arrays[0]), *s[1:]) for s in sizes.shapes]
        for fresh in value
    ),
    "components": lambda value, sizes: all(a.ndim == 1 and is_within(a, sizes.k) for a in value),
    "pair": lambda value, sizes: value is None or all(0 <= a < sizes.k for a in value[:2]),
    "square": lambda value, sizes: (
        value is None or (value[0].shape * 2 == value[1].shape and value[0].ndim == 1)
    ),
    "ids": lambda value, sizes: value.ndim == 1,
    "rate": lambda value, sizes: (
        value.offset + sizes.n_steps > 0.0 and value.decay >= 0.0 and 0.0 < value.scale < np.inf
    ),
}
