"""The report ``table_report_`` of an estimator: how each column of a table was read, and why."""

import narwhals.stable.v2 as nw
import numpy as np

# Reasons why a column was read as it was. A reason has at most 30 characters, so that pandas and
# polars print the column of reasons in full.
_LISTED = "listed in 'components'"
_NOT_LISTED = "not listed in 'components'"
_CONSTANT = "one value in all rows, or none"
# Reason by the kind of the finding on the column, see `skvt.readers._audit`. Braces stand for the
# detail of the finding.
_FINDINGS = {
    "date": "dates or times",
    "number as text": "numbers written as text",
    "spelling": "texts: one category?",
    "rare levels": "{}",
    "missing": "no value is observed",
    "constant": "one value: {}",
    "missing code": "{}: missing?",
    "identifier": "(nearly) all values differ",
    "one value": "{}: try Hurdle()",
    "of a total": "rises with the total of a row",
    "logarithms of counts": "logarithms of counts",
    "few values": "{}: try Categorical()",
    "code": "{}: or a code?",
    "piled up": "{}: an end of a scale?",
    "cube roots": "skewed: try cube roots",
    "overdispersed": "spread: try NegativeBinomial()",
    "repeated": "repeats {}",
    "same zeros": "zeros of another column",
    "unused": "{}: explains no column",
    "not positive": "has {}: no logarithms",
    "uniform": "evenly spread numbers",
    "not tied": "{}: are clusters matched?",
}


def make_table_report(table, priors):
    """Report how each column of a table was read, and why, in the order of the columns.

    Parameters
    ----------
    table : Table
        The table of the rows of ``fit``.
    priors : dict of dict
        The parameters of the priors by the name of the block, a group of columns that one component
        describes. The parameter "log" has the indices, within the block, of the columns whose
        logarithms are modelled.

    Returns
    -------
    data frame or dict of lists
        A data frame of polars if the rows of ``fit`` were a data frame of polars, otherwise a data
        frame of pandas. If the package cannot be imported, a dict with a list for each column of
        the report.
    """
    findings = {name: (kind, detail) for name, kind, detail in table.findings}
    columns = {"column": list(table.names), "read_as": [], "why": []}
    for j, name in enumerate(table.names):
        read_as, why = _explain_column(table, j, priors)
        if str(name) in findings:
            kind, detail = findings[str(name)]
            why = _FINDINGS[kind].format(detail.removesuffix(", left out"))
        columns["read_as"].append(read_as)
        columns["why"].append(why)
    try:
        container = "polars" if table.container == "polars" else "pandas"
        return nw.from_dict(columns, backend=container).to_native()
    except ImportError:
        return columns


def _explain_column(table, j, priors):
    """Return two strings: how the column at position j was read, and why."""
    # ``table.reasons`` is empty if the user has listed the components.
    for block in table.blocks:
        # i is the index of the column in its block.
        for i in np.flatnonzero(block.columns == j).tolist():
            why = table.reasons[j] if table.reasons else _LISTED
            return _describe_component(block, i, priors.get(block.name, {})), why
    for block in table.given:
        if j in block.columns:
            kind = "numbers" if block.categories is None else f"{block.sizes[0]} levels"
            return f"given, {kind}", "named in 'given'"
    return "left out", _CONSTANT if table.reasons else _NOT_LISTED


def _describe_component(block, i, prior):
    """Describe how a component reads column i of a block, such as "Gaussian of logarithm"."""
    spec, description = block.spec, type(block.spec).__name__
    # The exposure of counts is the last column of its block.
    if spec.reads_exposure and i == block.columns.size - 1:
        return f"exposure of {block.name!r}"
    if block.categories is not None:
        return f"{description}, {len(block.categories[i])} levels"
    if hasattr(spec, "at"):
        # The component is a Hurdle, whose parameter ``at`` has one point mass for all columns, or
        # one for each column.
        point_mass = np.broadcast_to(spec.at, block.columns.shape)[i]
        description += f" at {point_mass:g}, {type(spec.component).__name__}"
    if i in prior.get("log", ()):
        description += " of logarithm"
    if i in getattr(spec, "ordinal", ()):
        description += ", ordinal"
    return description
