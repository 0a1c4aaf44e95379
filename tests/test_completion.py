"""Splits of documents into observed and held-out tokens: by what a row holds and nothing else."""

import numpy as np
import scipy.sparse as sp

from skvt._results.completion import hash_contents


def test_rows_have_the_same_key_if_and_only_if_they_hold_the_same():
    rows = np.array(
        [[1.0, 0.0, 2.0], [2.0, 0.0, 1.0], [1.0, 2.0, 0.0], [1.0, 0.0, 3.0], [1.0, 0.0, 2.25],
         [1.0, 0.0, 2.5], [0.0, 0.0, 0.0], [1.0, 0.0, 1e30]]
    )  # fmt: skip
    keys = hash_contents(sp.csr_array(rows))
    assert np.unique(keys).size == len(rows)
    # wherever the row stands, and in whatever order its entries are
    other = sp.csr_array((rows[0, [2, 0]], [2, 0], [0, 0, 2]), shape=(2, 3))
    assert hash_contents(other)[1] == keys[0]
    assert hash_contents(other)[0] == keys[6]
