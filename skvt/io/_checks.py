"""Whether the parts of a model that was read fit together.

Compiled loops rely on the shapes of what they are given.
"""

from dataclasses import fields, is_dataclass

import numpy as np

from skvt.io._archive import PART, FileError
from skvt.io._classes import ESTIMATORS, name_of

# Fields of models that are positive wherever they have a value.
_POSITIVE = (
    "doc_topic_prior",
    "topic_word_prior",
    "sampling_prior",
    "activation_prior",
    "noise_variance",
)
# Latent Dirichlet allocation: its statistics are (V, K).
_OF_TOPICS = "models.LDA", "models.LDAGivenTopics", "models.CollapsedLDA"
# Relative error that running sums may have, in single precision too.
_ROUNDING = 1e-3
# What learned temperatures know of each row.
_BY_ROW = "_references", "_energies", "_lengths"


def check_estimator(estimator, memory):
    """Raise FileError unless this is a fitted estimator whose parts fit together.

    What is computed of them takes at most so many bytes of ``memory``.
    """
    name = name_of(type(estimator))
    if name is None or name.removeprefix("estimators.") not in ESTIMATORS:
        raise FileError("The file holds no estimator.")
    own = vars(estimator)
    missing = {*type(estimator)._get_param_names(), "_fitted", "n_features_in_"} - set(own)
    if missing:
        raise FileError(f"The estimator has no {sorted(missing)[0]!r}.")
    fitted = own["_fitted"]
    if name_of(type(fitted)) != "estimators.Fitted":
        raise FileError("The estimator is not fitted.")
    n_features = own["n_features_in_"]
    if type(n_features) is not int or n_features < 1:
        raise FileError(f"n_features_in_ is {n_features!r}.")
    progress = own.get("_progress")
    if progress is not None and name_of(type(progress)) != "estimators.Progress":
        raise FileError("The progress of the fit is not legible.")
    estimator._validate_params()
    _check_fitted(fitted, n_features)
    if progress is not None:
        _check_progress(progress, fitted)
    _check_posterior(fitted.model, fitted.stats)


def _check_fitted(fitted, n_features):
    model, state = fitted.model, fitted.state
    if model.n_features != n_features:
        raise FileError(f"The model has {model.n_features} columns, not {n_features}.")
    _check_columns(model, n_features)
    expected = _shapes(model, n_features)
    stats = state.stats
    _require(stats.arrays, expected, "The statistics")
    n_components = model.size(stats)
    for array, total in zip(stats.arrays, stats.sums, strict=True):
        if np.shape(total) != array.shape[1:]:
            raise FileError(f"Sums of shape {np.shape(total)} for {array.shape}.")
        fresh = stats.scale * array.sum(axis=0, dtype=np.float64)
        size = np.zeros_like(fresh)
        for row in array:
            size += np.abs(stats.scale * row)
        if not np.all(np.abs(total - fresh) <= _ROUNDING * size):
            raise FileError("Sums are not those of the statistics.")
    rows = [getattr(fitted.policy, name, ()) for name in _BY_ROW]
    if len({len(values) for values in rows}) > 1:
        raise FileError("Temperatures of rows of different numbers.")
    memos = getattr(state, "memos", None)
    if memos is not None:
        shapes = [array.shape for array in stats.arrays]
        _check_memos(memos, shapes)
        if state.initial is not None and [a.shape for a in state.initial.arrays] != shapes:
            raise FileError("The initial statistics have other shapes.")
        if memos and state.component_ids.shape != (n_components,):
            raise FileError(f"{state.component_ids.size} ids for {n_components} components.")


def _check_posterior(model, stats):
    """Natural parameters lie where their families have a normaliser."""
    if not all(_legal_parts(model, stats)):
        raise FileError("The posterior is no distribution.")
    for name in _POSITIVE:
        value = getattr(model, name, None)
        if value is not None and not np.all(np.asarray(value) > 0.0):
            raise FileError(f"{name} is not positive.")


def _legal_parts(model, stats):
    """Whether natural parameters are legal, a few members at a time.

    All of them at once would be another copy of the statistics, or several.
    """
    kind, arrays = name_of(type(model)), stats.arrays
    if kind in (*_OF_TOPICS, "models.HDP"):
        words, eta = arrays[0], model.topic_word_prior
        if kind == "models.HDP":
            words = words.T
            yield _is_positive(model.sticks.best(stats.scale * arrays[1]))
        step = max(1, PART // words.shape[1])
        for start in range(0, len(words), step):
            own = eta[start : start + step]
            own = own if own.ndim == 2 else own[:, None]
            yield _is_positive(stats.scale * words[start : start + step] + own)
    elif kind in ("models.Mixture", "models.MixtureGivenGlobals"):
        weights, components = model.weights, model.component
        yield _is_positive(weights.natural_parameters(stats.scale * arrays[0]))
        for sums in arrays[1]:
            own = components.natural_parameters(stats.scale * sums[None])
            yield np.isfinite(components.family.log_normalizer(own)).all()
    else:
        for family, own in zip(model.families, model.natural_parameters(stats), strict=True):
            yield kind != "models.GaPNMF" or _is_positive(own)
            yield np.isfinite(family.log_normalizer(own)).all()


def _is_positive(parameters):
    """Those of Dirichlet, beta and gamma variables are."""
    return bool(np.all(parameters > 0.0) and np.all(np.isfinite(parameters)))


def _shapes(model, n_features):
    """Shapes of the statistics; -1 is any number, the same everywhere."""
    kind = name_of(type(model))
    if kind in _OF_TOPICS:
        n_topics = len(model.doc_topic_prior)
        if model.topic_word_prior.shape not in ((n_features,), (n_features, n_topics)):
            raise FileError(f"A prior of topics of shape {model.topic_word_prior.shape}.")
        return [(n_features, n_topics)]
    if kind == "models.HDP":
        if model.topic_word_prior.shape != (n_features,):
            raise FileError(f"A prior of topics of shape {model.topic_word_prior.shape}.")
        return [(-1, n_features), (-1, 5)]
    if kind == "models.GaPNMF":
        return [(model.n_components, n_features)] * 2
    if kind == "models.FactorialMixture":
        K = model.n_components
        if model.activation_prior.shape != (K,):
            raise FileError(f"Activations of shape {model.activation_prior.shape}.")
        n_precisions = n_features if model.by_column else 1
        return [(n_precisions, K, K), (K, n_features), (K,), (3,)]
    if kind not in ("models.Mixture", "models.MixtureGivenGlobals"):
        raise FileError(f"{type(model).__name__} is no model.")
    return _shapes_of_mixture(model, n_features)


def _shapes_of_mixture(model, n_features):
    component = model.component
    width = component.filled_features(np.zeros((1, n_features))).shape[1]
    prior = component.prior
    spread = np.shape(component.spread(np.zeros((1, width))))[1:]
    if spread != prior.shape:
        raise FileError(f"A prior of shape {prior.shape} for statistics of {spread}.")
    of_weights = () if name_of(type(model.weights)) != "models.SeparateSticks" else (2,)
    return [(-1, *of_weights), (-1, width)]


def _check_columns(part, n_features):
    """Centres of columns have one entry for each; columns of blocks exist."""
    if not is_dataclass(part):
        return
    for field in fields(part):
        value = getattr(part, field.name)
        if field.name == "center" and np.shape(value) != (part.n_features,):
            raise FileError(f"A centre of shape {np.shape(value)} for {part.n_features} columns.")
        if field.name == "component":
            if value.n_features != n_features:
                raise FileError(f"Components of {value.n_features} columns, not {n_features}.")
            _check_columns(value, n_features)
        if field.name == "blocks":
            columns = np.concatenate([block.columns for block in value])
            distinct = np.unique(columns)
            if distinct.size < columns.size or distinct[0] < 0 or distinct[-1] >= n_features:
                raise FileError(f"Blocks of the columns {columns.tolist()} of {n_features}.")
            for block in value:
                if block.component.n_features != block.columns.size:
                    raise FileError(f"Block {block.name!r} has other columns.")
                _check_columns(block.component, block.columns.size)


def _require(arrays, expected, what):
    """Raise FileError unless the shapes are these; -1 is any number, the same everywhere."""
    shapes = [array.shape for array in arrays]
    free = {n for shape, own in zip(shapes, expected, strict=True) for n, m in
            zip(shape, own, strict=True) if m == -1}  # fmt: skip
    legal = len(free) <= 1 and all(
        m in (-1, n)
        for shape, own in zip(shapes, expected, strict=True)
        for n, m in zip(shape, own, strict=True)
    )
    if not legal or any(array.dtype.kind != "f" for array in arrays):
        raise FileError(f"{what} have the shapes {shapes}, not {expected}.")


def _check_memos(memos, shapes):
    """Each memo, and each sum of memos, has these shapes after the changes that are due."""
    n_places = len(memos._levels[0])
    if sorted(memos._places.values()) != list(range(n_places)):
        raise FileError("Memos without place.")
    for level in memos._levels:
        for entry in level:
            if entry is None and level is not memos._levels[0]:
                continue
            packed, n_made = entry
            if name_of(type(packed)) != "inference.Packed" or type(n_made) is not int or n_made < 0:
                raise FileError("A memo is not legible.")
            memo = packed.whole()
            for change in memos._changes[n_made:]:
                memo = change(memo)
            _check_memo(memo, shapes)


def _check_memo(memo, shapes):
    n, loss = shapes[0][0], memo.merge_entropy_loss
    legal = (
        [array.shape for array in memo.stats.arrays] == shapes
        and np.shape(memo.entropy) in ((), (1,), (n,))
        and (loss is None or loss.shape in ((), (n, n)))
    )
    if not legal:
        raise FileError(f"A memo has other shapes than the statistics, {shapes}.")


def _check_progress(progress, fitted):
    starts = progress.starts
    if starts.best is not None and name_of(type(starts.best)) != "estimators.Fitted":
        raise FileError("The best start is not legible.")
    if len(starts.elbos) >= len(starts.seeds):
        raise FileError("No start is left.")
    if progress.row_starts is not None:
        expected = progress.rows.shape[0], fitted.model.n_components
        if progress.row_starts.shape != expected:
            raise FileError(f"Starts of rows of shape {progress.row_starts.shape}.")
