"""StructuredLDA heats a fit by default if the prior of its topics is sparse."""

import numpy as np
import pytest
from estimators._registry import counts

from skvt import StructuredLDA
from skvt.temperature import LinearAnnealing


def quick(local, step, **params):
    params = {"n_components": 3, "max_iter": 4, "batch_size": 8, "random_state": 0} | params
    return StructuredLDA(local_step=local, global_step=step, **params)


@pytest.mark.parametrize(
    ("prior", "hottest"), [
        (0.001, 1.5), (0.02, 1.5), (0.02 * 5**0.5, 1.25), (0.1, 1.0), (3.0, 1.0), ("auto", 1.5),
    ],
)  # fmt: skip
def test_the_default_heat_depends_on_the_prior_of_the_topics(prior, hottest):
    X, params = counts(n_rows=60), {"topic_word_prior": prior, "moves": ()}
    by_name = quick("gibbs", "ssvi-a", **params).fit(X)
    third = by_name.max_iter / 3.0
    policy = LinearAnnealing(initial_temperature=hottest, n_passes=third, replication=1.0)
    explicit = quick("gibbs", "ssvi-a", temperature=policy, **params).fit(X)
    np.testing.assert_allclose(by_name.history_["temperature"], explicit.history_["temperature"])
    plain = quick("gibbs", "ssvi-a", temperature=None, **params).fit(X)
    assert (hottest == 1.0) == np.array_equal(by_name.components_, plain.components_)
