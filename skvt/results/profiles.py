"""Profiles of components or clusters: short summaries of the table of ``describe``."""

from numbers import Integral
from typing import NamedTuple

import numpy as np

from skvt.models.mixture import have_many_rows

# Maximum number of columns that a sentence names, and their minimum relevance in nats per row.
MOST_COLUMNS = 4
LEAST_RELEVANCE = 0.02
# Quantities that are the centre and the spread of a column, and the scale of the centre on which
# the column is normal.
_CENTRES_AND_SPREADS = (
    ("mean", "standard deviation", np.asarray),
    ("median", "standard deviation of logarithm", np.log),
)


class Profiles(NamedTuple):
    """The table of ``describe`` by component or cluster; index K stands for all rows together."""

    # "component" or "cluster".
    kind: str
    # (block, name) of each column.
    columns: list
    # (K + 1,): weights; the last is 1.
    weights: np.ndarray
    # (K + 1, n_columns): relevance in nats per row; the last row is the weighted mean.
    relevance: np.ndarray
    # Parts of the text by (component, column): a category and a probability, or a number.
    cells: dict
    # (quantity, category, estimate) of each parameter by (component, column).
    estimates: dict
    # A third of the standard deviation of each column, to which numbers are rounded.
    steps: list
    # "centre", "spread" or None by (component, column).
    differs_in: dict


def profiles_of(table):
    """Read the table of ``describe``: a data frame, or a dict of lists."""
    kind = "cluster" if "cluster" in table else "component"
    keys, weights, entries, differs_in = {}, {}, {}, {}
    names = (kind, "weight", "block", "column", "relevance", "quantity", "category", "estimate")
    columns = [list(table[name]) for name in names]
    # A table made by hand may lack this column.
    parts = list(table["differs_in"]) if "differs_in" in table else [None] * len(columns[0])
    for k, weight, block, column, value, *estimate, part in zip(*columns, parts, strict=True):
        index = k, keys.setdefault((block, column), len(keys))
        weights[k], differs_in[index] = weight, part
        entries.setdefault(index, (value, []))[1].append(tuple(estimate))
    weights = np.array([weights[k] for k in sorted(weights)])
    relevance = np.zeros((len(weights), len(keys)))
    for index, (value, _) in entries.items():
        relevance[index] = value
    cells, estimates, steps = {}, {}, []
    for j in keys.values():
        column = [entries[k, j][1] for k in range(len(weights))]
        steps.append(_step(column))
        for k, cell in enumerate([*column, _mixed(column, weights / weights.sum())]):
            estimates[k, j] = cell
            cells[k, j] = _parts(cell, steps[j])
    relevance = np.vstack([relevance, weights @ relevance / weights.sum()])
    weights = np.append(weights, 1.0)
    return Profiles(kind, list(keys), weights, relevance, cells, estimates, steps, differs_in)


def parts_that_differ(marginals, weights):
    """Return whether the centre or the spread of columns differs more from the average component.

    These are the parts of the Kullback-Leibler divergence of the component's normal from that of
    the average component, whose mean and variance are weighted averages over components with many
    rows.

    Parameters
    ----------
    marginals : sequence of Marginals
        The parameters of the columns of a block.
    weights : ndarray of shape (K,)
        Weights of the components.

    Returns
    -------
    ndarray of str or None, shape (K, n_columns)
        "centre" or "spread"; None for columns without a mean and a standard deviation.
    """
    n_columns = 1 + max(int(part.columns.max(initial=0)) for part in marginals)
    out = np.full((weights.size, n_columns), None)
    parts = {part.quantity: part for part in marginals}
    weights = weights * have_many_rows(weights)
    for centre_name, spread_name, scale in _CENTRES_AND_SPREADS:
        if not {centre_name, spread_name} <= parts.keys():
            continue
        centres, spreads = parts[centre_name], parts[spread_name]
        columns, i, j = np.intersect1d(centres.columns, spreads.columns, return_indices=True)
        centre, variance = scale(centres.estimate[:, i]), spreads.estimate[:, j] ** 2
        usual, usual_variance = (np.average(part, 0, weights) for part in (centre, variance))
        ratio = variance / usual_variance
        is_spread = ratio - 1.0 - np.log(ratio) > (centre - usual) ** 2 / usual_variance
        out[:, columns] = np.where(is_spread, "spread", "centre")
    return out


def sentences(profiles, most_columns=MOST_COLUMNS):
    """Return a sentence for each component or cluster: its share, and its distinctive columns."""
    whole = len(profiles.weights) - 1
    out = []
    for k, weight in enumerate(profiles.weights[:whole]):
        order = np.argsort(-profiles.relevance[k], kind="stable")[:most_columns]
        named = [j for j in order.tolist() if profiles.relevance[k, j] >= LEAST_RELEVANCE]
        parts = [_phrase(profiles, k, j, whole) for j in named]
        what = ", ".join(parts) if parts else "no column sets it apart"
        out.append(f"{profiles.kind} {k} ({weight:.0%} of rows): {what}")
    return out


def _phrase(profiles, k, j, whole):
    """The value of a column in a component, and that of the whole table in parentheses."""
    name, (cell, usual) = profiles.columns[j][1], (profiles.estimates[i, j] for i in (k, whole))
    (quantity, _, value), in_all = _main(cell, usual)
    name = f"column {name}" if isinstance(name, Integral) else name
    parts = profiles.cells[k, j]
    if quantity == "probability":
        if len(parts) == 2:  # a category and its probability
            return f"{name} is {parts[0]} ({value:.0%}; all {in_all:.0%})"
        return f"{name} {value:.0%} (all {in_all:.0%})"
    text = f"{name} {parts[0]} (all {profiles.cells[whole, j][0]})"
    if profiles.differs_in.get((k, j)) == "spread":
        (quantity, value), (_, value_of_all) = _deviation(cell), _deviation(usual)
        text = f"{name} with {quantity} {value:.2g} (all {value_of_all:.2g})"
    for (quantity, _, share), (*_, share_of_all) in zip(cell, usual, strict=True):
        if quantity == "share not 0":
            text += f", {1.0 - share:.0%} zero (all {1.0 - share_of_all:.0%})"
    return text


def directions(profiles):
    """Return signs (K + 1, n_columns): 1 if a value is higher than that of all rows, -1 if lower.

    The value is the mean, the median, the rate, or the probability of the most probable category.
    """
    whole = len(profiles.weights) - 1
    signs = np.zeros(profiles.relevance.shape)
    for (k, j), cell in profiles.estimates.items():
        (*_, value), in_all = _main(cell, profiles.estimates[whole, j])
        signs[k, j] = np.sign(value - in_all)
    return signs


def _deviation(cell):
    """Return the name and the value of the standard deviation of a cell."""
    return next((name, value) for name, _, value in cell if name.startswith("standard deviation"))


def unique_names(columns):
    """Return names of columns from (block, name), with the block if a name occurs twice."""
    names = [name for _, name in columns]
    return [name if names.count(name) == 1 else f"{block}: {name}" for block, name in columns]


def wide(profiles):
    """Columns of a table with a row for each component or cluster, by name."""
    whole = len(profiles.weights) - 1
    out = {profiles.kind: list(range(whole)), "weight": profiles.weights[:whole].tolist()}
    for j, key in enumerate(unique_names(profiles.columns)):
        out[key] = [_value(profiles.estimates[k, j]) for k in range(whole)]
    return out


def _values(cell):
    """The parameters of values, without shares of rows that have one."""
    return [entry for entry in cell if not entry[0].startswith("share ")]


def _value(cell):
    """The most probable category, or the mean, median, rate or probability of a one."""
    quantity, category, estimate = _main(cell)[0]
    return category if quantity == "probability" and len(_values(cell)) > 1 else estimate


def _main(cell, usual=()):
    """Return the entry of a cell that represents it, and the estimate of the whole table for it.

    The entry is that of the most probable category, or of the mean, median, rate or probability of
    a one; ``usual`` is the cell of the whole table.
    """
    values = _values(cell)
    names = "mean", "median", "rate", "probability", "standard deviation"
    first = min(names.index(entry[0]) for entry in values if entry[0] in names)
    best = max((entry for entry in values if entry[0] == names[first]), key=lambda entry: entry[2])
    return best, next((entry[2] for entry in usual if entry[:2] == best[:2]), None)


def _mixed(estimates, weights):
    """Return the estimates of a column for the whole table, the means over components."""
    powers = {"standard deviation": 2.0}  # variances, not standard deviations, are averaged
    sums = {}
    for weight, cell in zip(weights, estimates, strict=True):
        for quantity, category, estimate in cell:
            key = quantity, category
            sums[key] = sums.get(key, 0.0) + weight * estimate ** powers.get(quantity, 1.0)
    return [(*key, total ** (1.0 / powers.get(key[0], 1.0))) for key, total in sums.items()]


def _step(estimates):
    """Return a third of the standard deviation of a column, the median over components."""
    # No deviation is known beside a median, so that a third of the median represents it.
    spread_of = {"standard deviation": float, "rate": np.sqrt, "median": lambda value: value / 3.0}
    spreads = [
        spread_of[quantity](estimate)
        for cell in estimates
        for quantity, _, estimate in cell
        if quantity in spread_of
    ]
    return np.median(spreads) / 3.0 if spreads else 0.0


def _parts(cell, step):
    """Return the parts of the text of a cell from its (quantity, category, estimate)."""
    quantity, category, value = _main(cell)[0]
    if quantity == "probability":
        probability = f"{value:.2f}" if value >= 0.005 else f"{value:.1g}"
        return (probability,) if len(_values(cell)) == 1 else (str(category), probability)
    number = _number(value, step)
    return ("±" + number,) if quantity == "standard deviation" else (number,)


def _number(value, step):
    """A number in short form, rounded to a power of ten that is no more than the step."""
    decimals = -int(np.floor(np.log10(step))) if step > 0.0 else 2
    if decimals > 4 or abs(value) >= 1e6:
        return f"{value:.2g}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
    text = f"{round(value, decimals):.{max(decimals, 0)}f}"
    return text.removeprefix("-") if float(text) == 0.0 else text
