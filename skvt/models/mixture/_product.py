"""Rows of several kinds of columns: blocks that are independent given the component."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from skvt.contracts import Capability, Completion, Component, Holes
from skvt.expfam import Family
from skvt.models.mixture.components import ConjugateComponent
from skvt.rows import dense
from skvt.typing import Array, IndexArray


class Block(NamedTuple):
    """Some columns of the data and their likelihood."""

    name: str
    component: Component
    # (D_b,): positions in the rows.
    columns: IndexArray


@contextmanager
def of_block(name: str) -> Iterator[None]:
    """A ``with`` block whose ValueErrors name the block of columns they are about."""
    try:
        yield
    except ValueError as error:
        if type(error) not in (ValueError, np.linalg.LinAlgError):
            raise
        raise type(error)(f"In the component {name!r}: {error}") from error


@dataclass(frozen=True)
class FamilyOfBlocks:
    """Independent members of several families, their natural parameters one after the other."""

    names: tuple[str, ...]
    families: tuple[Family, ...]
    # Of the natural parameters of each.
    shapes: tuple[tuple[int, ...], ...]

    def split(self, eta: Array) -> list[Array]:
        """Natural parameters (..., E) of each family, (..., *shape)."""
        eta = np.asarray(eta, np.float64)
        parts = zip(self._slices, self.shapes, strict=True)
        return [eta[..., place].reshape(*eta.shape[:-1], *shape) for place, shape in parts]

    @cached_property
    def _slices(self) -> list[slice]:
        return slices_of([int(np.prod(shape)) for shape in self.shapes])

    def join(self, parts: list[Array]) -> Array:
        """Inverse of :meth:`split`."""
        flat = [
            part.reshape(*part.shape[: part.ndim - len(shape)], -1)
            for part, shape in zip(parts, self.shapes, strict=True)
        ]
        return np.concatenate(flat, axis=-1)

    def log_normalizer(self, eta: Array) -> Array:
        total = np.zeros(np.shape(eta)[:-1])
        parts = zip(self.names, self.families, self.split(eta), strict=True)
        for name, family, part in parts:
            with of_block(name):
                value = family.log_normalizer(part)
            total += value.reshape(*total.shape, -1).sum(axis=-1)
        return total

    def expectation(self, eta: Array) -> Array:
        found = []
        for name, family, part in zip(self.names, self.families, self.split(eta), strict=True):
            with of_block(name):
                found.append(family.expectation(part))
        return self.join(found)


class FitsOfBlocks(NamedTuple):
    """What blocks say of rows, in sum: as :class:`~skvt.models.mixture.components.RowFits`."""

    blocks: list[Any]

    def some(self, rows: Any) -> list[Any]:
        return [block.some(rows) for block in self.blocks]

    def given(self, some: list[Any], seeds: Any) -> tuple[Array, Array]:
        """Of each row under each seed, (n, K), and sizes."""
        pairs = zip(self.blocks, some, strict=True)
        return _sums([block.given(own, seeds) for block, own in pairs])

    def own(self, some: list[Any]) -> tuple[Array, Array]:
        return _sums([block.own(own) for block, own in zip(self.blocks, some, strict=True)])


def _sums(parts: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    values, sizes = zip(*parts, strict=True)
    return sum(values), sum(sizes)


@dataclass(frozen=True)
class Product(ConjugateComponent):
    """A component for rows whose columns are blocks, independent given the component.

    Features, statistics, tables and natural parameters are those of the blocks side by side, so
    that engines and moves see one component. Columns that belong to no block are ignored.
    """

    blocks: tuple[Block, ...]
    n_features: int
    dtype: np.dtype[Any]

    capabilities: frozenset[Capability] = frozenset()

    @cached_property
    def _widths(self) -> list[int]:
        return [
            component.features(np.zeros((1, columns.size))).shape[1]
            for _, component, columns in self.blocks
        ]

    @cached_property
    def _places(self) -> list[slice | IndexArray]:
        return [as_slice(block.columns) for block in self.blocks]

    @cached_property
    def family(self) -> FamilyOfBlocks:
        components = [block.component for block in self.blocks]
        return FamilyOfBlocks(
            tuple(block.name for block in self.blocks),
            tuple(component.family for component in components),
            tuple(component.prior.shape for component in components),
        )

    @cached_property
    def prior(self) -> Array:
        return self.family.join([block.component.prior for block in self.blocks])

    @cached_property
    def base(self) -> Array:
        """The constants of the blocks' densities, shape (P,)."""
        widths = zip(self.blocks, self._widths, strict=True)
        return np.concatenate([np.broadcast_to(block.component.base, n) for block, n in widths])

    @property
    def missing(self) -> bool:  # type: ignore[override]
        """Whether NaN may be missing values; blocks that do not allow them refuse them earlier."""
        return any(block.component.missing for block in self.blocks)

    @property
    def sparse(self) -> bool:  # type: ignore[override]
        return any(block.component.sparse for block in self.blocks)

    def of_blocks(self, values: Array) -> list[Array]:
        """Statistics or tables (..., P), split into those of the blocks."""
        return [values[..., place] for place in self._slices]

    @cached_property
    def _slices(self) -> list[slice]:
        return slices_of(self._widths)

    def _made(self, X: Any) -> Any:
        """The rows whose columns the blocks have: those of the data, or made of them."""
        return X

    def _with_columns(self, X: Any) -> Iterator[tuple[Component, Any]]:
        """Each block's component and its columns of X, sparse only where features are."""
        X = self._made(X)
        for (_, component, _), place in zip(self.blocks, self._places, strict=True):
            part = X[:, place]
            yield component, part.toarray() if sp.issparse(X) and not component.sparse else part

    def features(self, X: Any) -> Any:
        """Features of all blocks side by side, CSR where those of a block are."""
        parts = [component.features(part) for component, part in self._with_columns(X)]
        return self._side_by_side(parts)

    def explain(self, X: Any, table: Array) -> tuple[Array, Callable[[Array], Array]]:
        """Block by block where features of some are sparse, which those of the others are not."""
        parts = [component.features(part) for component, part in self._with_columns(X)]
        if len(parts) == 1 or not any(map(sp.issparse, parts)):
            features = self._side_by_side(parts)
            return features @ table, lambda weighted: features.T.dot(weighted).T
        logits = sum(part @ table[own] for part, own in zip(parts, self._slices, strict=True))

        def sums_of(weighted: Array) -> Array:
            return np.concatenate([part.T.dot(weighted) for part in parts]).T

        return np.asarray(logits), sums_of

    def filled_features(self, X: Any) -> Any:
        parts = [component.filled_features(part) for component, part in self._with_columns(X)]
        return self._side_by_side(parts)

    def row_fits(self, X: Any) -> "FitsOfBlocks":
        return FitsOfBlocks([component.row_fits(part) for component, part in self._with_columns(X)])

    def projected(self, X: Any, weights: Array, directions: Any) -> Any:
        """Each block projected, or as it is where that cannot be."""
        parts = list(self._with_columns(X))
        found = [component.projected(part, weights, directions) for component, part in parts]
        if all(one is None for one in found):
            return None
        return FitsOfBlocks([
            component.row_fits(part) if one is None else one
            for one, (component, part) in zip(found, parts, strict=True)
        ])  # fmt: skip

    def _side_by_side(self, parts: list[Any]) -> Any:
        if len(parts) == 1:
            return parts[0]
        if any(sp.issparse(part) for part in parts):
            return sp.csr_array(sp.hstack(parts, format="csr"))
        return np.concatenate(parts, axis=1)

    def completion(self, table: Array) -> Completion | None:
        """Completions of the blocks that need them under the table (K, P)."""
        parts = []
        for block, columns, place in zip(self.blocks, self._places, self._slices, strict=True):
            completion = block.component.completion(table[..., place])
            if completion is not None:
                parts.append((columns, place, completion))

        def holes(X: Any, inv_temps: Array) -> HolesOfBlocks | None:
            X = dense(self._made(X))
            found = [(place, own(X[:, columns], inv_temps)) for columns, place, own in parts]
            there = tuple((place, holes) for place, holes in found if holes is not None)
            return HolesOfBlocks(there) if there else None

        return holes if parts else None

    def filled(self, X: Any) -> Any:
        """Rows with missing values at their prior means, in the blocks that need it."""
        if sp.issparse(X):  # no block of sparse rows needs it
            return X
        changed = []
        for block, columns in zip(self.blocks, self._places, strict=True):
            own = X[:, columns]
            part = block.component.filled(own)
            if part is not own:
                changed.append((columns, part))
        if not changed:
            return X
        out = np.array(X, np.float64)
        for columns, part in changed:
            out[:, columns] = part
        return out

    def spread(self, sums: Array) -> Array:
        parts = zip(self.blocks, self.of_blocks(sums), strict=True)
        return self.family.join([block.component.spread(part) for block, part in parts])

    def gather(self, t: Array) -> Array:
        parts = zip(self.blocks, self.family.split(t), strict=True)
        return np.concatenate([block.component.gather(part) for block, part in parts], axis=-1)

    @cached_property
    def alone(self) -> "Product":
        """Of blocks that share nothing between components."""
        blocks = (block._replace(component=block.component.alone) for block in self.blocks)
        return replace(self, blocks=tuple(blocks))

    def apart(self, lam: Array) -> Array:
        parts = zip(self.blocks, self.family.split(lam), strict=True)
        return self.family.join([block.component.apart(own) for block, own in parts])

    def log_evidence(self, sums: Array) -> Array:
        return np.asarray(self.block_evidence(sums).sum(axis=1))

    def merge_gains(self, sums: Array, a: IndexArray, b: IndexArray) -> Array:
        gain = np.zeros(a.size)
        for block, part in zip(self.blocks, self.of_blocks(sums), strict=True):
            with of_block(block.name):
                gain += block.component.merge_gains(part, a, b)
        return gain

    def log_predictive(self, X: Any, lam: Array) -> Array:
        """Sum over the blocks, which are independent given the component: (n, K) in nats."""
        total = np.zeros((X.shape[0], lam.shape[0]))
        columns = zip(self._with_columns(X), self.family.split(lam), strict=True)
        for (component, part), own in columns:
            total += component.log_predictive(part, own)
        return total

    def imputed(self, X: Array, lam: Array, memberships: Array) -> Array:
        return self._replaced(X, lam, lambda block, *own: block.imputed(*own, memberships))

    def conditional_sample(self, X: Array, lam: Array, rng: np.random.Generator) -> Array:
        return self._replaced(X, lam, lambda block, *own: block.conditional_sample(*own, rng))

    def _replaced(self, X: Array, lam: Array, of_block: Callable[..., Array]) -> Array:
        """Missing values of all blocks replaced; NaN stays in columns of no block."""
        out = np.array(X, np.float64)
        for block, own in zip(self.blocks, self.family.split(lam), strict=True):
            part = out[:, block.columns]
            if np.isnan(part).any():
                out[:, block.columns] = of_block(block.component, part, own)
        return out

    def column_probabilities(self, lam: Array, column: int) -> Array:
        """Predictive probabilities of the categories of a column of the data, (K, C)."""
        for block, own in zip(self.blocks, self.family.split(lam), strict=True):
            if column in block.columns:
                place = int(np.flatnonzero(block.columns == column)[0])
                component: Any = block.component  # of categories
                return np.asarray(component.column_probabilities(own, place))
        raise ValueError(f"No block has column {column}.")

    def drawn(self, lam: Array, rng: np.random.Generator) -> tuple["Product", Array]:
        blocks, known = [], []
        for block, own in zip(self.blocks, self.family.split(lam), strict=True):
            component, drawn = block.component.drawn(own, rng)
            blocks.append(block._replace(component=component))
            known.append(drawn)
        return replace(self, blocks=tuple(blocks)), self.family.join(known)

    def with_completed(self, X: Any, completed: Array) -> Array:
        out = np.array(X, np.float64)
        for block in self.blocks:
            own = out[:, block.columns], completed[:, block.columns]
            out[:, block.columns] = block.component.with_completed(*own)
        return out

    def without_indicator(self, column: int) -> "Product":
        blocks = []
        for block in self.blocks:
            for place in np.flatnonzero(block.columns == column).tolist():
                block = block._replace(component=block.component.without_indicator(place))
            blocks.append(block)
        return replace(self, blocks=tuple(blocks))

    def parts(self, lam: Array) -> dict[str, tuple[Component, Array]]:
        pairs = zip(self.blocks, self.family.split(lam), strict=True)
        return {block.name: (block.component, own) for block, own in pairs}

    def block_evidence(self, sums: Array) -> Array:
        """Log marginal likelihood of each block's values, (K, number of blocks) in nats."""
        out = np.empty((sums.shape[0], len(self.blocks)))
        for b, (block, part) in enumerate(zip(self.blocks, self.of_blocks(sums), strict=True)):
            with of_block(block.name):
                out[:, b] = block.component.log_evidence(part)
        return out

    def column_evidence(self, sums: Array) -> Array:
        parts = zip(self.blocks, self.of_blocks(sums), strict=True)
        return np.concatenate([block.component.column_evidence(part) for block, part in parts], 1)

    def marginals(self, lam: Array) -> Any:
        parts = zip(self.blocks, self.family.split(lam), strict=True)
        return [block.component.marginals(own) for block, own in parts]

    def sample(self, lam: Array, n_rows: int, rng: np.random.Generator) -> Array:
        """Rows of the posterior predictive of one component; NaN in columns of no block."""
        out = np.full((n_rows, self.n_features), np.nan, self.dtype)
        for block, own in zip(self.blocks, self.family.split(lam), strict=True):
            out[:, block.columns] = block.component.sample(own, n_rows, rng)
        return out


@dataclass(frozen=True)
class HolesOfBlocks:
    """Missing values of several blocks, which are independent: their contributions add up."""

    parts: tuple[tuple[slice, Holes], ...]

    def add_to(self, logits: Array, entropy: Array) -> None:
        for _, holes in self.parts:
            holes.add_to(logits, entropy)

    def add_statistics(self, weighted: Array, sums: Array) -> None:
        for place, holes in self.parts:
            own = np.zeros((sums.shape[0], place.stop - place.start))
            holes.add_statistics(weighted, own)
            sums[:, place] += own


def slices_of(widths: list[int]) -> list[slice]:
    """Places of ``widths`` entries each, one after the other."""
    ends = np.cumsum([0, *widths]).tolist()
    return [slice(*pair) for pair in pairwise(ends)]


def as_slice(columns: IndexArray) -> slice | IndexArray:
    """Consecutive columns as a slice, which yields a view of an array."""
    first = int(columns[0])
    if np.array_equal(columns, np.arange(first, first + columns.size)):
        return slice(first, first + columns.size)
    return columns
