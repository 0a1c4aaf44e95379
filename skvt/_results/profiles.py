"""Profiles of components or clusters: short summaries of the table of ``describe``.

The table has a row for each component and parameter. A *cell* is the list of the estimates that a
component has for the parameters of one column. Sentences, wide tables and displays show cells.
"""

from collections import Counter
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from skvt.models.mixture import have_large_shares

# Maximum number of columns that a sentence names, and their minimum relevance in nats per row.
MAX_COLUMNS = 4
MIN_RELEVANCE = 0.02
# A component with a small share and fewer rows than this is marked as small. The half-width of the
# 95 % interval of a share of one half, 0.98 / sqrt(n), is 0.22 for n = 20 rows.
MIN_ROWS_OF_GROUP = 20
SMALL_NOTE = "small: may be unusual rows rather than a group"
# The quantities that are the centre and the spread of a column, and the function that maps the
# centre to the scale on which the column is normal.
_CENTRES_AND_SPREADS = (
    ("mean", "standard deviation", np.asarray),
    ("median", "standard deviation of logarithm", np.log),
)
# The scale on which a quantity is averaged over components, as a pair: the function to the scale,
# and its inverse. Quantities that are not in _SCALES are averaged without a change of scale.
_IDENTITY_SCALE = (float, float)
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
    """The table of ``describe``, arranged by component or cluster and by column.

    Indices 0 to K - 1 stand for the K components or clusters, and index K stands for all rows of
    the data.
    """

    # "component" or "cluster".
    kind: str
    # Names that the user gave to the K clusters; None for a cluster or component without a name.
    labels: list
    # (block, name) of each column.
    columns: list
    # (K + 1,): weights; the last is 1.
    weights: np.ndarray
    # (K + 1, n_columns): relevance in nats per row; the last row is the weighted mean.
    relevance: np.ndarray
    # The text of each cell by the indices (component, column): a tuple of a category and its
    # probability, or of a number and the share at the point mass, if the column has one.
    cells: dict
    # The list of `Estimate` of each cell by the indices (component, column).
    estimates: dict
    # By the indices (component, column): "centre" or "spread", whichever distinguishes the
    # component more in this column; None if not known. There are no entries for all rows.
    differs_in: dict


def make_profiles(table):
    """Return the profiles of the table of ``describe``, a data frame or a dict of lists."""
    kind = "cluster" if "cluster" in table else "component"
    # The index of each column by (block, name), and the weight of each component by its index.
    column_numbers, weight_of = {}, {}
    # The relevance, the cell and the value of "differs_in" by the indices (component, column).
    relevance_of, estimates, differs_in = {}, {}, {}
    headers = (kind, "weight", "block", "column", "relevance", "quantity", "category", "estimate")
    table_columns = [list(table[header]) for header in headers]
    # A table made by hand may lack the column "differs_in".
    parts = table["differs_in"] if "differs_in" in table else [None] * len(table_columns[0])
    # ``fields`` are the quantity, the category and the estimate.
    for k, weight, block, name, nats, *fields, part in zip(*table_columns, parts, strict=True):
        # A column that occurs for the first time gets the next index.
        cell_index = k, column_numbers.setdefault((block, name), len(column_numbers))
        weight_of[k] = weight
        relevance_of.setdefault(cell_index, nats)
        differs_in[cell_index] = part
        estimates.setdefault(cell_index, []).append(Estimate(*fields))
    for cell in estimates.values():
        for point_mass, _ in _list_point_masses(cell):
            # The rate of a hurdle is that of counts minus the first count above the point mass.
            first = float(point_mass) + 1.0
            cell[:] = (e._replace(value=e.value + first * (e.quantity == "rate")) for e in cell)
    weights = np.array([weight_of[k] for k in sorted(weight_of)])
    label_of = dict(zip(table[kind], table["label"], strict=True)) if "label" in table else {}
    labels = [label_of.get(k) for k in range(len(weights))]
    # A cluster without a name is called by its number in the table.
    labels = [None if label == f"{kind} {k}" else label for k, label in enumerate(labels)]
    relevance = np.zeros((len(weights), len(column_numbers)))
    for cell_index, nats in relevance_of.items():
        relevance[cell_index] = nats
    # Add the cells of all rows, and make the text of each cell.
    cells = {}
    n_components = all_rows = len(weights)
    for j in column_numbers.values():
        component_cells = [estimates[k, j] for k in range(n_components)]
        estimates[all_rows, j] = _average_cells(component_cells, weights / weights.sum())
        rounding_step = _compute_rounding_step(component_cells)
        for k in range(all_rows + 1):
            cells[k, j] = _make_text_parts(estimates[k, j], rounding_step)
    relevance = np.vstack([relevance, weights @ relevance / weights.sum()])
    weights = np.append(weights, 1.0)
    columns = list(column_numbers)
    return Profiles(kind, labels, columns, weights, relevance, cells, estimates, differs_in)


def name_groups(profiles):
    """Return the names of components or clusters, such as "cluster 0" or "cluster 0, young"."""
    return [
        f"{profiles.kind} {k}" + (f", {label}" if label else "")
        for k, label in enumerate(profiles.labels)
    ]


def find_parts_that_differ(marginals, weights):
    """Find whether centre or spread differs more from the average component, in each column.

    The Kullback-Leibler divergence of the component's normal from the normal of the average
    component is a sum of two parts, one for the centre and one for the spread. The larger part
    decides. The mean and the variance of the average component are weighted averages over
    components with many rows.

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
    marginals_by_quantity = {marginal.quantity: marginal for marginal in marginals}
    weights = weights * have_large_shares(weights)
    for centre_name, spread_name, to_normal in _CENTRES_AND_SPREADS:
        if not {centre_name, spread_name} <= marginals_by_quantity.keys():
            continue
        centres, spreads = marginals_by_quantity[centre_name], marginals_by_quantity[spread_name]
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


def write_sentences(profiles, n_rows, max_columns=MAX_COLUMNS):
    """Return a sentence for each component or cluster, with its share and distinctive columns.

    ``n_rows`` (K,) are the expected numbers of rows. A sentence names at most ``max_columns``
    columns, the most relevant first. Components of less than half a row and half a percent, which
    structured inference keeps, have one sentence together.
    """
    weights = profiles.weights[:-1]
    are_small = find_small_groups(weights, n_rows)
    notes = [f"; {SMALL_NOTE}, see unusual_rows" if is_small else "" for is_small in are_small]
    parts = (
        name_groups(profiles),
        describe_sizes(weights, n_rows, unit=" of rows"),
        notes,
        list_distinctive_columns(profiles, max_columns),
    )
    are_empty = (np.rint(n_rows) == 0) & (weights < 0.005)
    sentences = [
        f"{name} ({size}{note}): {text}"
        for is_empty, name, size, note, text in zip(are_empty, *parts, strict=True)
        if not is_empty
    ]
    n_empty = int(are_empty.sum())
    plural = "s" * (n_empty > 1)
    return sentences + [f"{n_empty} {profiles.kind}{plural} without rows"] * bool(n_empty)


def explain_columns(table):
    """Return sentences on the given and on the ordinal columns of a :class:`Table`, if any."""
    given, ordinal = (
        ", ".join(str(table.names[j]) for j in positions)
        for positions in (table.given_positions, table.ordinal_positions)
    )
    sentences = {
        f"The columns are explained by the given columns {given}. Means and medians are those at "
        "the means of the given columns, and other values are averages over rows.": given,
        f"Numbers of the ordinal columns {ordinal} are on a latent scale, which rises with the "
        "levels. pandas.crosstab of such a column and predict shows the levels.": ordinal,
    }
    return [sentence for sentence, names in sentences.items() if names]


def list_distinctive_columns(profiles, max_columns=MAX_COLUMNS):
    """Return, for each component or cluster, its most relevant columns with their values in words.

    A text names at most ``max_columns`` columns. If texts would be equal, they name one more column
    that tells them apart, if there is one.
    """
    # The last row is that of all rows of the data.
    relevance = profiles.relevance[:-1]
    order = np.argsort(-relevance, axis=1, kind="stable")[:, :max_columns].tolist()
    shown = [[j for j in row if relevance[k, j] >= MIN_RELEVANCE] for k, row in enumerate(order)]
    texts = [_describe_columns(profiles, k, columns) for k, columns in enumerate(shown)]
    for equal_text in [text for text, count in Counter(texts).items() if count > 1]:
        equal = [k for k, text in enumerate(texts) if text == equal_text]
        others = np.setdiff1d(np.arange(len(profiles.columns)), shown[equal[0]]).tolist()
        if shown[equal[0]] and others:
            j = max(others, key=lambda j: _compute_contrast(profiles, equal, j))
            longer_texts = [_describe_columns(profiles, k, [*shown[k], j]) for k in equal]
            if len(set(longer_texts)) > 1:
                for k, text in zip(equal, longer_texts, strict=True):
                    texts[k] = text
    return texts


def _describe_columns(profiles, k, columns):
    """Describe columns in component k, by their indices."""
    phrases = ", ".join(_describe_column(profiles, k, j) for j in columns)
    return phrases or "no column sets it apart"


def _compute_contrast(profiles, components, j):
    """Return how well column j distinguishes some components from each other, from 0 on.

    The result is the largest difference of their probabilities, or of their means divided by the
    range of the means of all components, times the mean relevance of the column.
    """
    cells = [profiles.estimates[k, j] for k in range(len(profiles.weights) - 1)]
    main = _find_main_estimate(cells[components[0]])
    contrasts = []
    for estimate in cells[components[0]]:
        if estimate.quantity == main.quantity:
            values = np.array([_find_same_parameter(cell, estimate) for cell in cells])
            largest = 1.0 if main.quantity == "probability" else np.ptp(values)
            # If all components have the same value, the quotient is 0 / 1.
            contrasts.append(np.ptp(values[components]) / (largest or 1.0))
    return max(contrasts) * profiles.relevance[-1, j]


def format_share(share, n_decimals=0):
    """Return a share as a percentage, such as "12%". A positive share never becomes "0%".

    It becomes "<1%" instead, or "<0.1%" with one decimal.
    """
    text = f"{share:.{n_decimals}%}"
    if share > 0.0 and text == f"{0.0:.{n_decimals}%}":
        return f"<{0.01 / 10**n_decimals:.{n_decimals}%}"
    return text


def describe_sizes(weights, n_rows, n_decimals=0, unit=""):
    """Return the share of each component or cluster as text, with its number of rows if it is low.

    The number says what is behind a share of "<1%". ``weights`` (K,) are the shares, ``n_rows``
    (K,) the numbers of rows, and ``unit`` follows the percentage.
    """
    counts = np.rint(n_rows).astype(int).tolist()
    return [
        format_share(weight, n_decimals)
        + unit
        + ("" if is_large else f", {n:,} row{'s' * (n != 1)}")
        for weight, n, is_large in zip(weights, counts, have_large_shares(weights), strict=True)
    ]


def find_small_groups(weights, n_rows):
    """Return whether a component or cluster may consist of unusual rows, (K,).

    It then has fewer than MIN_ROWS_OF_GROUP rows, but at least one, and a small share.
    :func:`skvt.unusual_rows` leaves such a component out of the densities that score rows.
    """
    n_rows = np.rint(n_rows)
    return ~have_large_shares(weights) & (n_rows > 0) & (n_rows < MIN_ROWS_OF_GROUP)


def _describe_column(profiles, k, j):
    """Describe column j in component k by its value, with the value in all rows in parentheses."""
    all_rows = len(profiles.weights) - 1
    _, name = profiles.columns[j]
    # A column without a name has its position in place of the name.
    name = f"column {name}" if isinstance(name, Integral) else name
    cell, cell_of_all = profiles.estimates[k, j], profiles.estimates[all_rows, j]
    main = _find_main_estimate(cell)
    if _is_category(cell):
        distinctive = _find_distinctive_category(cell, cell_of_all)
        verb = "is" if distinctive is main else "is more often"
        share, share_of_all = (
            format_share(share)
            for share in (distinctive.value, _find_same_parameter(cell_of_all, distinctive))
        )
        category = _format_category(distinctive.category)
        return f"{name} {verb} {category} ({share}; all {share_of_all})"
    if main.quantity == "probability":
        share_of_all = format_share(_find_same_parameter(cell_of_all, main))
        return f"{name} {format_share(main.value)} (all {share_of_all})"
    (number_text, *_), (number_text_of_all, *_) = profiles.cells[k, j], profiles.cells[all_rows, j]
    text = f"{number_text} (all {number_text_of_all})"
    if profiles.differs_in.get((k, j)) == "spread":
        deviation, average = _find_deviation(cell), _find_deviation(cell_of_all)
        if deviation.quantity == "standard deviation of logarithm":
            factors = [f"{np.exp(spread.value):.3g}" for spread in (deviation, average)]
            spread, average = f"typically within a factor of {factors[0]}", factors[1]
        else:
            # Two digits, such as 150, of which %.2g would make 1.5e+02.
            numbers = [_format_number(e.value, e.value / 10.0) for e in (deviation, average)]
            spread, average = f"with {deviation.quantity} {numbers[0]}", numbers[1]
        text = f"{number_text}, {spread} (average {profiles.kind}: {average})"
    for (share, adjective), (share_of_all, _) in zip(
        _describe_point_masses(cell), _describe_point_masses(cell_of_all), strict=True
    ):
        text = f"{share} {adjective} (all {share_of_all}), otherwise {text}"
    return f"{name} {text}"


def _list_point_masses(cell):
    """Return a list of the point mass of a cell, as text, and the share of all other values.

    The list is empty if the cell has no point mass.
    """
    # A quantity such as "share not 0" is the share of values that are not at a point mass.
    values = [(e.quantity.partition("share not ")[2], e.value) for e in cell]
    return [(point_mass, share) for point_mass, share in values if point_mass]


def _describe_point_masses(cell):
    """Return a list of the share of values at the point mass of a cell, and words for this value.

    The list is empty if the cell has no point mass.
    """
    return [
        (format_share(1.0 - share), "zero" if point_mass == "0" else f"equal to {point_mass}")
        for point_mass, share in _list_point_masses(cell)
    ]


def find_directions(profiles):
    """Return the sign of the difference between each cell and the cell of all rows.

    The result is (K + 1, n_columns): 1 if the value of a cell is higher than the value in all rows,
    and -1 if it is lower. The value of a cell is its main estimate, see `_find_main_estimate`, or
    the mean of this and the values at a point mass.
    """
    all_rows = len(profiles.weights) - 1
    signs = np.zeros(profiles.relevance.shape)
    for (k, j), cell in profiles.estimates.items():
        main_estimate = _find_main_estimate(cell)
        value, value_of_all = (
            _include_point_masses(_find_same_parameter(estimates, main_estimate), estimates)
            for estimates in (cell, profiles.estimates[all_rows, j])
        )
        signs[k, j] = np.sign(value - value_of_all)
    return signs


def _include_point_masses(value, cell):
    """Return the mean of all values of a cell; ``value`` is the mean of those at no point mass."""
    for point_mass, share in _list_point_masses(cell):
        value = share * value + (1.0 - share) * float(point_mass)
    return value


def find_relevant_columns(relevance, mean_relevance, max_columns):
    """Return the indices of the most relevant columns, those of largest mean relevance first.

    The ``max_columns`` columns are the most relevant column of each component, then the second of
    each, and so on, so that small components have theirs. None stands for all columns.

    Parameters
    ----------
    relevance : ndarray of shape (n_components, n_columns)
        Relevance in nats per row. Columns below MIN_RELEVANCE in all components come last.
    mean_relevance : ndarray of shape (n_columns,)
        Mean relevance over all rows.
    max_columns : int or None
        Maximum number of columns.

    Returns
    -------
    list of int
    """
    # The rank of a column in each component, 0 for the most relevant one.
    ranks = np.argsort(np.argsort(-relevance, axis=1, kind="stable"), axis=1)
    ranks = np.where(relevance >= MIN_RELEVANCE, ranks, ranks.shape[1]).min(axis=0)
    selected = np.sort(np.lexsort((-mean_relevance, ranks))[:max_columns])
    return selected[np.argsort(-mean_relevance[selected], kind="stable")].tolist()


def _find_deviation(cell):
    """Return the estimate of the standard deviation in a cell."""
    return next(e for e in cell if e.quantity.startswith("standard deviation"))


def make_unique_names(columns, reserved=()):
    """Return the names of ``columns``, a list of (block, name), without duplicates.

    A name that several blocks have, or that is one of the ``reserved`` names, is preceded by the
    block.
    """
    names = [*reserved, *(name for _, name in columns)]
    return [name if names.count(name) == 1 else f"{block}: {name}" for block, name in columns]


def make_wide_table(profiles):
    """Return a table with a row for each component or cluster, as a dict of columns.

    It has a column for each column of the data, with the value that summarises each cell, and one
    for each share, such as that of the values that are not at a point mass.
    """
    weights = profiles.weights[:-1].tolist()
    table = {profiles.kind: list(range(len(weights)))}
    if any(profiles.labels):
        table["label"] = [label or f"cluster {k}" for k, label in enumerate(profiles.labels)]
    table["weight"] = weights
    for j, name in enumerate(make_unique_names(profiles.columns, list(table))):
        cells = [profiles.estimates[k, j] for k in range(len(weights))]
        table[name] = [_summarise_cell(cell) for cell in cells]
        for share in cells[0]:
            if share.quantity.startswith("share "):
                shares = [_find_same_parameter(cell, share) for cell in cells]
                table[f"{name}: {share.quantity}"] = shares
    return table


def _summarise_cell(cell):
    """Return the most probable category of a cell, or the value of its main estimate."""
    main_estimate = _find_main_estimate(cell)
    return main_estimate.category if _is_category(cell) else main_estimate.value


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
    present_quantities = {estimate.quantity for estimate in cell}
    quantity = next(quantity for quantity in _MAIN_QUANTITIES if quantity in present_quantities)
    candidates = [estimate for estimate in cell if estimate.quantity == quantity]
    return max(candidates, key=lambda estimate: estimate.value)


def _find_distinctive_category(cell, cell_of_all):
    """Return the estimate of the most probable category of a cell if it is rarer in all rows.

    Otherwise return the estimate of the category whose probability exceeds that in all rows most.
    """
    main = _find_main_estimate(cell)
    excesses = {
        estimate: estimate.value - _find_same_parameter(cell_of_all, estimate)
        for estimate in cell
        if estimate.quantity == main.quantity
    }
    # Shares are shown as whole percentages.
    return main if round(excesses[main], 2) > 0.0 else max(excesses, key=excesses.get)


def _find_same_parameter(cell, estimate):
    """Return the value that a cell has for the quantity and category of ``estimate``."""
    parameter = estimate.quantity, estimate.category
    return next(e.value for e in cell if (e.quantity, e.category) == parameter)


def _average_cells(cells, weights):
    """Return the cell of a column for all rows, from its cells in the components.

    Each estimate is an average over components, with the ``weights`` of the components. Medians are
    averaged as logarithms, and standard deviations as squares. A parameter of the values that are
    observed and not at a point mass is averaged over these values: the weight of a component is
    multiplied by its share of such values.
    """
    # The sum of weighted values and the sum of weights, by parameter.
    sums_by_parameter = {}
    for weight, cell in zip(weights, cells, strict=True):
        shares = [estimate.value for estimate in cell if estimate.quantity.startswith("share ")]
        for quantity, category, value in cell:
            share_of_values = 1.0 if quantity.startswith("share ") else np.prod(shares)
            to_scale, _ = _SCALES.get(quantity, _IDENTITY_SCALE)
            parameter = quantity, category
            weighted_terms = weight * share_of_values * np.array([to_scale(value), 1])
            sums_by_parameter[parameter] = sums_by_parameter.get(parameter, 0.0) + weighted_terms
    averages = []
    for (quantity, category), (weighted_sum, weight) in sums_by_parameter.items():
        _, from_scale = _SCALES.get(quantity, _IDENTITY_SCALE)
        averages.append(Estimate(quantity, category, float(from_scale(weighted_sum / weight))))
    return averages


def _compute_rounding_step(cells):
    """Return the step to which the numbers of a column are rounded, from its cells.

    The step is a third of the median of the standard deviations of the cells. It is 0 if the column
    has no numbers.
    """
    # The standard deviation of a count is the root of its rate, but a rate for a large exposure is
    # far below 1 and has a smaller one: the rate itself is the limit. A column in logarithms counts
    # as if its standard deviation were a third of the median.
    spread_functions = {
        "standard deviation": float,
        "rate": lambda value: min(value, np.sqrt(value)),
        "median": lambda value: value / 3.0,
    }
    spreads = [
        spread_functions[quantity](value)
        for cell in cells
        for quantity, _, value in cell
        if quantity in spread_functions
    ]
    return np.median(spreads) / 3.0 if spreads else 0.0


def _make_text_parts(cell, rounding_step):
    """Return the text of a cell in parts.

    The parts are a category and its probability, or a number and the share at the point mass.
    """
    quantity, category, value = _find_main_estimate(cell)
    if quantity == "probability":
        probability = f"{value:.2f}" if value >= 0.005 else f"{value:.1g}"
        return (_format_category(category), probability) if _is_category(cell) else (probability,)
    if quantity == "median":
        # A small amount is not rounded to the step of large amounts.
        rounding_step = min(rounding_step, value / 9.0)
    number = _format_number(value, rounding_step)
    number = "±" + number if quantity == "standard deviation" else number
    return number, *(f"({share} {adjective})" for share, adjective in _describe_point_masses(cell))


def _format_category(category):
    """Return a category as text, a whole number without decimals.

    A column of whole numbers in which values are missing has floating-point numbers, such as 2.0.
    """
    is_whole = isinstance(category, float) and category.is_integer()
    return f"{category:.0f}" if is_whole else str(category)


def _format_number(value, step):
    """Return a number as short text, rounded to the largest power of ten up to ``step``.

    If ``step`` is 0, the number has two decimals.
    """
    decimals = -int(np.floor(np.log10(step))) if step > 0.0 else 2
    if decimals > 4 or abs(value) >= 1e6:
        # Write 1e5 in place of 1e+05.
        return f"{value:.2g}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
    text = f"{round(value, decimals):.{max(decimals, 0)}f}"
    # Write 0 in place of -0.
    return text.removeprefix("-") if float(text) == 0.0 else text
