"""Mixtures whose number of components changes: their batches, algorithms and moves."""

from dataclasses import asdict

import numpy as np

from skvt.inference import MemoizedInference, Rows, StochasticInference
from skvt.moves import Birth, Delete, Merge

# Rows of a batch where the user does not say: about ten batches within this range.
SMALLEST_BATCH, LARGEST_BATCH = 1_000, 50_000


class MovesMixin:
    """``algorithm``, ``moves``, ``n_batches`` and ``batch_size``."""

    def _check_parameters(self):
        if self.n_batches is not None and self.batch_size is not None:
            raise ValueError(
                f"Give n_batches or batch_size, not both. Got n_batches={self.n_batches} and "
                f"batch_size={self.batch_size}."
            )
        unknown = [move for move in self.moves if move not in ("birth", "merge", "delete")]
        if unknown:
            raise ValueError(
                "The 'moves' parameter must be a tuple of 'birth', 'merge' and 'delete', or () for "
                f"none. Got {unknown[0]!r} in it."
            )

    @property
    def _most_components(self):
        """Where births stop."""
        raise NotImplementedError

    @property
    def _remembers(self):
        return self.algorithm in ("memoized", "full")

    @property
    def _stream_weight(self):
        return self.total_samples

    def _rows(self, X, weights):
        n_rows = X.shape[0]
        if self.n_batches is not None and self.n_batches > n_rows:
            raise ValueError(
                f"The 'n_batches' parameter must be in the range [1, n_samples] = [1, {n_rows}]. "
                f"Got {self.n_batches} instead."
            )
        return Rows(X, weights, self._minibatch_size(n_rows))

    def _minibatch_size(self, n_rows):
        if self.algorithm == "full":
            return n_rows
        if self.n_batches is not None:
            return -(-n_rows // self.n_batches)
        if self.batch_size is not None:
            return min(self.batch_size, n_rows)
        return min(n_rows, int(np.clip(-(-n_rows // 10), SMALLEST_BATCH, LARGEST_BATCH)))

    def _engine(self):
        if self.algorithm == "stochastic":
            return StochasticInference(self._learning_rate())
        # deletes before merges, so that rows of a component that fades go each where they belong
        makers = {
            "delete": Delete,
            "merge": Merge,
            "birth": lambda: Birth(self._most_components),
        }
        return MemoizedInference([make() for name, make in makers.items() if name in self.moves])

    def _publish(self):
        state = self._fitted.state
        log = [asdict(record) for record in state.move_log]
        names = ("n_iter", "move", "proposed", "accepted", "gain")
        self.move_log_ = {name: [record[name] for record in log] for name in names}
        self.weight_concentration_prior_ = self._fitted.model.weights.concentration
