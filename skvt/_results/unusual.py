"""Search for the rows that fit a mixture worst, and for the column that is at fault in each row.

:func:`unusual_rows` defines the score of a row. *Scored* columns are columns whose values may be
missing. In this module, ``joint`` (n_rows,) are the log densities of all scored columns of rows, in
nats. A *calibrated* score is a score minus the expected score of rows with the same missing values.
"""

from dataclasses import replace
from functools import partial, reduce

import numpy as np
import scipy.sparse as sp
from scipy.special import ndtr
from sklearn.pipeline import Pipeline

from skvt._results.profiles import MIN_ROWS_OF_GROUP
from skvt._results.topic_tables import import_pandas
from skvt._stages import begin_stage, reporting_stages
from skvt.expfam import RunningStats
from skvt.inference import Workers
from skvt.models.mixture import have_large_shares, number_distinct_rows
from skvt.readers.chunks import require_rows_in_memory
from skvt.readers.validation import require_positive_int
from skvt.rows import pieces
from skvt.ties import stable_order

# Factor of the sum of the columns' log densities in the score of a row.
INDEPENDENT_FACTOR = 1.0 / 3.0
# Maximum number of values of rows whose densities without one column are computed at once.
ENTRIES_AT_ONCE = 2**21
# Number of rows from which values are removed, to estimate how missing values change scores.
N_REMOVALS = 2000
# If the distance between two quantiles of scores is at most this share of their standard deviation,
# most rows have the same score, as in a table of a few categories.
_NEGLIGIBLE_SPREAD = 1e-6
# Columns of the report.
COLUMNS = "row", "column", "value", "expected", "score"


def unusual_rows(mixture, X, n=20, *, reference=None):
    """Find the rows that fit a mixture worst, and the column that is at fault in each row.

    Parameters
    ----------
    mixture : MemoizedDPMixture, MemoizedDPGMM or StructuredBernoulliMixture
        A fitted mixture.
    X : {array-like, data frame, sparse matrix} of shape (n_samples, n_features)
        Rows, such as those of ``fit``; values may be missing.
    n : int, default=20
        Number of rows to return.
    reference : array-like, data frame or sparse matrix, default=None
        Rows of the same columns with which the rows of X are compared; None for X itself. For new
        rows pass the rows of ``fit``, since scores of a few rows have no useful average. Each
        column that has values in X needs values here.

    Returns
    -------
    pandas.DataFrame
        The ``n`` most unusual rows, the most unusual first:

        - "row": position of the row in X.
        - "column": name of the column whose value fits the other values of the row worst. It is the
          position of this column if columns have no names, and None for a row without values.
        - "value": the value in this column.
        - "expected": the value that the other values of the row predict. It is the predictive mean
          of numbers and counts, and the most probable value of categories and binary columns.
        - "score": by how many nats the row is less probable than the average row of the
          reference. A row with a single improbable value may precede a row with a larger score,
          see Notes.

    Raises
    ------
    TypeError
        If the mixture is of another class, or X is a collection of Dask.
    ImportError
        If pandas is not installed.

    See Also
    --------
    skvt.MemoizedDPMixture.score_column : Log density of a column given the other values.

    Notes
    -----
    With the observed columns O of a row x, the score is

        sum_{j in O} log p(x_j) / 3 - log p(x_O) - b_O,

    where all densities are predictive. The first two terms are two thirds of the negative log
    density of the row plus a third of the log ratio of the density of independent columns to the
    density of the row. A rare category therefore counts less if it fits the other values.

    b_O is the expected score of rows with the same missing values. It is subtracted so that missing
    values do not make a row more or less unusual. b_O is a sum of a number for each missing value;
    these numbers are estimated from rows of the reference from which values are removed. The
    average score of the reference is 0.

    The column at fault has the largest ``(log p(x_j) + 2 m_j) / 3 - log p(x_j | other values)``,
    where m_j is the mean of log p(x_j) over the reference. Let f be this value, the largest of the
    d columns of the row. Rows are in descending order of ``max(z |z| / 2, f - log d)``, where z is
    the score minus the median of the reference, divided by the distance from this median to the
    quantile of a normal distribution at one standard deviation, or by the standard deviation if
    this distance is 0, as in tables of a few categories. Both terms approximate the negative log
    probability that an ordinary row is as unusual. The second term is larger for a row with a
    single error in a table of many columns, because the scores of all rows vary more if there are
    more columns.

    Components with fewer than 20 rows are left out if they have less than 5 % of the rows, or less
    than half of the mean share if that is less. Otherwise a component that consists of a few errors
    would make these errors look usual. Columns that are modelled in logarithms are scored by the
    density of the logarithm, so that amounts that are far too small do not look usual. With
    ``missing="informative"``, a mixture also models whether values are missing; this part of the
    model does not change the score. Densities of columns with a point mass, see
    :class:`~skvt.components.Hurdle`, are in units in which the mean log density of the other values
    is that of a standard normal distribution, so that the score does not depend on the unit.

    The cost is at most that of d + 2 log densities of each row, where d is the number of columns.
    Each value of a column is computed only once, so that columns of few values take less. After ten
    seconds without a line, progress is printed if ``verbose`` of the mixture is positive, and
    logged by the logger "skvt" at level INFO.

    Examples
    --------
    >>> import numpy as np
    >>> from skvt import MemoizedDPGMM, unusual_rows
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> X[:, 1] += X[:, 0]
    >>> X[7] = [2.0, -4.0]
    >>> unusual_rows(MemoizedDPGMM(random_state=0).fit(X), X, n=1)["row"].tolist()
    [7]
    """
    pandas = import_pandas("unusual_rows")
    require_describing_mixture(mixture, X, "unusual_rows")
    fitted = mixture._require_fitted()
    # A table without rows is refused before n, because callers pass n=len(X).
    table, encoded = mixture._columns, _encode(mixture, X)
    n = require_positive_int("n", n)
    # Put the rows of another reference before the rows of X.
    reference_rows = encoded[:0] if reference is None else _encode(mixture, reference)
    encoded, n_before = np.concatenate([reference_rows, encoded]), len(reference_rows)
    n_reference = n_before or len(encoded)
    columns = [int(j) for block in table.blocks for j in _find_scored_columns(block)]
    model, stats = _drop_small_components(fitted, columns)
    # By column, the point mass and the offset, see :func:`_find_offsets`.
    offsets = {}
    with reporting_stages(mixture.verbose), Workers(mixture.n_jobs) as workers:

        def log_density(rows, kept_columns):
            """Return log densities (n_rows,) of the kept and of all unscored columns."""
            hidden_columns = np.setdiff1d(columns, kept_columns)
            # Rows that differ only in hidden columns have the same density, computed once.
            first_rows, inverse = number_distinct_rows(np.delete(rows, hidden_columns, axis=1))
            visible_rows = rows[first_rows]
            visible_rows[:, hidden_columns] = np.nan
            log_densities = model.log_predictive(visible_rows, stats, workers.run)[inverse]
            return log_densities + _sum_offsets(rows, kept_columns, offsets)

        # Columns that must be complete are part of each density. Their log density is subtracted.
        unscored_density = log_density(encoded, kept_columns=[])
        # Log density of each scored column by itself, (n_rows, n_scored).
        densities = [log_density(encoded, [j]) for j in _report_columns(columns, "each column")]
        marginal = np.stack(densities, axis=1) - unscored_density[:, None]
        marginal[np.isnan(encoded[:, columns])] = np.nan
        offsets |= _find_offsets(table, columns, encoded[:n_reference], marginal[:n_reference])
        marginal += np.stack([_sum_offsets(encoded, [j], offsets) for j in columns], axis=1)

        def raw_scores(rows, joint, chosen_rows):
            """Return uncalibrated scores of the ``chosen_rows`` rows of X, given as ``rows``."""
            is_known = ~np.isnan(rows[:, columns])
            independent = np.where(is_known, marginal[chosen_rows], 0.0).sum(axis=1)
            return unscored_density[chosen_rows] - joint + INDEPENDENT_FACTOR * independent

        joint = log_density(encoded, columns)
        density = partial(log_density, kept_columns=columns)
        score = _calibrate_scores(encoded, n_reference, joint, density, raw_scores)
        means = _compute_column_means(marginal[:n_reference])
        rows = n_before + _select_candidates(score[n_before:], (means - marginal)[n_before:], n)
        # Find the column at fault in each row. The notes of the docstring have the formula.
        weighted = means + INDEPENDENT_FACTOR * (marginal[rows] - means)
        conditionals = _compute_conditionals(encoded[rows], joint[rows], columns, log_density)
        faults = np.nan_to_num(weighted - conditionals, nan=-np.inf)
        first = stable_order(-_compute_evidence(score[rows], score[:n_reference], faults))[:n]
        rows, faults = rows[first], faults[first]
        worst_rows = encoded[rows]
        at_fault = np.array(columns)[faults.argmax(axis=1)]
        # Predict the value of this column from the other values of the row.
        worst_rows[np.arange(len(rows)), at_fault] = np.nan
        expected = model.imputed(worst_rows, stats, workers.run)
    # Rows without values have no column at fault.
    at_fault = np.where(np.isfinite(faults).any(axis=1), at_fault, -1)
    table_rows = zip(rows - n_before, at_fault, expected, score[rows], strict=True)
    entries = [_describe_row(table, X, encoded[n_before:], *values) for values in table_rows]
    frame = pandas.DataFrame(entries, columns=COLUMNS, dtype=object)
    return frame.astype({"row": np.intp, "score": np.float64})


def _find_offsets(table, columns, rows, log_densities):
    """Return a dict of the point masses of columns, and of the offsets of their other values.

    An offset is added to log densities of values that are not at the point mass. Given that a value
    is not there, its mean log density becomes that of a standard normal distribution. Otherwise the
    unit of a column would decide whether its other values are less probable than those at the point
    mass. ``rows`` (n_rows, n_features) and ``log_densities`` (n_rows, n_scored) of the scored
    ``columns`` determine the mean.
    """
    offsets = {}
    for block in table.blocks:
        # Counts have probabilities, which do not depend on a unit.
        if not hasattr(block.spec, "at") or block.spec.encoding == "count":
            continue
        for j, at in zip(
            block.columns.tolist(), np.broadcast_to(block.spec.at, len(block.columns)), strict=True
        ):
            is_known = ~np.isnan(rows[:, j])
            is_other = is_known & (rows[:, j] != at)
            if is_other.any():
                share = is_other.sum() / is_known.sum()
                mean = log_densities[is_other, columns.index(j)].mean() - np.log(share)
                offsets[j] = at, -0.5 * np.log(2.0 * np.pi * np.e) - mean
    return offsets


def _sum_offsets(rows, kept_columns, offsets):
    """Return the sums (n_rows,) of the offsets of the values of the kept columns."""
    sums = np.zeros(len(rows))
    for j in offsets.keys() & set(kept_columns):
        at, offset = offsets[j]
        sums += np.where(np.isnan(rows[:, j]) | (rows[:, j] == at), 0.0, offset)
    return sums


def _describe_row(table, X, encoded, row, j, expected, score):
    """Return the entries of the report for a row of X with the column j at fault, -1 for none.

    ``encoded`` are the rows of X as numbers, ``expected`` (n_features,) are the values that the
    other values of the row predict, and ``score`` is the score of the row.
    """
    if j < 0:
        return row, None, None, None, score
    predicted = table.decode_column(j, expected[[j]])[0]
    return row, table.names[j], table.find_entry(X, encoded, row, j), predicted, score


def require_describing_mixture(mixture, X, caller):
    """Raise TypeError unless ``mixture`` is of a class that describes columns, and X is in memory.

    ``caller`` is the function that the user has called.
    """
    if not hasattr(type(mixture), "impute"):
        remedy = ""
        if isinstance(mixture, Pipeline):
            remedy = (
                f" Pass its last step and the rows that this step was fitted to: {caller}("
                "pipeline[-1], pipeline[:-1].transform(X))."
            )
        raise TypeError(
            f"{caller} takes a MemoizedDPMixture, MemoizedDPGMM or StructuredBernoulliMixture. "
            f"Got an object of type {type(mixture).__name__}.{remedy}"
        )
    require_rows_in_memory(X, caller)


def _compute_conditionals(rows, joint, columns, log_density):
    """Return the log density of each scored column given the others, (n_rows, n_scored).

    ``columns`` are the scored columns, and ``log_density(rows, columns)`` returns log densities of
    the columns.
    """
    n_columns = len(columns)
    log_densities = np.empty((len(rows), n_columns))
    for column_range in pieces(n_columns, max(1, ENTRIES_AT_ONCE // rows.size)):
        progress = f"{column_range.start} of {n_columns} done"
        begin_stage(f"unusual rows: computing densities of all columns but one, {progress}")
        # There is a copy of the rows for each column of the part, in which this column is missing.
        hidden = np.array(columns[column_range])
        incomplete_rows = np.repeat(rows[None], hidden.size, axis=0)
        incomplete_rows[np.arange(hidden.size), :, hidden] = np.nan
        others = log_density(incomplete_rows.reshape(-1, rows.shape[1]), columns)
        log_densities[:, column_range] = joint[:, None] - others.reshape(hidden.size, -1).T
    return log_densities


def _select_candidates(scores, surprises, n):
    """Return the sorted positions of the rows that can be among the n most unusual rows.

    These are the rows with the n largest ``scores`` (n_rows,), and the rows of the most improbable
    values. ``surprises`` (n_rows, n_scored) are NaN if the value is missing.
    """
    largest_surprises = np.nan_to_num(surprises, nan=-np.inf).max(axis=1)
    return np.union1d(*(stable_order(-v)[:n] for v in (scores, largest_surprises)))


def _compute_evidence(scores, reference_scores, faults):
    """Return how clearly each row is unusual, in nats, (n_rows,); the Notes have the formula.

    ``scores`` (n_rows,) are scores of rows, and ``faults`` (n_rows, n_scored) are the terms whose
    maximum is the column at fault. They are -inf if the value is missing.
    """
    median, upper = np.quantile(reference_scores, [0.5, ndtr(1.0)])
    spread, deviation = upper - median, reference_scores.std()
    if spread <= _NEGLIGIBLE_SPREAD * deviation:
        spread = deviation
    z = (scores - median) / (spread or 1.0)
    return np.maximum(z * abs(z) / 2.0, faults.max(axis=1) - np.log(faults.shape[1]))


def _report_columns(columns, name):
    """Yield the columns, and begin a stage of the search with each tenth of them.

    The stages say that densities of ``name`` are computed. They are reported as those of a fit.
    """
    n_columns = len(columns)
    for i, j in enumerate(columns):
        if i % max(1, n_columns // 10) == 0:
            begin_stage(f"unusual rows: computing densities of {name}, {i} of {n_columns} done")
        yield j


def _find_scored_columns(block):
    """Return the columns of a block whose values may be missing.

    The exposure of counts, which is the last column of its block, may not be missing.
    """
    if not block.spec.allows_missing:
        return []
    return block.columns[:-1] if block.spec.reads_exposure else block.columns


def _drop_small_components(fitted, columns):
    """Return the model and the statistics by which rows are scored.

    The statistics have only the components that sentences and reports do not mark as small. In the
    model, densities do not depend on whether values of the ``columns`` are missing. For a column in
    logarithms, the density is that of the logarithm, because the density of an amount is high near
    0, so that an amount that is far too small would look usual.
    """
    component = fitted.model.component.without_jacobian
    component = reduce(lambda part, j: part.without_indicator(j), columns, component)
    model, stats = replace(fitted.model, component=component), fitted.stats.as_stats()
    masses = fitted.model.component_masses(stats)
    is_group = have_large_shares(masses) | (np.rint(masses) >= MIN_ROWS_OF_GROUP)
    return model, RunningStats(tuple(array[is_group] for array in stats.arrays))


def _encode(mixture, X):
    """Return rows as an array of numbers and codes, with NaN for unseen categories."""
    require_rows_in_memory(X, "unusual_rows")
    encoded = mixture._read(X)
    encoded = encoded.toarray() if sp.issparse(encoded) else np.asarray(encoded)
    return mixture._columns.mark_unseen_as_missing(encoded)


def _calibrate_scores(rows, n_reference, joint, log_density, raw_scores):
    """Return the calibrated scores (n_rows,) of rows (n_rows, n_features).

    The first ``n_reference`` rows are the reference, with which all rows are compared.
    ``log_density(rows)`` returns the log densities of all scored columns, and ``raw_scores(rows,
    joint, chosen)`` returns uncalibrated scores of the ``chosen_rows`` rows from which values may
    be removed.

    Random pairs consist of a row and a row of the reference. The values that are missing in the
    first row are removed from the second row. Least squares estimate how much the removal of a
    value of each column changes a score.
    """
    is_missing = np.isnan(rows)
    score = raw_scores(rows, joint, slice(None))
    incomplete = np.flatnonzero(is_missing.any(axis=1))
    if incomplete.size:
        rng = np.random.default_rng(0)
        chosen_rows = rng.integers(n_reference, size=N_REMOVALS)
        is_removed = is_missing[rng.choice(incomplete, N_REMOVALS)] & ~is_missing[chosen_rows]
        reduced = np.where(is_removed, np.nan, rows[chosen_rows])
        changes = raw_scores(reduced, log_density(reduced), chosen_rows) - score[chosen_rows]
        # There is an equation for each pair. Additional equations, which set each effect to 0, are
        # a weak penalty: they determine the effects of columns of which values are hardly ever
        # removed.
        equations = np.vstack([is_removed, np.eye(rows.shape[1])])
        effects = np.linalg.lstsq(equations, np.append(changes, np.zeros(rows.shape[1])))[0]
        score = score - is_missing @ effects
    return score - score[:n_reference].mean()


def _compute_column_means(values):
    """Return the mean of the known values in each column, 0 for a column without known values."""
    is_known = ~np.isnan(values)
    return np.where(is_known, values, 0.0).sum(axis=0) / np.maximum(is_known.sum(axis=0), 1)
