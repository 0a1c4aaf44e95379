"""Names that users give to topics and clusters.

Names are stored by keys, which follow topics and clusters if moves change their order. The key of a
topic is the identifier of the topic. The key of a cluster is the tuple of the identifiers of its
components, so that a cluster has its name as long as it consists of the same components.
"""

from numbers import Integral

import numpy as np


def read_names(names, n_groups, attribute, kind):
    """Return the names that a user sets, a dict by index; raise ValueError if they are illegal.

    Parameters
    ----------
    names : list of str, dict, Series or None
        A name for each topic or cluster, or a mapping from some indices to names. None stands for
        no names.
    n_groups : int
        Number of topics or clusters.
    attribute : str
        Attribute that the user sets, such as "topic_labels_".
    kind : str
        "topic" or "cluster".
    """
    # Pairs of an index and a name; None if names are illegal. A Series has ``items`` as a dict has.
    pairs = [] if names is None else None
    if hasattr(names, "items"):
        pairs = list(names.items())
    elif np.iterable(names) and not isinstance(names, str):
        all_names = list(names)
        pairs = list(enumerate(all_names)) if len(all_names) == n_groups else None
    is_legal = pairs is not None and all(
        isinstance(k, Integral) and 0 <= k < n_groups and isinstance(name, str) for k, name in pairs
    )
    # The lengths differ if the index of a Series repeats an entry.
    if not is_legal or len(dict(pairs)) < len(pairs):
        raise ValueError(
            f"{attribute} must be {n_groups} strings, one for each {kind}, or a dict or a Series "
            f"from some of the {kind}s 0 to {n_groups - 1} to strings. Got {names!r}."
        )
    return {int(k): str(name) for k, name in pairs}


def store_names(name_of_index, keys):
    """Return the names by key, a dict; None without names. ``keys`` are those of all indices."""
    return {keys[k]: name for k, name in name_of_index.items()} or None


def find_names(name_of_key, keys):
    """Return the names by index, a dict, from names by key; ``name_of_key`` may be None."""
    name_of_key = name_of_key or {}
    return {k: name_of_key[key] for k, key in enumerate(keys) if key in name_of_key}


def get_component_keys(fitted, shown_fit, n_components):
    """Return the identifiers of components or topics, a list; indices if there are none.

    A component keeps its identifier if moves, which add, join and remove components, change its
    index. ``shown_fit`` is ``fitted`` without the background of a mixture, or ``fitted`` itself.
    """
    # Only the states of fits with moves have identifiers.
    ids = getattr(fitted.state, "component_ids", np.empty(0))
    if ids.size == n_components + 1:
        ids = np.delete(ids, shown_fit.model.weights.position)
    return ids.tolist() if ids.size == n_components else list(range(n_components))
