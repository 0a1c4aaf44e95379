"""Profiles of components or clusters: short summaries of the table of ``describe``.

The table has a row for each component and parameter. A *cell* is the list of the estimates that a
component has for the parameters of one column. Sentences, wide tables and displays show cells.
"""

from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from skvt.models.mixture import have_many_rows

# Maximum number of columns that a sentence names, and their minimum relevance in nats per row.
MAX_COLUMNS = 4
MIN_RELEVANCE = 0.02
# The quantities that are the centre and the spread of a column, and the function that maps the
# centre to the scale on which the column is normal.
_CENTRES_AND_SPREADS = (
    ("mean", "standard deviation", np.asarray),
    ("median", "standard deviation of logarithm", np.log),
)
# The scale on which a quantity is averaged over components: a function to it, and its inverse.
_AS_IT_IS = (float, float)
_SCALES = {
    "median": (np.log, np.exp),
    "standard deviation": (np.square, np.sqrt),
    "standard deviation of logarithm": (np.square, np.sqrt),
}
# Quantities by which a cell is summarised, the best first.
_MAIN_QUANTITIES = ("mean", "median", "rate", "probability", "standard deviation")


class Estimate(NamedTuple):
    """The estimate of a parameter, from a row of the table of ``describe``."""

    # Name of the parameter, such as "mean".
    quantity: str
    # Category whose probability the value is; None for other quantities.
    category: Any
    value: float


class Profiles(NamedTuple):
    """The table of ``describe`` by component or cluster.

    Rows 0 to K - 1 and keys with these numbers are for the K components or clusters. Row K and keys
    with the number K are for all rows of the data.
    """

    # "component" or "cluster".
    kind: str
    # (block, name) of each column.
    columns: list
    # (K + 1,): weights; the last is 1.
    weights: np.ndarray
    # (K + 1, n_columns): relevance in nats per row; the last row is the weighted mean.
    relevance: np.ndarray
    # Text of each cell by (component, column), a tuple: a category and its probability, or a
    # number.
    cells: dict
    # Cell, a list of `Estimate`, by (component, column).
    estimates: dict
    # "centre", "spread" or None by (component, column).
    differs_in: dict


def make_profiles(table):
    """Return the profiles of the table of ``describe``, a data frame or a dict of lists."""
    kind = "cluster" if "cluster" in table else "component"
    # Numbers of columns by (block, name), and weights of components by number.
    column_numbers, weight_of = {}, {}
    # Relevance and cell, and the entry of "differs_in", by (component, column).
    entries, differs_in = {}, {}
    headers = (kind, "weight", "block", "column", "relevance", "quantity", "category", "estimate")
    table_columns = [list(table[header]) for header in headers]
    # A table made by hand may lack the column "differs_in".
    parts = table["differs_in"] if "differs_in" in table else [None] * len(table_columns[0])
    for k, weight, block, name, nats, *fields, part in zip(*table_columns, parts, strict=True):
        index = k, column_numbers.setdefault((block, name), len(column_numbers))
        weight_of[k] = weight
        differs_in[index] = part
        _, cell = entries.setdefault(index, (nats, []))
        cell.append(Estimate(*fields))
    weights = np.array([weight_of[k] for k in sorted(weight_of)])
    relevance = np.zeros((len(weights), len(column_numbers)))
    for index, (nats, _) in entries.items():
        relevance[index] = nats
    cells, estimates = {}, {}
    for j in column_numbers.values():
        component_cells = [entries[k, j][1] for k in range(len(weights))]
        cell_of_all_rows = _average_cells(component_cells, weights / weights.sum())
        step = _compute_rounding_step(component_cells)
        for k, cell in enumerate([*component_cells, cell_of_all_rows]):
            estimates[k, j] = cell
            cells[k, j] = _make_text_parts(cell, step)
    relevance = np.vstack([relevance, weights @ relevance / weights.sum()])
    weights = np.append(weights, 1.0)
    columns = list(column_numbers)
    return Profiles(kind, columns, weights, relevance, cells, estimates, differs_in)


def find_parts_that_differ(marginals, weights):
    """Find what differs more from the average component in each column, the centre or the spread.

    Centre and spread are the two parts of the Kullback-Leibler divergence of the component's normal
    from the normal of the average component. The mean and the variance of the average component are
    weighted averages over components with many rows.

    Parameters
    ----------
    marginals : sequence of Marginals
        The parameters of the columns of a block.
    weights : ndarray of shape (K,)
        Weights of the components.

    Returns
    -------
    ndarray of str or None, shape (K, n_columns)
        "centre" or "spread"; None for columns that do not have both a centre and a spread.
    """
    n_columns = 1 + max(int(marginal.columns.max(initial=0)) for marginal in marginals)
    differs_in = np.full((weights.size, n_columns), None)
    by_quantity = {marginal.quantity: marginal for marginal in marginals}
    weights = weights * have_many_rows(weights)
    for centre_name, spread_name, to_normal in _CENTRES_AND_SPREADS:
        if not {centre_name, spread_name} <= by_quantity.keys():
            continue
        centres, spreads = by_quantity[centre_name], by_quantity[spread_name]
        # Columns that have both quantities are at positions i of centres and j of spreads.
        columns, i, j = np.intersect1d(centres.columns, spreads.columns, return_indices=True)
        centre, variance = to_normal(centres.estimate[:, i]), spreads.estimate[:, j] ** 2
        mean_centre = np.average(centre, axis=0, weights=weights)
        mean_variance = np.average(variance, axis=0, weights=weights)
        ratio = variance / mean_variance
        # Compare the two parts of the divergence, without their common factor 1/2.
        is_spread = ratio - 1.0 - np.log(ratio) > (centre - mean_centre) ** 2 / mean_variance
        differs_in[:, columns] = np.where(is_spread, "spread", "centre")
    return differs_in


def write_sentences(profiles, max_columns=MAX_COLUMNS):
    """Return a sentence for each component or cluster: its share, and its distinctive columns."""
    sentences = []
    for k, weight in enumerate(profiles.weights[:-1]):
        order = np.argsort(-profiles.relevance[k], kind="stable")[:max_columns]
        distinctive = [j for j in order.tolist() if profiles.relevance[k, j] >= MIN_RELEVANCE]
        phrases = ", ".join(_describe_column(profiles, k, j) for j in distinctive)
        shown = phrases or "no column sets it apart"
        sentences.append(f"{profiles.kind} {k} ({weight:.0%} of rows): {shown}")
    return sentences


def _describe_column(profiles, k, j):
    """Describe column j in component k by its value, with the value in all rows in parentheses."""
    all_rows = len(profiles.weights) - 1
    _, name = profiles.columns[j]
    name = f"column {name}" if isinstance(name, Integral) else name
    cell, cell_of_all = profiles.estimates[k, j], profiles.estimates[all_rows, j]
    main = _find_main_estimate(cell)
    if main.quantity == "probability":
        text_of_all = f"all {_find_same_parameter(cell_of_all, main):.0%}"
        if _is_category(cell):
            return f"{name} is {main.category} ({main.value:.0%}; {text_of_all})"
        return f"{name} {main.value:.0%} ({text_of_all})"
    (number,), (number_of_all,) = profiles.cells[k, j], profiles.cells[all_rows, j]
    text = f"{name} {number} (all {number_of_all})"
    if profiles.differs_in.get((k, j)) == "spread":
        deviation, deviation_of_all = _find_deviation(cell), _find_deviation(cell_of_all)
        text = f"{name} with {deviation.quantity} {deviation.value:.2g}"
        text += f" (on average {deviation_of_all.value:.2g})"
    for estimate, estimate_of_all in zip(cell, cell_of_all, strict=True):
        if estimate.quantity.startswith("share not "):
            at = estimate.quantity.removeprefix("share not ")
            share, share_of_all = (f"{1.0 - e.value:.0%}" for e in (estimate, estimate_of_all))
            value = "zero" if at == "0" else f"equal to {at}"
            text += f", {share} {value} (all {share_of_all})"
    return text


def find_directions(profiles):
    """Return signs (K + 1, n_columns): 1 if a value is higher than in all rows, -1 if lower.

    The value is the main estimate of a cell, see `_find_main_estimate`.
    """
    all_rows = len(profiles.weights) - 1
    signs = np.zeros(profiles.relevance.shape)
    for (k, j), cell in profiles.estimates.items():
        main = _find_main_estimate(cell)
        signs[k, j] = np.sign(
            main.value - _find_same_parameter(profiles.estimates[all_rows, j], main)
        )
    return signs


def _find_deviation(cell):
    """Return the estimate of the standard deviation in a cell."""
    return next(e for e in cell if e.quantity.startswith("standard deviation"))


def unique_names(columns):
    """Return names of columns from (block, name), with the block if a name occurs twice."""
    names = [name for _, name in columns]
    return [name if names.count(name) == 1 else f"{block}: {name}" for block, name in columns]


def make_wide_table(profiles):
    """Return a table with a row for each component or cluster, as a dict of columns."""
    weights = profiles.weights[:-1].tolist()
    table = {profiles.kind: list(range(len(weights))), "weight": weights}
    for j, name in enumerate(unique_names(profiles.columns)):
        table[name] = [_summarise(profiles.estimates[k, j]) for k in range(len(weights))]
    return table


def _summarise(cell):
    """Return the most probable category of a cell, or the value of its main estimate."""
    main = _find_main_estimate(cell)
    return main.category if _is_category(cell) else main.value


def _is_category(cell):
    """Return whether a cell has probabilities of several categories.

    Shares of rows, such as the quantity "share observed", are not categories.
    """
    n_parameters = sum(not estimate.quantity.startswith("share ") for estimate in cell)
    return _find_main_estimate(cell).quantity == "probability" and n_parameters > 1


def _find_main_estimate(cell):
    """Return the estimate that summarises a cell.

    It is the mean, the median, the rate, the probability of the value 1, or the probability of the
    most probable category; for a cell without any of these, it is the standard deviation.
    """
    present = {estimate.quantity for estimate in cell}
    quantity = next(quantity for quantity in _MAIN_QUANTITIES if quantity in present)
    candidates = [estimate for estimate in cell if estimate.quantity == quantity]
    return max(candidates, key=lambda estimate: estimate.value)


def _find_same_parameter(cell, estimate):
    """Return the value that a cell has for the quantity and category of ``estimate``."""
    parameter = estimate.quantity, estimate.category
    return next(e.value for e in cell if (e.quantity, e.category) == parameter)


def _average_cells(cells, weights):
    """Return the estimates of a column for all rows: averages of its cells over components.

    Medians are averaged as logarithms, and standard deviations as squares. The mean of the values
    that are not at a point mass weights each component by its share of such values, too.
    """
    sums = {}
    for weight, cell in zip(weights, cells, strict=True):
        shares = [estimate.value for estimate in cell if estimate.quantity.startswith("share ")]
        for quantity, category, value in cell:
            is_share = quantity.startswith("share ")
            to_scale, _ = _SCALES.get(quantity, _AS_IT_IS)
            term = weight * (1.0 if is_share else np.prod(shares)) * np.array([to_scale(value), 1])
            parameter = quantity, category
            sums[parameter] = sums.get(parameter, 0.0) + term
    averages = []
    for (quantity, category), (total, weight) in sums.items():
        _, from_scale = _SCALES.get(quantity, _AS_IT_IS)
        averages.append(Estimate(quantity, category, float(from_scale(total / weight))))
    return averages


def _compute_rounding_step(cells):
    """Return the step to which the numbers of a column are rounded.

    It is a third of the median of the standard deviations of the column's cells.
    """
    # The standard deviation of a count is the root of its rate. A column in logarithms counts as if
    # its standard deviation were a third of the median.
    spread_of = {"standard deviation": float, "rate": np.sqrt, "median": lambda value: value / 3.0}
    spreads = [
        spread_of[quantity](value)
        for cell in cells
        for quantity, _, value in cell
        if quantity in spread_of
    ]
    return np.median(spreads) / 3.0 if spreads else 0.0


def _make_text_parts(cell, step):
    """Return the text of a cell in parts: a category and its probability, or a number."""
    quantity, category, value = _find_main_estimate(cell)
    if quantity == "probability":
        probability = f"{value:.2f}" if value >= 0.005 else f"{value:.1g}"
        return (str(category), probability) if _is_category(cell) else (probability,)
    number = _round_to_text(value, step)
    return ("±" + number,) if quantity == "standard deviation" else (number,)


def _round_to_text(value, step):
    """Return a number as short text, rounded to a multiple of a power of ten up to ``step``."""
    decimals = -int(np.floor(np.log10(step))) if step > 0.0 else 2
    if decimals > 4 or abs(value) >= 1e6:
        # Write 1e5 in place of 1e+05.
        return f"{value:.2g}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
    text = f"{round(value, decimals):.{max(decimals, 0)}f}"
    # Write 0 in place of -0.
    return text.removeprefix("-") if float(text) == 0.0 else text
