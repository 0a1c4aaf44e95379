"""Do rows with errors rank among the most unusual rows, compared with other detectors?

The tables are iris, wine, breast cancer and diabetes of scikit-learn, two drawn tables of four
clusters with numbers, categories and counts, and a drawn table of 200 columns. One of twenty rows
has errors:

- ``shuffled``: all values are replaced by values of other rows, column by column;
- ``slips``: one number is moved by four standard deviations, or a whole number to more than the
  largest of the column;
- ``missing``: as ``shuffled``, and a quarter of all values of the table are missing at random.

A detector sees the whole table without knowing the errors. Isolation forest and local outlier
factor get indicators of categories, standardised columns, and medians in place of missing values.
The measure is the AUC of the rows with errors.
"""

import warnings

import numpy as np
import pandas as pd
from _common import format_mean, parser, print_header, print_progress, print_table
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from sklearn.ensemble import IsolationForest
from sklearn.impute import SimpleImputer
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skvt import MemoizedDPMixture, unusual_rows

ERRORS = "shuffled", "slips", "missing"


def drawn(seed, n=600):
    """Draw a table of four clusters with correlated numbers, categories and counts."""
    rng = np.random.default_rng(seed)
    # The cluster of each row.
    z = rng.integers(4, size=n)
    numbers = 3.0 * rng.normal(size=(4, 4))[z]
    numbers += 0.5 * rng.normal(size=(n, 4)) @ rng.normal(size=(4, 4))
    shares = rng.dirichlet(np.full(5, 0.4), size=(4, 3))
    codes = np.array([[rng.choice(5, p=shares[k, j]) for j in range(3)] for k in z])
    counts = rng.poisson(rng.gamma(2.0, 3.0, size=(4, 2))[z])
    columns = {f"number {j}": numbers[:, j] for j in range(4)}
    columns |= {f"category {j}": np.array(list("abcde"))[codes[:, j]] for j in range(3)}
    return pd.DataFrame(columns | {f"count {j}": counts[:, j] for j in range(2)})


def wide(seed, n=400, d=200):
    """Draw a table of four clusters that differ in about a third of many columns."""
    rng = np.random.default_rng(seed)
    means = 2.0 * rng.normal(size=(4, d)) * (rng.random(d) < 0.3)
    numbers = means[rng.integers(4, size=n)] + rng.normal(size=(n, d))
    return pd.DataFrame(numbers).add_prefix("number ")


TABLES = {
    "iris": lambda: load_iris(as_frame=True).data,
    "wine": lambda: load_wine(as_frame=True).data,
    "breast cancer": lambda: load_breast_cancer(as_frame=True).data,
    "diabetes": lambda: load_diabetes(as_frame=True).data,
    "drawn 0": lambda: drawn(0),
    "drawn 1": lambda: drawn(1),
    "wide": lambda: wide(0),
}


def with_errors(table, kind, rng):
    """Return the table with errors of a kind, and whether each row has errors."""
    table, n = table.copy(), len(table)
    rows = rng.choice(n, max(8, n // 20), replace=False)
    if kind == "slips":
        numbers = table.select_dtypes("number").columns
        for row in rows:
            column = rng.choice(numbers)
            values = table[column]
            if values.dtype.kind == "i":
                table.loc[row, column] = int(values.max() + 3.0 * values.std())
            else:
                table.loc[row, column] += rng.choice([-4.0, 4.0]) * values.std()
    else:
        for column in table:
            table.loc[rows, column] = table[column].to_numpy()[rng.integers(n, size=rows.size)]
    if kind == "missing":
        for column in table:
            kept = rng.random(n) >= 0.25
            is_text = not pd.api.types.is_numeric_dtype(table[column])
            values = table[column].astype(object if is_text else float)
            table[column] = values.where(kept, None if is_text else np.nan)
    return table, np.isin(np.arange(n), rows)


def detectors(table):
    """Return the scores of rows by detector, which are larger for more unusual rows."""
    prepare = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    X = prepare.fit_transform(pd.get_dummies(table).astype(float))
    mixture = MemoizedDPMixture(random_state=0).fit(table)
    report = unusual_rows(mixture, table, n=len(table))
    return {
        # The report has the most unusual row first.
        "unusual_rows": -np.argsort(report["row"].to_numpy()),
        "score_samples": -mixture.score_samples(table),
        "isolation forest": -IsolationForest(random_state=0).fit(X).score_samples(X),
        "local outlier factor": -LocalOutlierFactor().fit(X).negative_outlier_factor_,
    }


def main():
    p = parser(__doc__.splitlines()[0])
    p.add_argument("--seeds", type=int, default=3, help="draws of the errors")
    p.add_argument("--first-seed", type=int, default=2, help="the rule was chosen on seeds 0 and 1")
    p.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    args = p.parse_args()
    print_header(args)
    rows, wins, n_cases = [], 0, 0
    for kind in ERRORS:
        for name in args.tables:
            areas = {}
            for seed in range(args.first_seed, args.first_seed + args.seeds):
                table, has_error = with_errors(TABLES[name](), kind, np.random.default_rng(seed))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    for detector, score in detectors(table).items():
                        areas.setdefault(detector, []).append(roc_auc_score(has_error, score))
            means = {detector: np.mean(area) for detector, area in areas.items()}
            rivals = [means[name] for name in ("isolation forest", "local outlier factor")]
            wins += means["unusual_rows"] >= max(rivals)
            n_cases += 1
            print_progress(kind, name, {key: round(value, 3) for key, value in means.items()})
            rows.append([kind, name, *(format_mean(area, 3) for area in areas.values())])
    print_table(
        f"AUC of rows with errors, {args.seeds} draws; "
        f"unusual_rows is at least as good as both rivals in {wins} of {n_cases}",
        ["errors", "table", *areas],
        rows,
    )


if __name__ == "__main__":
    main()
