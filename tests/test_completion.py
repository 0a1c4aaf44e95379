"""The split of a document into observed and held-out tokens depends only on its counts."""

import numpy as np
import scipy.sparse as sp

from skvt._results.completion import hash_contents


def test_rows_have_equal_keys_if_and_only_if_they_are_equal():
    rows = np.array(
        [[1.0, 0.0, 2.0], [2.0, 0.0, 1.0], [1.0, 2.0, 0.0], [1.0, 0.0, 3.0], [1.0, 0.0, 2.25],
         [1.0, 0.0, 2.5], [0.0, 0.0, 0.0], [1.0, 0.0, 1e30]]
    )  # fmt: skip
    keys = hash_contents(sp.csr_array(rows))
    assert np.unique(keys).size == len(rows)
    # The key does not depend on the place of the row and the order of its entries.
    other = sp.csr_array((rows[0, [2, 0]], [2, 0], [0, 0, 2]), shape=(2, 3))
    assert hash_contents(other)[1] == keys[0]
    assert hash_contents(other)[0] == keys[6]
