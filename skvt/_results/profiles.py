"""Profiles of components or clusters: short summaries of the table of ``describe``.

The table has a row for each component and parameter. A profile gathers the parameters of a column
in a component into a cell, for sentences, wide tables, and displays.
"""

from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from skvt.models.mixture import have_many_rows

# Maximum number of columns that a sentence names, and their minimum relevance in nats per row.
MOST_COLUMNS = 4
LEAST_RELEVANCE = 0.02
# Names of the quantities that are the centre and the spread of a column, and the function that maps
# the centre to the scale on which the column is normal.
_CENTRES_AND_SPREADS = (
    ("mean", "standard deviation", np.asarray),
    ("median", "standard deviation of logarithm", np.log),
)
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
    # Text of each cell by (component, column), in parts: a category and its probability, or a
    # number.
    cells: dict
    # List of the `Estimate` of each parameter by (component, column). The functions of this module
    # call such a list a cell.
    estimates: dict
    # A third of the standard deviation of each column, to which numbers are rounded.
    steps: list
    # "centre", "spread" or None by (component, column).
    differs_in: dict


def make_profiles(table):
    """Return the profiles of the table of ``describe``, a data frame or a dict of lists."""
    kind = "cluster" if "cluster" in table else "component"
    column_numbers, weights, differs_in = {}, {}, {}
    # Relevance and list of estimates by (component, column).
    entries = {}
    names = (kind, "weight", "block", "column", "relevance", "quantity", "category", "estimate")
    table_columns = [list(table[name]) for name in names]
    # A table made by hand may lack the column "differs_in".
    parts = table["differs_in"] if "differs_in" in table else [None] * len(table_columns[0])
    # Below, ``value`` is a relevance, ``estimate`` has the fields of an `Estimate`, and ``part`` is
    # an entry of "differs_in".
    for k, weight, block, column, value, *estimate, part in zip(*table_columns, parts, strict=True):
        index = k, column_numbers.setdefault((block, column), len(column_numbers))
        weights[k], differs_in[index] = weight, part
        entries.setdefault(index, (value, []))[1].append(Estimate(*estimate))
    weights = np.array([weights[k] for k in sorted(weights)])
    relevance = np.zeros((len(weights), len(column_numbers)))
    for index, (value, _) in entries.items():
        relevance[index] = value
    cells, estimates, steps = {}, {}, []
    for j in column_numbers.values():
        component_cells = [entries[k, j][1] for k in range(len(weights))]
        cell_of_all_rows = _average_cells(component_cells, weights / weights.sum())
        steps.append(_compute_rounding_step(component_cells))
        for k, cell in enumerate([*component_cells, cell_of_all_rows]):
            estimates[k, j] = cell
            cells[k, j] = _make_text_parts(cell, steps[j])
    relevance = np.vstack([relevance, weights @ relevance / weights.sum()])
    weights = np.append(weights, 1.0)
    columns = list(column_numbers)
    return Profiles(kind, columns, weights, relevance, cells, estimates, steps, differs_in)


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
    n_columns = 1 + max(int(part.columns.max(initial=0)) for part in marginals)
    out = np.full((weights.size, n_columns), None)
    by_quantity = {part.quantity: part for part in marginals}
    weights = weights * have_many_rows(weights)
    for centre_name, spread_name, to_normal in _CENTRES_AND_SPREADS:
        if not {centre_name, spread_name} <= by_quantity.keys():
            continue
        centres, spreads = by_quantity[centre_name], by_quantity[spread_name]
        # Find the columns with both quantities, and their positions in ``centres`` and ``spreads``.
        columns, i, j = np.intersect1d(centres.columns, spreads.columns, return_indices=True)
        centre, variance = to_normal(centres.estimate[:, i]), spreads.estimate[:, j] ** 2
        mean_centre, mean_variance = (np.average(x, 0, weights) for x in (centre, variance))
        ratio = variance / mean_variance
        is_spread = ratio - 1.0 - np.log(ratio) > (centre - mean_centre) ** 2 / mean_variance
        out[:, columns] = np.where(is_spread, "spread", "centre")
    return out


def write_sentences(profiles, most_columns=MOST_COLUMNS):
    """Return a sentence for each component or cluster: its share, and its distinctive columns."""
    out = []
    for k, weight in enumerate(profiles.weights[:-1]):
        order = np.argsort(-profiles.relevance[k], kind="stable")[:most_columns]
        distinctive = [j for j in order.tolist() if profiles.relevance[k, j] >= LEAST_RELEVANCE]
        phrases = ", ".join(_describe_column(profiles, k, j) for j in distinctive)
        shown = phrases or "no column sets it apart"
        out.append(f"{profiles.kind} {k} ({weight:.0%} of rows): {shown}")
    return out


def _describe_column(profiles, k, j):
    """Describe column j in component k by its value, with the value in all rows in parentheses."""
    all_rows = len(profiles.weights) - 1
    name = profiles.columns[j][1]
    texts = profiles.cells[k, j]
    cell, of_all = profiles.estimates[k, j], profiles.estimates[all_rows, j]
    main = _find_main_estimate(cell)
    quantity, category, value = main
    name = f"column {name}" if isinstance(name, Integral) else name
    if quantity == "probability":
        value_of_all = f"all {_find_same_parameter(of_all, main):.0%}"
        if _is_category(cell):
            return f"{name} is {category} ({value:.0%}; {value_of_all})"
        return f"{name} {value:.0%} ({value_of_all})"
    text = f"{name} {texts[0]} (all {profiles.cells[all_rows, j][0]})"
    if profiles.differs_in.get((k, j)) == "spread":
        deviation, deviation_of_all = _find_deviation(cell), _find_deviation(of_all)
        text = f"{name} with {deviation.quantity} {deviation.value:.2g}"
        text += f" (all {deviation_of_all.value:.2g})"
    for estimate, estimate_of_all in zip(cell, of_all, strict=True):
        if estimate.quantity == "share not 0":
            text += f", {1.0 - estimate.value:.0%} zero (all {1.0 - estimate_of_all.value:.0%})"
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
    return next(each for each in cell if each.quantity.startswith("standard deviation"))


def unique_names(columns):
    """Return names of columns from (block, name), with the block if a name occurs twice."""
    names = [name for _, name in columns]
    return [name if names.count(name) == 1 else f"{block}: {name}" for block, name in columns]


def make_wide_table(profiles):
    """Return a table with a row for each component or cluster, as a dict of columns."""
    n_rows = len(profiles.weights) - 1
    out = {profiles.kind: list(range(n_rows)), "weight": profiles.weights[:n_rows].tolist()}
    for j, name in enumerate(unique_names(profiles.columns)):
        out[name] = [_summarise(profiles.estimates[k, j]) for k in range(n_rows)]
    return out


def _summarise(cell):
    """Return the most probable category of a cell, or the value of its main estimate."""
    main = _find_main_estimate(cell)
    return main.category if _is_category(cell) else main.value


def _is_category(cell):
    """Return whether a cell has probabilities of several categories.

    Shares of rows, such as the share observed, do not count.
    """
    n_parameters = sum(not estimate.quantity.startswith("share ") for estimate in cell)
    return _find_main_estimate(cell).quantity == "probability" and n_parameters > 1


def _find_main_estimate(cell):
    """Return the estimate that summarises a cell.

    It is the mean, the median, the rate, the probability of the value 1, or the probability of the
    most probable category; for a cell without any of these, it is the standard deviation.
    """
    candidates = [each for each in cell if each.quantity in _MAIN_QUANTITIES]
    quantity = min((each.quantity for each in candidates), key=_MAIN_QUANTITIES.index)
    of_quantity = [each for each in candidates if each.quantity == quantity]
    return max(of_quantity, key=lambda each: each.value)


def _find_same_parameter(cell, estimate):
    """Return the value that a cell has for the parameter of ``estimate``."""
    return next(each.value for each in cell if each[:2] == estimate[:2])


def _average_cells(cells, weights):
    """Return the estimates of a column for all rows: averages of its cells over components.

    Standard deviations are roots of averaged squares.
    """
    powers = {spread: 2.0 for _, spread, _ in _CENTRES_AND_SPREADS}
    sums = {}
    for weight, cell in zip(weights, cells, strict=True):
        for quantity, category, value in cell:
            parameter = quantity, category
            term = weight * value ** powers.get(quantity, 1.0)
            sums[parameter] = sums.get(parameter, 0.0) + term
    return [
        Estimate(quantity, category, total ** (1.0 / powers.get(quantity, 1.0)))
        for (quantity, category), total in sums.items()
    ]


def _compute_rounding_step(cells):
    """Return a third of the median of the standard deviations of a column's cells."""
    # A cell with a rate has the root of the rate as its standard deviation. For a cell with a
    # median, a third of the median takes its place. Other quantities do not count.
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
    """Return a number as short text.

    It is rounded to a multiple of the largest power of ten that does not exceed the step.
    """
    decimals = -int(np.floor(np.log10(step))) if step > 0.0 else 2
    if decimals > 4 or abs(value) >= 1e6:
        return f"{value:.2g}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
    text = f"{round(value, decimals):.{max(decimals, 0)}f}"
    return text.removeprefix("-") if float(text) == 0.0 else text
