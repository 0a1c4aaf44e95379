"""Components for rows with several kinds of columns, in blocks that are independent.

The blocks are independent given the component of the row. A :class:`Product` calls the component of
each block with the columns of the block and the corresponding part of the statistics.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from skvt.contracts import Capability, Completion, Component, Holes
from skvt.expfam import Family
from skvt.files import in_files, is_within
from skvt.models.mixture._learned_priors import PriorLearner
from skvt.models.mixture.components import ConjugateComponent
from skvt.rows import dense
from skvt.typing import Array, IndexArray


@in_files("models.Block")
class Block(NamedTuple):
    """Columns of the data and their likelihood."""

    name: str
    component: Component
    # (D_b,): positions of the columns in the rows.
    columns: IndexArray
    # Number of given columns at the end of ``columns``. They explain the other columns and are the
    # same in all blocks.
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
def naming_block(name: str) -> Iterator[None]:
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
    """The family of the globals of a product: one family for each block.

    Natural parameters are those of the blocks, flattened and concatenated.
    """

    # Names of the blocks, for error messages.
    names: tuple[str, ...]
    families: tuple[Family, ...]
    # Shape of the natural parameters of each block.
    shapes: tuple[tuple[int, ...], ...]

    def split(self, eta: Array) -> list[Array]:
        """Split natural parameters (..., E) into one array (..., *shape) for each block."""
        eta = np.asarray(eta, np.float64)
        parts = zip(self._slices, self.shapes, strict=True)
        return [eta[..., entries].reshape(*eta.shape[:-1], *shape) for entries, shape in parts]

    @cached_property
    def _slices(self) -> list[slice]:
        return slices_of([int(np.prod(shape)) for shape in self.shapes])

    def join(self, parts: list[Array]) -> Array:
        """Concatenate natural parameters of the blocks; the inverse of :meth:`split`."""
        flat = [
            part.reshape(*part.shape[: part.ndim - len(shape)], -1)
            for part, shape in zip(parts, self.shapes, strict=True)
        ]
        return np.concatenate(flat, axis=-1)

    def log_normalizer(self, eta: Array) -> Array:
        """Return the sum of the log normalizers of all blocks, (...)."""
        total = np.zeros(np.shape(eta)[:-1])
        parts = zip(self.names, self.families, self.split(eta), strict=True)
        for name, family, part in parts:
            with naming_block(name):
                value = family.log_normalizer(part)
            total += value.reshape(*total.shape, -1).sum(axis=-1)
        return total

    def expectation(self, eta: Array) -> Array:
        expectations = []
        for name, family, part in zip(self.names, self.families, self.split(eta), strict=True):
            with naming_block(name):
                expectations.append(family.expectation(part))
        return self.join(expectations)


class FitsOfBlocks(NamedTuple):
    """Fits of rows that are sums over blocks, with the methods of `RowFits`."""

    # The `RowFits` of each block.
    blocks: list[Any]

    def prepare(self, rows: Any) -> list[Any]:
        return [block.prepare(rows) for block in self.blocks]

    def fits_to_seeds(
        self, prepared: list[Any], seeds: Any, *, with_sizes: bool = True
    ) -> tuple[Array, Array]:
        pairs = zip(self.blocks, prepared, strict=True)
        return _add_fits(
            [block.fits_to_seeds(part, seeds, with_sizes=with_sizes) for block, part in pairs]
        )

    def fits_to_self(self, prepared: list[Any]) -> tuple[Array, Array]:
        pairs = zip(self.blocks, prepared, strict=True)
        return _add_fits([block.fits_to_self(part) for block, part in pairs])


def _add_fits(fits_and_sizes: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Return the sum of the fits of blocks, and the sum of the sizes of their terms."""
    fits, sizes = zip(*fits_and_sizes, strict=True)
    return sum(fits), sum(sizes)


@in_files("models.Product")
@dataclass(frozen=True)
class Product(ConjugateComponent):
    """A component for rows whose columns form blocks that are independent given the component.

    Features, statistics, tables and natural parameters of the blocks are concatenated, so that
    algorithms of inference see one component. Columns that belong to no block are ignored.
    """

    blocks: tuple[Block, ...]
    n_features: int
    dtype: np.dtype[Any]

    capabilities: frozenset[Capability] = frozenset()

    def validate(self, d: int, k: int) -> bool:
        return self._are_disjoint(d)

    def _are_disjoint(self, n_columns: int) -> bool:
        """Return whether blocks have unique names and describe no column twice.

        Given columns must be the same in all blocks. Positions must be less than ``n_columns``.
        """
        given = self.blocks[0].given
        columns = np.concatenate([*(block.explained for block in self.blocks), given])
        return (
            all(np.array_equal(block.given, given) for block in self.blocks)
            and all(block.columns.size > 0 for block in self.blocks)
            and all(b.columns.shape == (b.component.n_features,) for b in self.blocks)
            and len({block.name for block in self.blocks}) == len(self.blocks)
            and is_within(columns, n_columns)
            and np.unique(columns).size == columns.size
        )

    @cached_property
    def _widths(self) -> list[int]:
        """The number of features of each block."""
        return [
            block.component.features(np.zeros((1, block.columns.size))).shape[1]
            for block in self.blocks
        ]

    @cached_property
    def _positions(self) -> list[slice | IndexArray]:
        """The positions of each block's columns in the rows."""
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
        """The constants of the blocks' densities, shape (P,)."""
        pairs = zip(self.blocks, self._widths, strict=True)
        return np.concatenate([np.broadcast_to(b.component.base, width) for b, width in pairs])

    @property
    def missing(self) -> bool:  # type: ignore[override]
        """Whether NaN may be missing values in any block.

        The reader of the rows rejects NaN in blocks whose components cannot have missing values.
        """
        return any(block.component.missing for block in self.blocks)

    @property
    def sparse(self) -> bool:  # type: ignore[override]
        return any(block.component.sparse for block in self.blocks)

    def split_by_block(self, values: Array) -> list[Array]:
        """Split statistics or tables (..., P) into one array for each block."""
        return [values[..., entries] for entries in self._slices]

    @cached_property
    def _slices(self) -> list[slice]:
        """The entries of each block in features, statistics and tables."""
        return slices_of(self._widths)

    def _convert_rows(self, X: Any) -> Any:
        """Return the rows whose columns the blocks describe.

        These are the rows of the data, unless a subclass converts them.
        """
        return X

    def _with_columns(self, X: Any) -> Iterator[tuple[Component, Any]]:
        """Yield the component of each block, and its columns of the converted rows.

        Sparse columns become dense unless the component is sparse.
        """
        X = self._convert_rows(X)
        for block, columns in zip(self.blocks, self._positions, strict=True):
            component, part = block.component, X[:, columns]
            yield component, part.toarray() if sp.issparse(X) and not component.sparse else part

    def features(self, X: Any) -> Any:
        """Return the concatenated features of all blocks; CSR if those of any block are CSR."""
        parts = [component.features(part) for component, part in self._with_columns(X)]
        return self._side_by_side(parts)

    def log_densities_and_sums(
        self, X: Any, table: Array
    ) -> tuple[Array, Callable[[Array], Array]]:
        """Return the sum over blocks of log densities, and a function that sums features."""
        # If a block avoids features, ask each block.
        if self.avoids_features:
            blocks = zip(self._with_columns(X), self._slices, strict=True)
            of_blocks = [
                component.log_densities_and_sums(columns, table[entries])
                for (component, columns), entries in blocks
            ]
            logits = np.sum([logits for logits, _ in of_blocks], axis=0)
            return logits, lambda weighted: np.concatenate(
                [sums_of(weighted) for _, sums_of in of_blocks], axis=1
            )
        # If all features are dense, one product of matrices is faster than one for each block.
        features_of_blocks = [component.features(part) for component, part in self._with_columns(X)]
        if len(features_of_blocks) == 1 or not any(map(sp.issparse, features_of_blocks)):
            features = self._side_by_side(features_of_blocks)
            return features @ table, lambda weighted: features.T.dot(weighted).T
        pairs = zip(features_of_blocks, self._slices, strict=True)
        logits = sum(part @ table[entries] for part, entries in pairs)

        def sums_of(weighted: Array) -> Array:
            return np.concatenate([part.T.dot(weighted) for part in features_of_blocks]).T

        return np.asarray(logits), sums_of

    @cached_property
    def avoids_features(self) -> bool:  # type: ignore[override]
        """Whether any block computes log densities without the array of its features."""
        return any(block.component.avoids_features for block in self.blocks)

    def weighted_sums(self, X: Any, weighted: Array) -> Array:
        if not self.avoids_features:
            return super().weighted_sums(X, weighted)
        blocks = self._with_columns(X)
        sums = [component.weighted_sums(part, weighted) for component, part in blocks]
        return np.concatenate(sums, axis=1)

    def filled_features(self, X: Any) -> Any:
        """Return the concatenated features of completed rows."""
        parts = [component.filled_features(part) for component, part in self._with_columns(X)]
        return self._side_by_side(parts)

    def row_fits(self, X: Any) -> "FitsOfBlocks":
        return FitsOfBlocks([component.row_fits(part) for component, part in self._with_columns(X)])

    def projected(self, X: Any, weights: Array, directions: Any) -> Any:
        """Project each block; blocks that cannot be projected stay as they are."""
        parts = list(self._with_columns(X))
        projected = [component.projected(part, weights, directions) for component, part in parts]
        if all(fits is None for fits in projected):
            return None
        return FitsOfBlocks([
            component.row_fits(part) if fits is None else fits
            for fits, (component, part) in zip(projected, parts, strict=True)
        ])  # fmt: skip

    def _side_by_side(self, parts: list[Any]) -> Any:
        """Concatenate the features of blocks; the result is CSR if any of them are sparse."""
        if len(parts) == 1:
            return parts[0]
        if any(sp.issparse(part) for part in parts):
            return sp.csr_array(sp.hstack(parts, format="csr"))
        return np.concatenate(parts, axis=1)

    def completion(self, table: Array) -> Completion | None:
        """Return the joint completion of the blocks that have one under the table (K, P)."""
        completions = []
        for block, columns, entries in zip(self.blocks, self._positions, self._slices, strict=True):
            completion = block.component.completion(table[..., entries])
            if completion is not None:
                completions.append((columns, entries, completion))

        def complete(X: Any, inv_temps: Array) -> HolesOfBlocks | None:
            X = dense(self._convert_rows(X))
            parts: list[tuple[slice, Holes]] = []
            for columns, entries, completion in completions:
                holes = completion(X[:, columns], inv_temps)
                if holes is not None:
                    parts.append((entries, holes))
            return HolesOfBlocks(parts) if parts else None

        return complete if completions else None

    def filled(self, X: Any) -> Any:
        """Return rows with missing values at their prior means, in the blocks that need it."""
        # Blocks of sparse rows do not need complete rows.
        if sp.issparse(X):
            return X
        changed = []
        for block, columns in zip(self.blocks, self._positions, strict=True):
            part = X[:, columns]
            filled_part = block.component.filled(part)
            if filled_part is not part:
                changed.append((columns, filled_part))
        if not changed:
            return X
        out = np.array(X, np.float64)
        for columns, filled_part in changed:
            out[:, columns] = filled_part
        return out

    def natural_sums(self, sums: Array) -> Array:
        parts = zip(self.blocks, self.split_by_block(sums), strict=True)
        return self.family.join([block.component.natural_sums(part) for block, part in parts])

    def feature_coefficients(self, t: Array) -> Array:
        parts = zip(self.blocks, self.family.split(t), strict=True)
        of_blocks = [block.component.feature_coefficients(part) for block, part in parts]
        return np.concatenate(of_blocks, axis=-1)

    @property
    def log_hyperprior(self) -> float:
        return float(sum(block.component.log_hyperprior for block in self.blocks))

    @property
    def has_common_columns(self) -> bool:
        return any(block.component.has_common_columns for block in self.blocks)

    def with_components(self, components: Iterable[Any]) -> Self:
        """Return the product whose blocks have the ``components``, in the same order."""
        pairs = zip(self.blocks, components, strict=True)
        return replace(self, blocks=tuple(block._replace(component=new) for block, new in pairs))

    @cached_property
    def without_shared_globals(self) -> "Product":
        """The product whose blocks share no globals between components."""
        return self.with_components(block.component.without_shared_globals for block in self.blocks)

    def with_shared_globals(self, lam: Array) -> Array:
        parts = zip(self.blocks, self.family.split(lam), strict=True)
        return self.family.join([b.component.with_shared_globals(part) for b, part in parts])

    def log_evidence(self, sums: Array) -> Array:
        return np.asarray(self.block_evidence(sums).sum(axis=1))

    def merge_gains(self, sums: Array, a: IndexArray, b: IndexArray) -> Array:
        gain = np.zeros(a.size)
        for block, part in zip(self.blocks, self.split_by_block(sums), strict=True):
            with naming_block(block.name):
                gain += block.component.merge_gains(part, a, b)
        return gain

    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Return the sum of log densities over the independent blocks, (n, K) in nats."""
        total = np.zeros((X.shape[0], lam.shape[0]))
        parts = zip(self._with_columns(X), self.family.split(lam), strict=True)
        for (component, columns), lam_of_block in parts:
            total += component.log_predictive(columns, lam_of_block)
        return total

    def imputed(self, X: Array, lam: Array, memberships: Array) -> Array:
        return self._replace_missing("imputed", X, lam, memberships)

    def conditional_sample(self, X: Array, lam: Array, rng: np.random.Generator) -> Array:
        return self._replace_missing("conditional_sample", X, lam, rng)

    def _replace_missing(self, method: str, X: Array, lam: Array, argument: Any) -> Array:
        """Replace missing values in all blocks; NaN stays in columns of no block.

        The ``method`` of each block's component completes the columns of the block. Its arguments
        are these columns, the natural parameters of the block, and ``argument``.
        """
        out = np.array(X, np.float64)
        for block, lam_of_block in zip(self.blocks, self.family.split(lam), strict=True):
            part = out[:, block.columns]
            if np.isnan(part).any():
                complete = getattr(block.component, method)
                out[:, block.columns] = complete(part, lam_of_block, argument)
        return out

    def column_probabilities(self, lam: Array, column: int, X: Any) -> Array:
        """Return predictive probabilities of the categories of a column of the data.

        They are (K, C), or (n, K, C) if given columns of the rows X explain the column. Raises
        ValueError if no block has the column.
        """
        for block, lam_of_block in zip(self.blocks, self.family.split(lam), strict=True):
            if column in block.columns:
                position = int(np.flatnonzero(block.columns == column)[0])
                component: Any = block.component
                rows = X[:, block.columns]
                return np.asarray(component.column_probabilities(lam_of_block, position, rows))
        raise ValueError(f"No block has column {column}.")

    def drawn(self, lam: Array, rng: np.random.Generator) -> tuple["Product", Array]:
        """Draw the globals of all blocks; return a component and parameters that are certain."""
        parts = zip(self.blocks, self.family.split(lam), strict=True)
        drawn = [block.component.drawn(lam_of_block, rng) for block, lam_of_block in parts]
        components, drawn_lam = zip(*drawn, strict=True)
        return self.with_components(components), self.family.join(list(drawn_lam))

    def with_completed(self, X: Any, completed: Array) -> Array:
        """Return rows in which each block has completed those values for which q has a factor."""
        out = np.array(X, np.float64)
        for block in self.blocks:
            out[:, block.columns] = block.component.with_completed(
                out[:, block.columns], completed[:, block.columns]
            )
        return out

    def without_indicator(self, column: int) -> "Product":
        """Return the product in whose blocks no indicator says whether ``column`` is observed."""
        blocks = []
        for block in self.blocks:
            for position in np.flatnonzero(block.columns == column).tolist():
                block = block._replace(component=block.component.without_indicator(position))
            blocks.append(block)
        return replace(self, blocks=tuple(blocks))

    def parts(self, lam: Array) -> dict[str, tuple[Component, Array]]:
        """Return the component and the natural parameters of each block by its name."""
        pairs = zip(self.blocks, self.family.split(lam), strict=True)
        return {block.name: (block.component, part) for block, part in pairs}

    def block_evidence(self, sums: Array) -> Array:
        """Return log marginal likelihoods of blocks, (K, number of blocks) in nats."""
        out = np.empty((sums.shape[0], len(self.blocks)))
        for b, (block, part) in enumerate(zip(self.blocks, self.split_by_block(sums), strict=True)):
            with naming_block(block.name):
                out[:, b] = block.component.log_evidence(part)
        return out

    def column_evidence(self, sums: Array) -> Array:
        """Return the log evidence of each column, block after block, (K, D) in nats."""
        parts = zip(self.blocks, self.split_by_block(sums), strict=True)
        return np.concatenate([block.component.column_evidence(part) for block, part in parts], 1)

    def marginals(self, lam: Array) -> Any:
        """Return a list with the marginals of each block."""
        parts = zip(self.blocks, self.family.split(lam), strict=True)
        return [block.component.marginals(part) for block, part in parts]

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Draw rows of one component's posterior predictive; columns of no block are NaN."""
        out = np.full((n_rows, self.n_features), np.nan, self.dtype)
        for block, lam_of_block in zip(self.blocks, self.family.split(lam), strict=True):
            out[:, block.columns] = block.component.sample(lam_of_block, n_rows, rng)
        return out


@dataclass(frozen=True)
class HolesOfBlocks:
    """Missing values of independent blocks: implements :class:`skvt.contracts.Holes`."""

    # For each block with missing values, its entries in the statistics, and its missing values.
    parts: list[tuple[slice, Holes]]

    def add_to(self, logits: Array, entropy: Array) -> None:
        for _, holes in self.parts:
            holes.add_to(logits, entropy)

    def add_statistics(self, weighted: Array, sums: Array) -> None:
        # Each block adds to a separate array, so that compiled loops get contiguous arrays.
        for entries, holes in self.parts:
            sums_of_block = np.zeros((sums.shape[0], entries.stop - entries.start))
            holes.add_statistics(weighted, sums_of_block)
            sums[:, entries] += sums_of_block


def slices_of(widths: list[int]) -> list[slice]:
    """Return consecutive slices that have these widths."""
    ends = np.cumsum([0, *widths]).tolist()
    return [slice(*pair) for pair in pairwise(ends)]


def as_slice(columns: IndexArray) -> slice | IndexArray:
    """Return consecutive columns as a slice, so that indexing yields a view; others unchanged."""
    first = int(columns[0])
    if np.array_equal(columns, np.arange(first, first + columns.size)):
        return slice(first, first + columns.size)
    return columns


@in_files("models.ProductLearner")
@dataclass(frozen=True)
class ProductLearner:
    """Learns the priors of the blocks of a product."""

    # One for each block. A block whose learner is None keeps its prior.
    learners: tuple[PriorLearner | None, ...]

    def learned(self, component: Any, sums: Array) -> Any:
        parts = zip(component.blocks, self.learners, component.split_by_block(sums), strict=True)
        components = []
        for block, learner, block_sums in parts:
            new = block.component
            if learner is not None:
                with naming_block(block.name):
                    new = learner.learned(new, block_sums)
            components.append(new)
        return component.with_components(components)

    def values(self, component: Any) -> dict[str, Any]:
        """Return the learned values of each block by its name."""
        return {
            block.name: learner.values(block.component)
            for block, learner in zip(component.blocks, self.learners, strict=True)
            if learner is not None
        }


@in_files("models.ValuesLearner")
@dataclass(frozen=True)
class ValuesLearner:
    """Learns the priors of the first two blocks of a product; the other priors are fixed."""

    # Learners of the first block, which describes values, and of the second. None keeps the prior.
    learner: PriorLearner | None
    second: PriorLearner | None = None

    def for_blocks(self, component: Any) -> ProductLearner:
        """Return the learner of all blocks of a product, which may have only one block."""
        n_blocks = len(component.blocks)
        return ProductLearner((self.learner, self.second, *(None,) * n_blocks)[:n_blocks])

    def learned(self, component: Any, sums: Array) -> Any:
        """Return the product with priors of higher evidence in its first blocks."""
        return self.for_blocks(component).learned(component, sums)

    def values(self, component: Any) -> dict[str, Any]:
        """Return the learned values of the first block by name."""
        return {} if self.learner is None else self.learner.values(component.blocks[0].component)
