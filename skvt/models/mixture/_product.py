"""Components for rows with several kinds of columns, such as numbers and categories.

Columns of one kind form a block, and blocks are independent given the component of the row. The
log density of a row is therefore the sum of the log densities of its blocks. A :class:`Product`
calls the component of each block with the columns of the block and with the block's part of the
statistics, which are sums of features of rows.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from skvt.contracts import Completion, Component, HiddenValues
from skvt.expfam import Family
from skvt.files import are_indices_below, in_files
from skvt.models.mixture._learned_priors import PriorLearner
from skvt.models.mixture.components import ConjugateComponent, multiply_features
from skvt.rows import dense
from skvt.typing import Array, IndexArray


@in_files("models.Block")
class Block(NamedTuple):
    """Columns of the data, and the component that describes them."""

    name: str
    component: Component
    # (D_b,): positions of the columns in the rows.
    columns: IndexArray
    # Number of given columns at the end of ``columns``. Given columns explain the other columns and
    # have no distribution themselves. They are the same in all blocks.
    n_given: int = 0

    @property
    def explained(self) -> IndexArray:
        """Positions of the columns that the block describes."""
        return self.columns[: self.columns.size - self.n_given]

    @property
    def given(self) -> IndexArray:
        """Positions of the given columns, which explain the others."""
        return self.columns[self.columns.size - self.n_given :]


@contextmanager
def name_block_in_errors(name: str) -> Iterator[None]:
    """Add the name of a block to ValueErrors and LinAlgErrors raised in a ``with`` statement."""
    try:
        yield
    except ValueError as error:
        # Other subclasses of ValueError may take other arguments than a message.
        if type(error) not in (ValueError, np.linalg.LinAlgError):
            raise
        raise type(error)(f"In the component {name!r}: {error}") from error


@dataclass(frozen=True)
class FamilyOfBlocks:
    """The exponential family of the parameters of a product: one family for each block.

    The natural parameters ``eta`` of all blocks are flattened and concatenated to E numbers.
    """

    # Names of the blocks, for error messages.
    names: tuple[str, ...]
    families: tuple[Family, ...]
    # Shape of the natural parameters of each block.
    shapes: tuple[tuple[int, ...], ...]

    def split(self, eta: Array) -> list[Array]:
        """Split natural parameters (..., E) into one array (..., *shape) for each block."""
        eta = np.asarray(eta, np.float64)
        blocks = zip(self._slices, self.shapes, strict=True)
        return [eta[..., entries].reshape(*eta.shape[:-1], *shape) for entries, shape in blocks]

    @cached_property
    def _slices(self) -> list[slice]:
        """The entries of each block in the concatenated natural parameters."""
        return slices_of([int(np.prod(shape)) for shape in self.shapes])

    def join(self, etas: list[Array]) -> Array:
        """Concatenate natural parameters of the blocks; the inverse of :meth:`split`."""
        flat_etas = [
            eta_b.reshape(*eta_b.shape[: eta_b.ndim - len(shape)], -1)
            for eta_b, shape in zip(etas, self.shapes, strict=True)
        ]
        return np.concatenate(flat_etas, axis=-1)

    def log_normalizer(self, eta: Array) -> Array:
        """Return the sum of the log normalizers of all blocks, (...)."""
        total = np.zeros(np.shape(eta)[:-1])
        for name, family, eta_b in zip(self.names, self.families, self.split(eta), strict=True):
            with name_block_in_errors(name):
                log_normalizers = family.log_normalizer(eta_b)
            # A block of several columns may have one log normalizer for each column.
            total += log_normalizers.reshape(*total.shape, -1).sum(axis=-1)
        return total

    def expectation(self, eta: Array) -> Array:
        """Return the expected statistics of all blocks, concatenated, (..., E)."""
        expectations = []
        for name, family, eta_b in zip(self.names, self.families, self.split(eta), strict=True):
            with name_block_in_errors(name):
                expectations.append(family.expectation(eta_b))
        return self.join(expectations)


class FitsOfBlocks(NamedTuple):
    """Fits of rows under components, each of which is fitted to a single row, its seed.

    A fit is an expected log density in nats, summed over blocks. The class has the methods of
    :class:`~skvt.models.mixture.components.RowFits`.
    """

    # The `RowFits` of each block.
    blocks: list[Any]

    def prepare(self, rows: Any) -> list[Any]:
        """Return the prepared rows of each block, for the other methods; ``rows`` are indices."""
        return [block.prepare(rows) for block in self.blocks]

    def fits_to_seeds(
        self, prepared: list[Any], seeds: Any, *, with_magnitudes: bool = True
    ) -> tuple[Array, Array]:
        """Return fits of rows to seeds, and the magnitudes of their terms, (n, K) each."""
        fits = [
            block.fits_to_seeds(X_b, seeds, with_magnitudes=with_magnitudes)
            for block, X_b in zip(self.blocks, prepared, strict=True)
        ]
        return _add_fits(fits)

    def fits_to_self(self, prepared: list[Any]) -> tuple[Array, Array]:
        """Return fits of rows to themselves as seeds, and their magnitudes, (n,) each."""
        blocks = zip(self.blocks, prepared, strict=True)
        return _add_fits([block.fits_to_self(X_b) for block, X_b in blocks])


def _add_fits(fits_and_magnitudes: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Return the sums over blocks of the fits, and of the magnitudes of their terms."""
    fits, magnitudes = zip(*fits_and_magnitudes, strict=True)
    return sum(fits), sum(magnitudes)


@in_files("models.Product")
@dataclass(frozen=True)
class Product(ConjugateComponent):
    """A component for rows whose columns form blocks that are independent given the component.

    The blocks' features, sums of features, tables and natural parameters are concatenated, so that
    algorithms of inference see one component. A row has P features, and a table (K, P) has their
    coefficients in E[log p(x | phi_k)]. The arguments ``lam`` (K, E) of methods are natural
    parameters of q of K components. The suffix ``_b`` marks the part that belongs to one block.
    Columns of the data that belong to no block are ignored. :class:`skvt.contracts.Component`
    documents the methods without docstrings.
    """

    blocks: tuple[Block, ...]
    n_features: int
    dtype: np.dtype[Any]

    def validate(self, d: int, k: int) -> bool:
        """Return whether the blocks fit each other and data of ``d`` columns, for loaded files."""
        return self._are_disjoint(d)

    def _are_disjoint(self, n_columns: int) -> bool:
        """Return whether the blocks can describe rows of ``n_columns`` columns together.

        Their names must be unique, given columns must be the same in all blocks, the number of
        columns of each block must suit its component, and no column may be described twice.
        """
        given = self.blocks[0].given
        columns = np.concatenate([*(block.explained for block in self.blocks), given])
        return (
            all(np.array_equal(block.given, given) for block in self.blocks)
            and all(block.columns.size > 0 for block in self.blocks)
            and all(block.columns.shape == (block.component.n_features,) for block in self.blocks)
            and len({block.name for block in self.blocks}) == len(self.blocks)
            and are_indices_below(columns, n_columns)
            and np.unique(columns).size == columns.size
        )

    @cached_property
    def _n_block_features(self) -> list[int]:
        """The number of features of each block, from the features of a row of zeros."""
        return [
            block.component.features(np.zeros((1, block.columns.size))).shape[1]
            for block in self.blocks
        ]

    @cached_property
    def _positions(self) -> list[slice | IndexArray]:
        """The positions of each block's columns in the rows, as a slice if they are consecutive."""
        return [as_slice(block.columns) for block in self.blocks]

    @cached_property
    def family(self) -> FamilyOfBlocks:
        components = [block.component for block in self.blocks]
        return FamilyOfBlocks(
            names=tuple(block.name for block in self.blocks),
            families=tuple(component.family for component in components),
            shapes=tuple(component.prior.shape for component in components),
        )

    @cached_property
    def prior(self) -> Array:
        return self.family.join([block.component.prior for block in self.blocks])

    @cached_property
    def base(self) -> Array:
        """The coefficients of the features that do not depend on the parameters, (P,)."""
        widths = zip(self.blocks, self._n_block_features, strict=True)
        bases = [np.broadcast_to(block.component.base, width) for block, width in widths]
        return np.concatenate(bases)

    @property
    def missing(self) -> bool:  # type: ignore[override]
        """Whether NaN may be missing values in any block.

        The reader of the rows rejects NaN in blocks whose components cannot have missing values.
        """
        return any(block.component.missing for block in self.blocks)

    @property
    def sparse(self) -> bool:  # type: ignore[override]
        return any(block.component.sparse for block in self.blocks)

    def split_by_block(self, sums: Array) -> list[Array]:
        """Split sums of features, or tables, (..., P) into one array for each block."""
        return [sums[..., entries] for entries in self._slices]

    def _split_sums(self, sums: Array) -> Iterator[tuple[Block, Array]]:
        """Return each block together with its part of the sums of features, (..., P)."""
        return zip(self.blocks, self.split_by_block(sums), strict=True)

    def _split_lam(self, lam: Array) -> Iterator[tuple[Block, Array]]:
        """Return each block together with its part of the natural parameters, (..., E)."""
        return zip(self.blocks, self.family.split(lam), strict=True)

    @cached_property
    def _slices(self) -> list[slice]:
        """The entries of each block in features, sums of features and tables."""
        return slices_of(self._n_block_features)

    def _convert_rows(self, X: Any) -> Any:
        """Convert rows X to the form that the blocks describe. This class returns X unchanged.

        A subclass that overrides this method must also override the methods that return rows.
        """
        return X

    def _split_rows(self, X: Any) -> Iterator[tuple[Component, Any]]:
        """Yield the component of each block, and its columns of the converted rows.

        Sparse columns become dense if the component of the block takes only dense rows.
        """
        X = self._convert_rows(X)
        for block, columns in zip(self.blocks, self._positions, strict=True):
            component, X_b = block.component, X[:, columns]
            yield component, X_b.toarray() if sp.issparse(X) and not component.sparse else X_b

    def features(self, X: Any) -> Any:
        """Return the concatenated features of all blocks, as CSR if any of them are CSR."""
        features = [component.features(X_b) for component, X_b in self._split_rows(X)]
        return self._concatenate_features(features)

    def log_densities_and_sums(
        self, X: Any, table: Array
    ) -> tuple[Array, Callable[[Array], Array]]:
        """Return the sum over blocks of log densities (n, K), and a function that sums features.

        ``table`` is (P, K), although tables are (K, P) in other methods. The function takes
        weighted responsibilities (n, K) and returns (K, P).
        """
        tables = [table[entries] for entries in self._slices]
        split_rows = list(self._split_rows(X))
        # If a block avoids the array of its features, call the method of each block.
        if self.avoids_features:
            results = [
                component.log_densities_and_sums(X_b, table_b)
                for (component, X_b), table_b in zip(split_rows, tables, strict=True)
            ]
        else:
            features = [component.features(X_b) for component, X_b in split_rows]
            # If all features are dense, one product of matrices is faster than one for each block.
            if len(features) == 1 or not any(map(sp.issparse, features)):
                return multiply_features(self._concatenate_features(features), table)
            results = list(map(multiply_features, features, tables))
        logits, sum_functions = zip(*results, strict=True)
        return np.sum(logits, axis=0), lambda weighted_resp: np.concatenate(
            [sum_features(weighted_resp) for sum_features in sum_functions], axis=1
        )

    @cached_property
    def avoids_features(self) -> bool:  # type: ignore[override]
        """Whether any block computes log densities without the array of its features."""
        return any(block.component.avoids_features for block in self.blocks)

    def weighted_sums(self, X: Any, weighted_resp: Array) -> Array:
        if not self.avoids_features:
            return super().weighted_sums(X, weighted_resp)
        split_rows = self._split_rows(X)
        sums = [component.weighted_sums(X_b, weighted_resp) for component, X_b in split_rows]
        return np.concatenate(sums, axis=1)

    def filled_features(self, X: Any) -> Any:
        """Return the concatenated features of completed rows."""
        features = [component.filled_features(X_b) for component, X_b in self._split_rows(X)]
        return self._concatenate_features(features)

    def row_fits(self, X: Any) -> "FitsOfBlocks":
        """Return the fits of rows under components that are fitted to one row each."""
        return FitsOfBlocks([component.row_fits(X_b) for component, X_b in self._split_rows(X)])

    def projected(self, X: Any, weights: Array, directions: Any) -> Any:
        """Return fits of rows projected onto directions, or None if no block can be projected.

        ``directions(rows, weights)`` returns the projected rows of a block. If only some blocks can
        be projected, the other blocks have the fits of unprojected rows.
        """
        split_rows = list(self._split_rows(X))
        projected = [component.projected(X_b, weights, directions) for component, X_b in split_rows]
        if all(fits is None for fits in projected):
            return None
        return FitsOfBlocks([
            component.row_fits(X_b) if fits is None else fits
            for fits, (component, X_b) in zip(projected, split_rows, strict=True)
        ])  # fmt: skip

    def _concatenate_features(self, features: list[Any]) -> Any:
        """Concatenate the features of blocks; the result is CSR if any of them are sparse."""
        if len(features) == 1:
            return features[0]
        if any(map(sp.issparse, features)):
            return sp.csr_array(sp.hstack(features, format="csr"))
        return np.concatenate(features, axis=1)

    def completion(self, table: Array) -> Completion | None:
        """Return a function that finds q of the hidden values of all blocks.

        The result is None if no block has such a function under the ``table`` (K, P).
        """
        completions = []
        for block, columns, entries in zip(self.blocks, self._positions, self._slices, strict=True):
            completion = block.component.completion(table[..., entries])
            if completion is not None:
                completions.append((columns, entries, completion))

        def complete(X: Any, inv_temps: Array) -> HolesOfBlocks | None:
            X = dense(self._convert_rows(X))
            holes_of_blocks: list[tuple[slice, HiddenValues]] = []
            for columns, entries, completion in completions:
                holes = completion(X[:, columns], inv_temps)
                if holes is not None:
                    holes_of_blocks.append((entries, holes))
            return HolesOfBlocks(holes_of_blocks) if holes_of_blocks else None

        return complete if completions else None

    def natural_sums(self, sums: Array) -> Array:
        etas = [block.component.natural_sums(sums_b) for block, sums_b in self._split_sums(sums)]
        return self.family.join(etas)

    def feature_coefficients(self, t: Array) -> Array:
        tables = [block.component.feature_coefficients(t_b) for block, t_b in self._split_lam(t)]
        return np.concatenate(tables, axis=-1)

    @property
    def log_hyperprior(self) -> float:
        return float(sum(block.component.log_hyperprior for block in self.blocks))

    @property
    def has_common_columns(self) -> bool:
        return any(block.component.has_common_columns for block in self.blocks)

    def with_components(self, components: Iterable[Any]) -> Self:
        """Return the product whose blocks have the ``components``, in the same order."""
        blocks = zip(self.blocks, components, strict=True)
        new_blocks = tuple(block._replace(component=component) for block, component in blocks)
        return replace(self, blocks=new_blocks)

    @cached_property
    def without_shared_globals(self) -> "Product":
        """The product whose blocks share no global parameters between components."""
        return self.with_components(block.component.without_shared_globals for block in self.blocks)

    def with_shared_globals(self, lam: Array) -> Array:
        lams = [block.component.with_shared_globals(lam_b) for block, lam_b in self._split_lam(lam)]
        return self.family.join(lams)

    def log_evidence(self, sums: Array) -> Array:
        return np.asarray(self.block_evidence(sums).sum(axis=1))

    def merge_gains(self, sums: Array, a: IndexArray, b: IndexArray) -> Array:
        """Return the gain of merging each pair of components (a, b), in nats."""
        gains = np.zeros(a.size)
        for block, sums_b in self._split_sums(sums):
            with name_block_in_errors(block.name):
                gains += block.component.merge_gains(sums_b, a, b)
        return gains

    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Return the sum of log densities over the independent blocks, (n, K) in nats."""
        log_densities = np.zeros((X.shape[0], lam.shape[0]))
        blocks = zip(self._split_rows(X), self.family.split(lam), strict=True)
        for (component, X_b), lam_b in blocks:
            log_densities += component.log_predictive(X_b, lam_b)
        return log_densities

    def imputed(self, X: Array, lam: Array, memberships: Array) -> Array:
        """Return rows with imputed missing values, given each row's memberships (n, K)."""
        rows = np.array(X, np.float64)
        for block, X_b, lam_b in self._iterate_missing(rows, lam):
            rows[:, block.columns] = block.component.imputed(X_b, lam_b, memberships)
        return rows

    def conditional_sample(self, X: Array, lam: Array, rng: np.random.Generator) -> Array:
        rows = np.array(X, np.float64)
        for block, X_b, lam_b in self._iterate_missing(rows, lam):
            rows[:, block.columns] = block.component.conditional_sample(X_b, lam_b, rng)
        return rows

    def _iterate_missing(self, rows: Array, lam: Array) -> Iterator[tuple[Block, Array, Array]]:
        """Yield each block with missing values, its columns of ``rows`` and its ``lam``."""
        for block, lam_b in self._split_lam(lam):
            X_b = rows[:, block.columns]
            if np.isnan(X_b).any():
                yield block, X_b, lam_b

    def column_probabilities(self, lam: Array, column: int, X: Any) -> Array:
        """Return predictive probabilities of the categories of a column of the data.

        The result is (K, C) for C categories, or (n, K, C) if given columns of the rows X explain
        the column. Raises ValueError if no block has the column.
        """
        for block, lam_b in self._split_lam(lam):
            if column in block.columns:
                position = int(np.flatnonzero(block.columns == column)[0])
                component: Any = block.component
                rows = X[:, block.columns]
                return np.asarray(component.column_probabilities(lam_b, position, rows))
        raise ValueError(f"No block has column {column}.")

    def drawn(self, lam: Array, rng: np.random.Generator) -> tuple["Product", Array]:
        """Draw the parameters phi of all blocks from q.

        Return the product with the drawn components, and natural parameters concentrated at phi.
        """
        drawn_blocks = [block.component.drawn(lam_b, rng) for block, lam_b in self._split_lam(lam)]
        components, drawn_lam = zip(*drawn_blocks, strict=True)
        return self.with_components(components), self.family.join(list(drawn_lam))

    def with_completed(self, X: Any, completed: Array) -> Array:
        """Return rows X with missing values taken from ``completed`` (n, D).

        Missing values that a block integrates out, and does not complete, stay NaN.
        """
        rows = np.array(X, np.float64)
        for block in self.blocks:
            X_b, completed_b = rows[:, block.columns], completed[:, block.columns]
            rows[:, block.columns] = block.component.with_completed(X_b, completed_b)
        return rows

    @property
    def without_jacobian(self) -> "Product":
        return self.with_components(block.component.without_jacobian for block in self.blocks)

    def without_indicator(self, column: int) -> "Product":
        """Return the product that does not model whether ``column`` is observed.

        Only blocks with informative missing values model it, by an indicator.
        """
        blocks = []
        for block in self.blocks:
            for position in np.flatnonzero(block.columns == column).tolist():
                block = block._replace(component=block.component.without_indicator(position))
            blocks.append(block)
        return replace(self, blocks=tuple(blocks))

    def parts(self, lam: Array) -> dict[str, tuple[Component, Array]]:
        """Return the component and the natural parameters of each block by its name."""
        return {block.name: (block.component, lam_b) for block, lam_b in self._split_lam(lam)}

    def block_evidence(self, sums: Array) -> Array:
        """Return log marginal likelihoods of blocks, (K, number of blocks) in nats."""
        evidence = np.empty((sums.shape[0], len(self.blocks)))
        for b, (block, sums_b) in enumerate(self._split_sums(sums)):
            with name_block_in_errors(block.name):
                evidence[:, b] = block.component.log_evidence(sums_b)
        return evidence

    def column_evidence(self, sums: Array) -> Array:
        """Return the log evidence of columns, (K, number of columns of the blocks) in nats.

        Columns are in the order of the blocks, not in the order of the data.
        """
        evidence = [
            block.component.column_evidence(sums_b) for block, sums_b in self._split_sums(sums)
        ]
        return np.concatenate(evidence, axis=1)

    def marginals(self, lam: Array) -> Any:
        """Return a list with the marginals of each block."""
        return [block.component.marginals(lam_b) for block, lam_b in self._split_lam(lam)]

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draw rows of one component's posterior predictive; columns of no block are NaN."""
        rows = np.full((n_rows, self.n_features), np.nan, self.dtype)
        for block, lam_b in self._split_lam(lam):
            rows[:, block.columns] = block.component.sample(lam_b, n_rows, rng)
        return rows


@dataclass(frozen=True)
class HolesOfBlocks:
    """Hidden values of rows in independent blocks, such as missing values.

    The class implements the contract :class:`skvt.contracts.HiddenValues`.
    """

    # For each block with hidden values, its entries in sums of features, and its hidden values.
    parts: list[tuple[slice, HiddenValues]]

    def add_to(self, logits: Array, entropy: Array) -> None:
        for _, holes in self.parts:
            holes.add_to(logits, entropy)

    def add_statistics(self, weighted_resp: Array, sums: Array) -> None:
        for entries, holes in self.parts:
            # Compiled loops need a contiguous array, to which the block adds.
            sums_b = np.zeros((sums.shape[0], entries.stop - entries.start))
            holes.add_statistics(weighted_resp, sums_b)
            sums[:, entries] += sums_b


def slices_of(widths: list[int]) -> list[slice]:
    """Return consecutive slices that have these widths."""
    ends = np.cumsum([0, *widths]).tolist()
    return [slice(*pair) for pair in pairwise(ends)]


def as_slice(columns: IndexArray) -> slice | IndexArray:
    """Return consecutive columns as a slice, so that indexing yields a view.

    Columns that are not consecutive are returned unchanged.
    """
    first = int(columns[0])
    if np.array_equal(columns, np.arange(first, first + columns.size)):
        return slice(first, first + columns.size)
    return columns


@in_files("models.ProductLearner")
@dataclass(frozen=True)
class ProductLearner:
    """Learns the priors of the blocks of a product."""

    # The learner of each block. A block whose learner is None keeps its prior.
    learners: tuple[PriorLearner | None, ...]

    def learn_prior(self, component: Any, sums: Array) -> Any:
        """Return the product with priors of higher evidence, given ``sums`` of features (K, P)."""
        blocks = zip(component.blocks, self.learners, component.split_by_block(sums), strict=True)
        components = []
        for block, learner, sums_b in blocks:
            new_component = block.component
            if learner is not None:
                with name_block_in_errors(block.name):
                    new_component = learner.learn_prior(new_component, sums_b)
            components.append(new_component)
        return component.with_components(components)

    def make_symmetric(self, component: Any) -> Any:
        """Return the product with symmetric priors, see :class:`PriorLearner`."""
        blocks = zip(component.blocks, self.learners, strict=True)
        return component.with_components(
            block.component if learner is None else learner.make_symmetric(block.component)
            for block, learner in blocks
        )

    def learned_values(self, component: Any) -> dict[str, Any]:
        """Return the learned values of each block by its name."""
        return {
            block.name: learner.learned_values(block.component)
            for block, learner in zip(component.blocks, self.learners, strict=True)
            if learner is not None
        }


@in_files("models.ValuesLearner")
@dataclass(frozen=True)
class ValuesLearner:
    """Learns the priors of the first two blocks of a product, whose other priors are fixed.

    The second learner is ignored if the product has only one block.
    """

    # The learner of the first block, which describes values; None if its prior is fixed.
    learner: PriorLearner | None
    # The learner of the second block; None if its prior is fixed.
    second: PriorLearner | None = None

    def for_blocks(self, component: Any) -> ProductLearner:
        """Return the learner of all blocks of a product."""
        n_blocks = len(component.blocks)
        fixed = (None,) * n_blocks
        return ProductLearner((self.learner, self.second, *fixed)[:n_blocks])

    def learn_prior(self, component: Any, sums: Array) -> Any:
        """Return the product with priors of higher evidence in its first blocks."""
        return self.for_blocks(component).learn_prior(component, sums)

    def make_symmetric(self, component: Any) -> Any:
        """Return the product with symmetric priors, see :class:`PriorLearner`."""
        return self.for_blocks(component).make_symmetric(component)

    def learned_values(self, component: Any) -> dict[str, Any]:
        """Return the learned values of the first block by name."""
        if self.learner is None:
            return {}
        return self.learner.learned_values(component.blocks[0].component)
