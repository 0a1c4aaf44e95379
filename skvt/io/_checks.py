"""Checks that the parts of an estimator in a file fit together.

Compiled loops rely on the shapes of their arguments. What must be true of an object is said beside
its class, see `skvt.files`. The shapes of arrays are checked before anything is computed from them.
"""

import operator
import re

import numpy as np

from skvt.files import IN_FILES, POSITIVE, PRIOR, is_within
from skvt.io._archive import PART, FileError
from skvt.io._classes import conforms, name_of, rules_of
from skvt.progress import Continued
from skvt.readers.validation import LARGEST, LEGAL_RANGE, in_range

# Largest parameter of q of a topic, above the largest sum of counts.
_MOST_WORDS = 1e3 * LARGEST


def check_estimator(estimator, memory):
    """Raise FileError unless the estimator's parts fit; use at most ``memory`` bytes."""
    values = vars(estimator)
    missing = {*type(estimator)._get_param_names(), "_fitted", "n_features_in_"} - set(values)
    _require(not missing, f"The estimator has no {sorted(missing)[:1]}.")
    estimator._validate_params()
    fitted = values["_fitted"]
    _check_fitted(fitted, estimator, memory)
    if values.get("_progress") is not None:
        _check_progress(values["_progress"], estimator, memory)
    _check_names(values.get("feature_names_in_"), estimator.n_features_in_)
    if hasattr(type(estimator), "_table"):
        component, priors = fitted.model.component, values.get("priors_") or ()
        legal = estimator._table.describes(component, priors)
        _require(legal, "The table is not that of the model.")


def _require(is_legal, message):
    """Raise FileError unless a condition is true."""
    if not is_legal:
        raise FileError(message)


def _check_names(names, n_features):
    """Raise FileError unless there is a name for each column, or none at all."""
    if names is not None:
        legal = names.shape == (n_features,) and {*map(type, names.tolist())} == {str}
        _require(legal, "Names of features are not one for each.")


# ------------------------------------------------------------------------- the outcome of a fit
def _check_fitted(fitted, estimator, memory):
    model, state, n_features = fitted.model, fitted.state, estimator.n_features_in_
    entry = IN_FILES[name_of(type(estimator))]
    for path, classes in entry.fitted.items():
        part = operator.attrgetter(path)(fitted)
        legal = type(part) in classes
        _require(legal, f"{entry.cls.__name__} has no {path} of {type(part).__name__}.")
    legal = model.n_features == n_features >= 1
    _require(legal, f"The model has {model.n_features} columns, not {n_features}.")
    _check_names(fitted.words, n_features)
    legal = set(fitted.parameters) <= set(estimator._get_param_names())
    _require(legal, f"Parameters of the fit are {sorted(map(str, fitted.parameters))}.")
    k = getattr(model, "n_components", len(state.stats.arrays[0]))
    for part in (model, fitted.policy, fitted.joins):
        _check_part(part, n_features, k)
    shapes = shapes_of(model, k, state.stats)
    if fitted.gathered is not None:
        legal = fitted.gathered.are_legal(type(estimator)._reads, n_features)
        _require(legal, "The rows of small calls of the stream are not legible.")
    legal = state.stats.are_legal(shapes)
    _require(legal, f"Statistics do not have the shapes {shapes}, or not their sums.")
    start, initial = getattr(model, "start", None), getattr(state, "initial", None)
    for arrays in (getattr(start, "arrays", None), getattr(initial, "arrays", None)):
        _require(arrays is None or _are_like(arrays, shapes), "Initial statistics of other shapes.")
    q, labels = fitted.assignments, fitted.labels
    _require(q is None or q.shape[1:] == (k,), "Assignments to other components.")
    _require(labels is None or is_within(labels, k), "Labels of components that are not there.")
    positive = state.stats.scale, state.replication, state.inv_temp, fitted.n_rows
    legal = _is_positive(positive) and min(state.n_steps, state.seed) >= 0
    _require(legal, "The position in the fit is not legible.")
    legal = np.shape(state.prior_stats.total) in ((), (k,))
    _require(legal, "Priors are learned from statistics of other components.")
    memos = getattr(state, "memos", None)
    if memos is not None:
        legal = memos.are_legal(shapes, len(state.stats.arrays[0]), memory)
        legal = legal and (not memos or state.component_ids.shape == (k,))
        _require(legal, "Memos are not those of the statistics.")
    _require(all(_are_legal_parts(model, state.plain_stats)), "The posterior is no distribution.")


def shapes_of(model, n_components, stats):
    """Return the shapes of the statistics; those of a model of a user may be any."""
    if hasattr(model, "statistics_shapes"):
        return model.statistics_shapes(n_components)
    return [array.shape for array in stats.arrays]


def _are_like(arrays, shapes):
    """Return whether arrays have these shapes for any number of rows."""
    return [a.shape for a in arrays] == [(len(arrays[0]), *shape[1:]) for shape in shapes]


def _check_part(part, d, k):
    """Raise FileError unless an object and its parts fit d columns and k components."""
    name = name_of(type(part))
    if name is None:
        return
    values = vars(part) if hasattr(part, "__dict__") else part._asdict()
    lengths = {key: value for key, value in values.items() if type(value) is int}
    lengths |= {"d": d, "k": k, "t": d * (d + 1) // 2}
    legal = getattr(part, "n_features", d) == d
    _require(legal, f"{name} is not of {d} columns.")
    for field, rules in rules_of(name).items():
        value = values.get(field)
        for rule in rules if value is not None else ():
            if rule == PRIOR:
                _require(in_range(value), f"{field!r} of {name} is not in {LEGAL_RANGE}.")
            elif rule == POSITIVE:
                _require(_is_positive(value), f"{field!r} of {name} is not in the range (0, inf).")
            else:
                legal = any(_has_shape(value, form, lengths) for form in rule.split("|"))
                _require(legal, f"{field!r} of {name} has the shape {np.shape(value)}, not {rule}.")
    if hasattr(part, "validate"):
        _require(part.validate(d, k), f"Parts of {name} do not fit together.")
    for value in values.values():
        _check_part(value, d, k)
    for block in getattr(part, "blocks", ()):
        _check_part(block.component, block.columns.size, k)


def _has_shape(value, form, lengths):
    """Return whether an array has a shape, see `skvt.files`; new names enter ``lengths``."""
    shape, form = np.shape(value), form.split()
    if len(shape) != len(form):
        return False
    for number, terms in zip(shape, form, strict=True):
        if terms.isidentifier():
            lengths.setdefault(terms, number)
        signed = re.findall(r"(-?)(\w+)", terms)
        sizes = [int(term) if term.isdigit() else lengths[term] for _, term in signed]
        if number != sum(-n if sign else n for (sign, _), n in zip(signed, sizes, strict=True)):
            return False
    return True


def _are_legal_parts(model, stats):
    """Yield whether natural parameters are legal, in parts to avoid a copy of the statistics."""
    arrays = stats.arrays
    if hasattr(model, "topic_word_prior"):
        words, eta = arrays[0], model.topic_word_prior
        if len(arrays) > 1:
            words = words.T
            yield _is_positive(model.sticks.best(stats.scale * arrays[1]))
        step = max(1, PART // words.shape[1])
        for start in range(0, len(words), step):
            prior = eta[start : start + step]
            prior = prior if prior.ndim == 2 else prior[:, None]
            lam = stats.scale * words[start : start + step] + prior
            yield _is_positive(lam) and lam.max() <= _MOST_WORDS
    elif hasattr(model, "component"):
        weights, component = model.weights, model.component
        yield np.isfinite(component.family.log_normalizer(component.prior)).all()
        yield _is_positive(weights.natural_parameters(stats.scale * arrays[0]))
        for sums in arrays[1]:
            lam = component.natural_parameters(stats.scale * sums[None])
            yield np.isfinite(component.family.log_normalizer(lam)).all()
    else:
        for family, lam in zip(model.families, model.natural_parameters(stats), strict=True):
            yield family.__name__ != "Gamma" or _is_positive(lam)
            yield np.isfinite(family.log_normalizer(lam)).all()


def _is_positive(parameters):
    """Return whether all numbers are positive and finite, as in Dirichlet, beta and gamma."""
    return bool(np.all(np.greater(parameters, 0.0)) and np.all(np.isfinite(parameters)))


# ------------------------------------------------------------------------------ interrupted fits
def _check_progress(progress, estimator, memory):
    fitted, outcomes, start = estimator._fitted, progress.outcomes, progress.start
    n_rows, n_features = progress.rows.shape
    best, state, model = outcomes.best, fitted.state, fitted.model
    legal = n_rows >= 1 and n_features == estimator.n_features_in_
    _require(legal, f"An interrupted fit to rows of shape {progress.rows.shape}.")
    legal = min(progress.seeds, default=-1) >= 0 and start.n_starts > len(outcomes.elbos)
    _require(legal, "The interrupted fit has no start left to resume.")
    legal = (best is None) == (not outcomes.elbos) and len(outcomes.kinds) == len(outcomes.elbos)
    legal = legal and min(start.position.n_passes, start.n_moves) >= 0
    _require(legal, "The starts of the fit are not legible.")
    if best is not None:
        legal = name_of(type(best)) == "estimators.Fitted" and best.elbo is not None
        _require(legal, "The best start is not legible.")
        _check_fitted(best, estimator, memory)
    k = getattr(model, "n_components", len(state.stats.arrays[0]))
    legal = progress.row_starts is None or progress.row_starts.shape == (n_rows, k)
    legal = legal and len(getattr(fitted.policy, "_energies", range(n_rows))) == n_rows
    _require(legal, "Starts or temperatures of other rows.")
    for name in ("engines", "after_pass"):
        sizes = shapes_of(model, k, state.stats), k, state.n_steps
        _check_memories(name, progress.engine[name], sizes)


def _check_memories(name, memories, sizes):
    """Raise FileError unless each item is the memory of an engine, step or move."""
    legal = conforms(memories, list[dict])
    _require(legal, f"{name!r} is not what parts of an engine remember.")
    for memory in memories:
        _check_memory(memory, sizes)


def _check_memory(memory, sizes):
    """Raise FileError unless a subclass of Continued remembers these names and values."""
    for cls in _every_subclass(Continued):
        names = {*cls.kept, *cls.parts}
        # attributes with a default of the class may be missing
        if set(memory) <= names and all(hasattr(cls, name) for name in names - set(memory)):
            hints = {name: cls.kept[name] for name in set(memory) & set(cls.kept)}
            if all(_is_remembered(memory[name], hints[name], sizes) for name in hints):
                break
    else:
        raise FileError(f"No engine remembers {sorted(map(str, memory))} of such shapes.")
    for name in set(memory) & cls.parts:
        _check_memories(name, memory[name], sizes)


def _is_remembered(value, hint, sizes):
    rules = getattr(hint, "__metadata__", ())
    return conforms(value, hint) and all(_RULES[rule](value, *sizes) for rule in rules)


def _every_subclass(cls):
    for one in cls.__subclasses__():
        yield one
        yield from _every_subclass(one)


# Conditions on the data that engines and moves remember, by their names in :class:`Continued`:
# functions of the shapes of the statistics and of the numbers of components and steps.
_RULES = {
    "statistics": lambda value, shapes, k, n_steps: not value or [a.shape for a in value] == shapes,
    "fresh": lambda value, shapes, k, n_steps: all(_are_like(one.arrays, shapes) for one in value),
    "components": lambda value, shapes, k, n_steps: all(
        array.ndim == 1 and is_within(array, k) for array in value
    ),
    "pair": lambda value, shapes, k, n_steps: value is None or all(0 <= a < k for a in value[:2]),
    "square": lambda value, shapes, k, n_steps: (
        value is None or (value[0].shape * 2 == value[1].shape and value[0].ndim == 1)
    ),
    "ids": lambda value, shapes, k, n_steps: value.ndim == 1,
    "rate": lambda value, shapes, k, n_steps: (
        value.offset + n_steps > 0.0 and value.decay >= 0.0 and 0.0 < value.scale < np.inf
    ),
}
