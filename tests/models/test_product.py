"""Products of components are independent blocks of columns."""

import numpy as np
import pytest
import scipy.sparse as sp
from models._textbook import KINDS, with_gaps

from skvt._compiled import run_serially
from skvt.contracts import RowBatch
from skvt.models.mixture import Block, Mixture, Product, StickBreaking, make_gaussian_component
from skvt.models.mixture.components._full import full_features

NAMES = ("full", "categorical", "spherical", "Poisson", "Bernoulli")


def setup(names=NAMES, *, n=30, gaps=False, seed=0):
    """Return a product of two columns of each kind, rows with two more columns, and memberships."""
    rng = np.random.default_rng(seed)
    size = 2 * len(names) + 2
    order = rng.permutation(size)
    X = np.full((n, size), np.nan)
    blocks = []
    for place, name in enumerate(names):
        columns = order[2 * place : 2 * place + 2]
        X[:, columns] = KINDS[name].rows(n, 2, rng)
        blocks.append(Block(name, KINDS[name].make(2, np.dtype(np.float64)), columns))
    if gaps:  # The first block has no missing values.
        X[:, order[2:]] = with_gaps(X[:, order[2:]], rng)
    return Product(tuple(blocks), size, np.dtype(np.float64)), X, rng.dirichlet(np.ones(3), size=n)


def statistics(component, X, resp):
    return resp.T @ component.features(X)


@pytest.mark.parametrize("gaps", [False, True])
def test_densities_and_evidence_are_sums_over_blocks(gaps):
    product, X, resp = setup(gaps=gaps)
    sums = statistics(product, X, resp)
    lam = product.natural_parameters(sums)
    density = product.features(X) @ product.expected_table(lam).T
    predictive = product.log_predictive(X, lam)
    model = Mixture(StickBreaking(1.0), product)
    evidence = model.component.log_evidence(sums)
    by_block = product.block_evidence(sums)
    for b, (_, component, columns, _) in enumerate(product.blocks):
        own = statistics(component, X[:, columns], resp)
        own_lam = component.natural_parameters(own)
        density -= component.features(X[:, columns]) @ component.expected_table(own_lam).T
        predictive -= component.log_predictive(X[:, columns], own_lam)
        single = Mixture(StickBreaking(1.0), component)
        own_evidence = single.component.log_evidence(own)
        np.testing.assert_allclose(by_block[:, b], own_evidence, rtol=1e-12)
        evidence -= own_evidence
    for rest in (density, predictive, evidence):
        np.testing.assert_allclose(rest, 0.0, atol=1e-8)


def test_draws_and_imputed_values_come_from_the_blocks():
    product, X, resp = setup()
    lam = product.natural_parameters(statistics(product, X, resp))
    used = np.concatenate([block.columns for block in product.blocks])
    drawn = product.sample(lam[0], 7, np.random.default_rng(0))
    assert np.isfinite(drawn[:, used]).all()
    assert np.isnan(np.delete(drawn, used, axis=1)).all()
    holes = X.copy()
    columns = product.blocks[1].columns
    holes[::2, columns[1]] = np.nan
    memberships = np.random.default_rng(1).dirichlet(np.ones(3), size=len(X))
    expected = memberships @ product.column_probabilities(lam, int(columns[1]), X)
    filled = product.imputed(holes, lam, memberships)
    np.testing.assert_array_equal(filled[::2, columns[1]], expected[::2].argmax(axis=1))
    others = np.ones(X.shape, bool)
    others[::2, columns[1]] = False
    np.testing.assert_array_equal(filled[others], holes[others])


def test_features_are_sparse_if_a_block_needs_it():
    product, X, _ = setup(("multinomial", "Bernoulli"))
    X = np.nan_to_num(X)
    held = product.features(sp.csr_array(X))
    assert held.format == "csr"
    np.testing.assert_array_equal(held.toarray(), product.features(X))
    alone, X, _ = setup(("Bernoulli",))
    X = np.nan_to_num(X)
    np.testing.assert_array_equal(alone.features(sp.csr_array(X)), alone.features(X))
    assert product.sparse and not alone.sparse


def test_missing_values_of_several_blocks_are_independent():
    # Bounds, statistics and entropies of two blocks with full covariances add up.
    product, X, _ = setup(("full", "categorical", "zero-mean full"), seed=3)
    rng = np.random.default_rng(0)
    used = np.concatenate([block.columns for block in product.blocks])
    X[:, used] = with_gaps(X[:, used], rng)
    weights = rng.uniform(0.5, 2.0, len(X))
    resp = rng.dirichlet(np.ones(2), size=len(X))
    model = Mixture(StickBreaking(1.0), product)
    stats = model.make_local_result(RowBatch(X, weights, np.arange(len(X))), resp).stats
    table = product.expected_table(product.natural_parameters(stats.arrays[1]))
    batch = RowBatch(X, weights, np.arange(len(X)))
    for inv_temp in (1.0, 0.6):
        # The responsibilities of several components would make the blocks dependent.
        result = model.local_step(batch, (np.zeros(1), table[:1]), inv_temp, run_serially,
                                  with_energy=True)  # fmt: skip
        bound, entropy = np.zeros(len(X)), 0.0
        found = product.split_by_block(result.stats.arrays[1])
        tables = product.split_by_block(table[:1])
        for block, own, sums in zip(product.blocks, tables, found, strict=True):
            single = Mixture(StickBreaking(1.0), block.component)
            part = single.local_step(RowBatch(X[:, block.columns], weights, batch.rows),
                                     (np.zeros(1), own), inv_temp, run_serially)  # fmt: skip
            bound += part.bound
            entropy += 0.0 if part.hidden_entropy is None else part.hidden_entropy
            np.testing.assert_allclose(part.stats.arrays[1], sums, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(result.bound, bound, rtol=1e-12)
        np.testing.assert_allclose(result.hidden_entropy, entropy, rtol=1e-12)


def test_errors_of_a_block_name_it():
    product, X, resp = setup(("Bernoulli", "spherical", "full"))
    parts = product.split_by_block(statistics(product, X, resp))
    of_ones = product.blocks[1].component.features(np.array([[1.0, 1.0], [-1.0, -1.0]]))
    # The squares of the means exceed the sums of squares.
    bad = np.concatenate(
        [parts[0], parts[1] * np.where(np.ptp(of_ones, axis=0), 1e6, 1.0), parts[2]], 1
    )
    pairs = np.array([0]), np.array([1])
    for ask in (
        lambda: product.expected_table(product.natural_parameters(bad)),
        lambda: product.family.log_normalizer(product.natural_parameters(bad)),
        lambda: product.block_evidence(bad),
        lambda: product.merge_gains(bad, *pairs),
    ):
        with pytest.raises(ValueError, match="In the component 'spherical': The rate"):
            ask()


def test_blocks_of_many_columns_are_summed_without_features(monkeypatch):
    rng, D = np.random.default_rng(0), 33
    X, weighted = rng.normal(size=(20, D + 1)), rng.random((20, 3))
    parts = np.split(np.arange(D + 1), [D])
    components = [make_gaussian_component(X[:, c], np.ones(20), "full", False)[0] for c in parts]
    blocks = [
        Block(str(c.size), component, c) for component, c in zip(components, parts, strict=True)
    ]
    product = Product(tuple(blocks), D + 1, X.dtype)
    features = product.features(X)
    sums = weighted.T @ features
    table = product.expected_table(product.natural_parameters(sums)).T
    monkeypatch.setattr(
        "skvt.models.mixture.components._full.full_features",
        lambda X, *args, **kw: (
            full_features(X, *args, **kw) if X.shape[1] == 1 else pytest.fail("features")
        ),
    )
    logits, sums_of = product.log_densities_and_sums(X, table)
    np.testing.assert_allclose(logits, features @ table, rtol=1e-9)
    for got in (sums_of(weighted), product.weighted_sums(X, weighted)):
        np.testing.assert_allclose(got, sums, rtol=1e-9, atol=1e-12)
