"""Checks that the parts of a model in a file fit together.

Compiled loops rely on the shapes of their arguments. The tables of `skvt.io._legal` define the
legal values. The shapes of arrays are checked before anything is computed from them.
"""

import numpy as np
import scipy.sparse as sp

from skvt.fitting import TOGETHER
from skvt.io._archive import PART, FileError
from skvt.io._classes import conforms, defaults_of, is_estimator, name_of
from skvt.io._legal import (
    CHECKS,
    LEARNERS,
    MODELS,
    MOST_WORDS,
    OF_MIXTURES,
    POSITIVE,
    POSITIVE_OF_DATA,
    PRODUCTS,
    RULES,
    SHAPES,
    STATISTICS,
    TOPICS,
    Sizes,
    is_within,
)
from skvt.progress import Continued
from skvt.readers.validation import LEGAL_RANGE, in_range

# Relative error that running sums may have, in single precision too.
_ROUNDING = 1e-3


def check_estimator(estimator, memory):
    """Raise FileError unless the estimator's parts fit; use at most ``memory`` bytes."""
    name = name_of(type(estimator))
    if not is_estimator(type(estimator)):
        raise FileError("The file holds no estimator.")
    values = vars(estimator)
    missing = {*type(estimator)._get_param_names(), "_fitted", "n_features_in_"} - set(values)
    if missing:
        raise FileError(f"The estimator has no {sorted(missing)[0]!r}.")
    estimator._validate_params()
    _check_fitted(values["_fitted"], estimator, memory)
    progress = values.get("_progress")
    if progress is not None:
        _check_progress(progress, estimator, memory)
    _check_names(values.get("feature_names_in_"), estimator.n_features_in_)
    if name == "estimators.MemoizedDPMixture":
        _check_table(values.get("_table"), values.get("priors_"), estimator)


def _check_names(names, n_features):
    """Raise FileError unless there is a name for each column, or none at all."""
    if names is not None and (
        names.shape != (n_features,) or {*map(type, names.tolist())} != {str}
    ):
        raise FileError("Names of features are not one for each.")


# ------------------------------------------------------------------------- the outcome of a fit
def _check_fitted(fitted, estimator, memory):
    model, state, n_features = fitted.model, fitted.state, estimator.n_features_in_
    _check_kind(model, name_of(type(estimator)))
    if model.n_features != n_features or n_features < 1:
        raise FileError(f"The model has {model.n_features} columns, not {n_features}.")
    _check_names(fitted.words, n_features)
    if not set(fitted.parameters) <= set(estimator._get_param_names()):
        raise FileError(f"Parameters of the fit are {sorted(map(str, fitted.parameters))}.")
    # files of earlier releases may lack some parameters
    fitted.parameters = defaults_of(name_of(type(estimator))) | fitted.parameters
    n_components, shapes = shapes_of(model, n_features, state.stats.arrays)
    for part in (model, fitted.policy, fitted.joins):
        _check_part(part, n_features, n_components)
    if fitted.gathered is not None:
        _check_gathered(fitted.gathered, type(estimator)._reads, n_features)
    _check_statistics(state.stats, shapes)
    start = getattr(model, "start", None)
    if hasattr(start, "arrays"):
        _require(start.arrays, [(len(start.arrays[0]), *shape[1:]) for shape in shapes])
    if fitted.assignments is not None and fitted.assignments.shape[1:] != (n_components,):
        raise FileError(f"Assignments of shape {fitted.assignments.shape}.")
    if fitted.labels is not None and not is_within(fitted.labels, n_components):
        raise FileError("Labels of components that are not there.")
    positive = state.stats.scale, state.replication, state.inv_temp, fitted.n_rows
    if not all(0.0 < value < np.inf for value in positive) or min(state.n_steps, state.seed) < 0:
        raise FileError("The position in the fit is not legible.")
    if np.shape(state.prior_stats.total) not in ((), (n_components,)):
        raise FileError("What priors are learned from is of other components.")
    if getattr(state, "memos", None) is not None:
        _check_memos(state, shapes, n_components, memory)
    if not all(_legal_parts(model, state.plain_stats)):
        raise FileError("The posterior is no distribution.")


def _check_kind(model, estimator):
    """Raise FileError unless the class of the model is one of the estimator's models."""
    name = estimator.removeprefix("estimators.")
    legal = name not in MODELS or name_of(type(model)) in [f"models.{one}" for one in MODELS[name]]
    if legal and name in OF_MIXTURES:
        parts = type(model.weights).__name__, type(model.component).__name__
        legal = all(map(str.endswith, parts, OF_MIXTURES[name]))
    if not legal:
        raise FileError(f"{name} has no {type(model).__name__} of such parts.")


def shapes_of(model, n_features, arrays):
    """Return the number of components, and the shapes of the statistics."""
    kind = name_of(type(model))
    n_components = getattr(model, "n_components", None)
    if n_components is None:
        n_components = len(arrays[0])
    if kind in STATISTICS:
        return n_components, STATISTICS[kind](model, n_features, n_components)
    if not kind.startswith("models."):  # registered
        return n_components, [array.shape for array in arrays]
    of_weights = (2,) if name_of(type(model.weights)) == "models.SeparateSticks" else ()
    try:
        width: tuple = (_width(model.component, n_features),)
    except KeyError:  # registered components have any number of statistics
        width = arrays[-1].shape[1:]
    return n_components, [(n_components, *of_weights), (n_components, *width)]


def _width(component, n_features):
    """Return the number of statistics of a component of a mixture with these columns."""
    kind = name_of(type(component))
    if kind in PRODUCTS:
        return sum(_width(block.component, block.columns.size) for block in component.blocks)
    return SHAPES[kind](component, n_features, 1)[""]


def _check_part(part, n_features, n_components):
    """Raise FileError unless the arrays of an object and all its parts have legal shapes."""
    kind = name_of(type(part))
    if kind is None:
        return
    shapes = SHAPES[kind](part, n_features, n_components) if kind in SHAPES else {}
    for name, shape in shapes.items():
        value = getattr(part, name) if name else None
        legal = shape if isinstance(shape, list) else [shape]
        if value is not None and np.shape(value) not in legal:
            raise FileError(f"{name!r} of {kind} has the shape {np.shape(value)}, not {shape}.")
    values = vars(part) if hasattr(part, "__dict__") else part._asdict()
    for names, is_legal, legal in (
        (POSITIVE, in_range, LEGAL_RANGE), (POSITIVE_OF_DATA, _is_positive, "the range (0, inf)")
    ):  # fmt: skip
        for name in names:
            if values.get(name) is not None and not is_legal(values[name]):
                raise FileError(f"{name!r} of {kind} is not in {legal}.")
    check = CHECKS.get(kind)
    if check is not None and not check(part, n_features, n_components):
        raise FileError(f"Parts of {kind} do not fit together.")
    if kind in PRODUCTS:
        for block in part.blocks:
            _check_part(block.component, block.columns.size, n_components)
    elif kind == "models.HDP":
        _check_part(part.topics, n_features, 1)
    elif kind not in LEARNERS:
        for value in values.values():
            _check_part(value, n_features, n_components)
    if kind in ("models.Mixture", "models.MixtureGivenGlobals"):
        _check_learner(part.learner, part.component, n_components)


def _check_learner(learner, component, n_components):
    """Raise FileError unless the learners of a product are those of its blocks."""
    kind = name_of(type(learner))
    if kind not in LEARNERS:
        _check_part(learner, component.n_features, n_components)
        return
    learners = learner.learners if kind == "models.ProductLearner" else (learner.learner,)
    blocks = getattr(component, "blocks", ())
    if len(blocks) < 2 if kind == "models.ValuesLearner" else len(learners) != len(blocks):
        raise FileError(f"The prior of {type(component).__name__} has other learners.")
    for one, block in zip(learners, blocks, strict=False):
        _check_learner(one, block.component, n_components)


def _check_gathered(gathered, reader, n_features):
    """Raise FileError unless these are rows of small calls that the reader accepts."""
    X, weights, sizes = gathered.X, gathered.weights, [*gathered.calls.values()]
    values = X.data if sp.issparse(X) else X
    legal = (
        (reader.sparse if sp.issparse(X) else isinstance(X, np.ndarray))
        and X.shape == (weights.size, n_features)
        and weights.shape == (weights.size,)
        and values.dtype.kind in "iuf"
        and (reader.missing or not np.isnan(values).any())
        and bool(np.all((weights > 0.0) & (weights < np.inf)))
        and (not sizes or (gathered.key == TOGETHER and sum(sizes) == weights.size))
        and min(sizes, default=1) > 0
    )
    if not legal:
        raise FileError("The rows of small calls of the stream are not legible.")


def _check_statistics(stats, shapes):
    """Raise FileError unless the statistics have these shapes, and their sums are correct."""
    _require(stats.arrays, shapes)
    if len({array.dtype for array in stats.arrays}) > 1:
        raise FileError("Statistics are of several precisions.")
    for array, total in zip(stats.arrays, stats.sums, strict=True):
        if np.shape(total) != array.shape[1:]:
            raise FileError(f"Sums of shape {np.shape(total)} for {array.shape}.")
        fresh = stats.scale * array.sum(axis=0, dtype=np.float64)
        size = np.zeros_like(fresh)
        for row in array:
            size += np.abs(stats.scale * row)
        if not np.all(np.abs(total - fresh) <= _ROUNDING * size):
            raise FileError("Sums are not those of the statistics.")


def _require(arrays, expected):
    """Raise FileError unless these are real numbers of these shapes."""
    shapes = [array.shape for array in arrays]
    if shapes != expected or any(array.dtype.kind != "f" for array in arrays):
        raise FileError(f"Statistics have the shapes {shapes}, not {expected}.")


def _check_memos(state, shapes, n_components, memory):
    """Raise FileError unless each memo and each sum of memos has these shapes after its changes.

    Changes are not applied, since they may make a memo larger than the file.
    """
    memos = state.memos
    if not memos.is_whole():
        raise FileError("Statistics of batches that belong to no batch.")
    entries = [entry for level in memos._levels for entry in level if entry is not None]
    # number of components after each number of changes
    numbers = {n_made: len(packed.memo.stats.arrays[0]) for packed, n_made in entries}
    first = min(numbers, default=0)
    n = most = numbers.get(first, 0)
    counts = {first: n}
    for n_made, change in enumerate(memos._changes[first:] if entries else (), first + 1):
        index = getattr(change, "index", None)
        if index is None:
            legal = 0 <= change.a < change.b < n
        else:
            legal = index.ndim == 1 and index.size and -1 <= index.min() <= index.max() < n
            n = index.size
        if not legal:
            raise FileError("A change of memos concerns components that are not there.")
        most, counts[n_made] = max(most, n), n
    of_pairs = any(packed.memo.merge_entropy_loss is not None for packed, _ in entries)
    of_each = sum(int(np.prod(shape[1:])) for shape in shapes) + most * of_pairs
    if entries and (n != len(state.stats.arrays[0]) or 8 * most * of_each > memory):
        raise FileError(f"Changes of memos end with {n} components, after {most}.")
    for packed, n_made in entries:
        if n_made not in counts:
            raise FileError(f"A memo after {n_made} changes.")
        changed = [(counts[n_made], *shape[1:]) for shape in shapes]
        _check_memo(packed, changed if memos._changes else shapes)
    weights = [[entry[0].memo.weight for entry in level if entry] for level in memos._levels]
    legal = all(0.0 <= weight < np.inf for level in weights for weight in level)
    none = any(0.0 in level for level in weights[1:]) or (entries and sum(weights[0]) == 0.0)
    if none or not legal:
        raise FileError("Memos of rows without weight.")
    if state.initial is not None:
        _require(state.initial.arrays, shapes)
    if memos and state.component_ids.shape != (n_components,):
        raise FileError(f"{state.component_ids.size} ids for {n_components} components.")


def _check_memo(packed, shapes):
    """Raise FileError unless a memo has these shapes after it is unpacked."""
    memo, loss = packed.memo, packed.memo.merge_entropy_loss
    n, expected = shapes[0][0], list(shapes)
    if packed.columns:
        parts = zip(packed.columns, packed.widths, shapes, strict=True)
        for i, (columns, width, shape) in enumerate(parts):
            if columns is None:
                continue
            if columns.ndim != 1 or shape != (n, width) or not is_within(columns, width):
                raise FileError("A memo is packed into other columns.")
            expected[i] = (n, columns.size)
    _require(memo.stats.arrays, expected)
    if np.shape(memo.entropy) not in ((), (1,), (n,)) or not (
        loss is None or loss.shape in ((), (n, n))
    ):
        raise FileError("A memo has the entropies of other components.")
    rows = memo.candidates
    legal = rows is None or (
        rows.ndim == 2 and -1 <= rows.min(initial=0) <= rows.max(initial=0) < n
    )
    if not legal:
        raise FileError("A memo has the candidates of other components.")


def _legal_parts(model, stats):
    """Yield whether natural parameters are legal, in parts to avoid a copy of the statistics."""
    kind, arrays = name_of(type(model)), stats.arrays
    if kind in ("models.HDP", *TOPICS):
        words, eta = arrays[0], model.topic_word_prior
        if kind == "models.HDP":
            words = words.T
            yield _is_positive(model.sticks.best(stats.scale * arrays[1]))
        step = max(1, PART // words.shape[1])
        for start in range(0, len(words), step):
            prior = eta[start : start + step]
            prior = prior if prior.ndim == 2 else prior[:, None]
            lam = stats.scale * words[start : start + step] + prior
            yield _is_positive(lam) and lam.max() <= MOST_WORDS
    elif kind in ("models.Mixture", "models.MixtureGivenGlobals"):
        weights, components = model.weights, model.component
        yield np.isfinite(components.family.log_normalizer(components.prior)).all()
        yield _is_positive(weights.natural_parameters(stats.scale * arrays[0]))
        for sums in arrays[1]:
            lam = components.natural_parameters(stats.scale * sums[None])
            yield np.isfinite(components.family.log_normalizer(lam)).all()
    else:
        for family, lam in zip(model.families, model.natural_parameters(stats), strict=True):
            yield kind != "models.GaPNMF" or _is_positive(lam)
            yield np.isfinite(family.log_normalizer(lam)).all()


def _is_positive(parameters):
    """Return whether all numbers are positive and finite, as in Dirichlet, beta and gamma."""
    return bool(np.all(np.greater(parameters, 0.0)) and np.all(np.isfinite(parameters)))


# ------------------------------------------------------------------------------ interrupted fits
def _check_progress(progress, estimator, memory):
    fitted, outcomes, start = estimator._fitted, progress.outcomes, progress.start
    n_rows, n_features = progress.rows.shape
    best = outcomes.best
    if n_rows < 1 or n_features != estimator.n_features_in_:
        raise FileError(f"An interrupted fit to rows of shape {progress.rows.shape}.")
    if min(progress.seeds, default=-1) < 0 or start.n_starts <= len(outcomes.elbos):
        raise FileError("The interrupted fit has no start left to resume.")
    counts = start.position.n_passes, start.n_moves
    same = len(outcomes.kinds) == len(outcomes.elbos)
    if not same or (best is None) != (not outcomes.elbos) or min(counts) < 0:
        raise FileError("The starts of the fit are not legible.")
    if best is not None:
        if name_of(type(best)) != "estimators.Fitted" or best.elbo is None:
            raise FileError("The best start is not legible.")
        _check_fitted(best, estimator, memory)
    state, model = fitted.state, fitted.model
    n_components, shapes = shapes_of(model, n_features, state.stats.arrays)
    if progress.row_starts is not None and progress.row_starts.shape != (n_rows, n_components):
        raise FileError(f"Starts of rows of shape {progress.row_starts.shape}.")
    if len(getattr(fitted.policy, "_energies", range(n_rows))) != n_rows:
        raise FileError("Temperatures of rows of another number.")
    if "engines" not in progress.engine:
        engines, after_pass = _unwrapped(progress.engine)
        progress.engine = {"engines": engines, "after_pass": after_pass}
    for name in ("engines", "after_pass"):
        _check_memories(name, progress.engine[name], Sizes(shapes, n_components, state.n_steps))


def _unwrapped(memory):
    """Split the nested memory of earlier releases into lists for engines and later steps."""
    if "_engine" not in memory:
        return [memory], []
    engines, after_pass = _unwrapped(memory["_engine"][0])
    for kept in (("_moved", "_moves"), ("_n_averaged", "_sum")):
        if set(kept) <= set(memory):
            after_pass.append({name: memory[name] for name in kept})
    return engines + memory.get("_last", []), after_pass


def _check_memories(name, memories, sizes):
    """Raise FileError unless each item is the memory of an engine, step or move."""
    if not conforms(memories, list[dict]):
        raise FileError(f"{name!r} is not what parts of an engine remember.")
    for memory in memories:
        _check_memory(memory, sizes)


def _check_memory(memory, sizes):
    """Raise FileError unless a subclass of Continued remembers these names and values."""
    for cls in _every_subclass(Continued):
        names = {*cls.kept, *cls.parts}
        # attributes with a default of the class may be missing
        if set(memory) <= names and all(hasattr(cls, name) for name in names - set(memory)):
            hints = {name: cls.kept[name] for name in set(memory) & set(cls.kept)}
            if all(_is_legal(memory[name], hints[name], sizes) for name in hints):
                break
    else:
        raise FileError(f"No engine remembers {sorted(map(str, memory))} of such shapes.")
    for name in set(memory) & cls.parts:
        _check_memories(name, memory[name], sizes)


def _is_legal(value, hint, sizes):
    rules = getattr(hint, "__metadata__", ())
    return conforms(value, hint) and all(RULES[rule](value, sizes) for rule in rules)


def _every_subclass(cls):
    for one in cls.__subclasses__():
        yield one
        yield from _every_subclass(one)


# ---------------------------------------------------------------------------------------- tables
def _check_table(table, priors, estimator):
    """Raise FileError unless the blocks of a table are those of the mixture's model."""
    n_features = estimator.n_features_in_
    blocks = estimator._fitted.model.component.blocks
    legal = (
        name_of(type(table)) == "estimators.Table"
        and len(table.names) == n_features == len({*table.names})
        and {len(table.types), len(table.reasons)} <= {0, n_features}
        and len(table.blocks) == len(blocks)
        and table.container in ("array", "pandas", "polars", "pyarrow", "modin")
        and {*(priors or ())} == {block.name for block in blocks}
    )
    if not legal:
        raise FileError("The table is not that of the model.")
    for of_table, block in zip(table.blocks, blocks, strict=True):
        of_table.spec.check()
        spec, component = _of_values(of_table.spec, block.component)
        sizes = getattr(component, "sizes", None)
        latent = type(spec).__name__ == "LatentGaussian"
        registered = not name_of(type(spec)).startswith("components.")
        legal = (
            of_table.name == block.name
            and np.array_equal(of_table.columns, block.columns)
            and (registered or type(component).__name__.endswith(type(spec).__name__))
            and latent == hasattr(component, "cells")
            and of_table.sizes == sizes
            and all(len(set(values)) == len(values) for values in of_table.categories or ())
        )
        if not legal:
            raise FileError(f"Block {of_table.name!r} of the table is not that of the model.")
        if latent:  # earlier releases did not write positions
            spec.ordinal = component.cells.columns


def _of_values(spec, component):
    """Return the description of the values and their component, without indicators or logs."""
    hurdle = type(spec).__name__ == "Hurdle"
    for is_indicated, masses in ((spec.missing == "informative", False), (hurdle, True)):
        if is_indicated:
            if name_of(type(component)) != "models.Indicated" or masses != bool(component.at):
                raise FileError(f"{type(spec).__name__} has no indicators of its own.")
            component = component.blocks[0].component
    spec = spec.component if hurdle else spec
    if name_of(type(component)) == "models.Logged":
        if getattr(spec, "log", None) is None:
            raise FileError(f"{type(spec).__name__} has no logarithms of its own.")
        component = component.blocks[0].component
    return spec, component
