"""Models whose number of components changes: their batches, engines and moves."""

from dataclasses import replace

import numpy as np

from skvt.components.specs import is_auto
from skvt.estimators._base import all_or_nothing
from skvt.estimators._mixins import MoveLogMixin
from skvt.expfam import Beta
from skvt.inference import MemoizedInference, Plan, StochasticInference
from skvt.models import n_active
from skvt.models.mixture import StickBreaking, labelled_statistics
from skvt.moves import Birth, Delete, Merge
from skvt.rows import layout_of
from skvt.schedules import RobbinsMonro

# Default number of rows of a batch: about ten batches, within this range.
SMALLEST_BATCH, LARGEST_BATCH = 1_000, 50_000


def sticks(concentration):
    """Sticks of this concentration; None and "auto" start with 1."""
    given = concentration is not None and not is_auto(concentration)
    return StickBreaking(float(concentration) if given else 1.0)


def begun_with_labels(model, labels, X, weights, most):
    """The model with an initial component for each label; unchanged without labels."""
    if labels is None:
        return model
    if layout_of(X).size:
        raise ValueError(
            "The 'labels_init' parameter is for rows in memory. Got labels for rows in chunks; "
            "leave it None, or fit to some of the rows first and begin there by warm_start=True."
        )
    given = np.asarray(labels)
    legal = given.shape == (X.shape[0],) and given.dtype.kind in "iuf"
    if legal:
        with np.errstate(invalid="ignore"):
            whole = given.astype(np.int64)
        legal, given = np.array_equal(whole, given), whole
    if not legal or given.min() < -1 or given.max() < 0:
        raise ValueError(
            f"The 'labels_init' parameter must be an array of whole numbers of shape (n_samples,) "
            f"= ({X.shape[0]},), one for each row of positive weight: 0, 1, ..., or -1 where the "
            f"label is not known, but not everywhere. Got {labels!r} instead."
        )
    known, numbers = np.unique(given[given >= 0], return_inverse=True)
    if known.size > most:
        raise ValueError(
            f"The 'max_components' parameter must be in the range [number of labels, inf) = "
            f"[{known.size}, inf). Got {most} instead."
        )
    places = np.full(given.size, -1, np.intp)
    places[given >= 0] = numbers
    return replace(model, start=labelled_statistics(model, X, weights, places))


class RemembersMixin:
    """``partial_fit`` of estimators that remember batches."""

    @all_or_nothing
    def partial_fit(self, X, y=None, sample_weight=None, batch_id=None):
        """Update on one more batch, or on a batch seen before.

        Parameters
        ----------
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            The rows of one batch, as in ``fit``.
        y : ignored
            Not used.
        sample_weight : array-like of shape (n_samples,), optional
            A row of weight w counts w times.
        batch_id : hashable or None, default=None
            None adds X as a new batch. With the id of an earlier call (or the number of a batch of
            ``fit``, from 0), X replaces that batch: several passes over batches on disk are thus
            calls with the same ids. Where nothing is remembered (``learning_method="online"`` and
            "structured"), a step is made for every ``batch_size`` rows, and ids are not used.

        Returns
        -------
        self : estimator
            The estimator after this batch.

        Notes
        -----
        Births are made within the batch, merges of components of a mixture with the memos of all
        batches; both only where the exact bound rises. Other moves need the rows of all batches,
        and are made by ``fit`` alone. What ``fit`` takes from the data, such as priors and
        categories, comes from the first batch.
        """
        return self._partial_fit(X, sample_weight, batch_id=batch_id)


class MemoizedMixin(RemembersMixin, MoveLogMixin):
    """``learning_method``, ``moves``, ``n_batches`` and ``batch_size``."""

    # Of `_batch_size`, and whether a unit of data is a word.
    _rows_of_batch = SMALLEST_BATCH, LARGEST_BATCH
    _in_words = False

    _fixed_in_streams = ("learning_method",)
    # (not parameters of the model, but checked with it)
    _model_parameters = ("moves", "n_batches", "batch_size", "max_components")

    def _is_full(self):
        most = getattr(self, "max_components", np.inf)
        has_grown = "birth" in self.moves and most > self.n_components
        return has_grown and self._fitted.model.size(self._fitted.stats) >= most

    def _check_combinations(self):
        if self.n_batches is not None and self.batch_size is not None:
            raise ValueError(
                f"Give n_batches or batch_size, not both. Got n_batches={self.n_batches} and "
                f"batch_size={self.batch_size}."
            )
        self._check_moves(("birth", "merge", "delete"))

    def _plan(self, model, X, weights, *, stream=False):
        """What a fit is made of: stochastic inference, or memoized inference with moves."""
        if not stream:
            self._check_batches(X.shape[0])
        data = minibatches = self._rows_of(X, weights, self._batch_size(X.shape[0]))
        rate = self._rate
        if self.learning_method == "online":
            engine = StochasticInference(rate)
        else:
            engine = MemoizedInference(self._moves_of_fit())
            data = self._rows_of(X, weights, X.shape[0]) if stream else minibatches
        return Plan(
            data=data,
            engine=engine,
            policy=self._temperature_policy(model),
            stopping=self._stopping,
            minibatches=minibatches,
            rate=rate,
            total_samples=self.total_samples,
            in_words=self._in_words,
        )

    @property
    def _rate(self):
        """Step sizes, online."""
        return RobbinsMonro(self.learning_offset, self.learning_decay)

    def _batch_size(self, n_rows):
        """Number of rows per batch for this total number of rows."""
        if self.learning_method == "batch":
            return n_rows
        if self.n_batches is not None:
            return -(-n_rows // self.n_batches)
        if self.batch_size is not None:
            return min(self.batch_size, n_rows)
        return min(n_rows, int(np.clip(-(-n_rows // 10), *self._rows_of_batch)))

    def _check_batches(self, n_rows):
        """Raise ValueError for more batches than rows."""
        if self.n_batches is not None and self.n_batches > n_rows:
            raise ValueError(
                f"The 'n_batches' parameter must be in the range [1, n_samples] = [1, {n_rows}]. "
                f"Got {self.n_batches} instead."
            )

    def _moves_of_fit(self):
        """The moves chosen, in the order in which they finish; births last."""
        return [make() for name, make in self._makers().items() if name in self.moves]

    def _makers(self):
        """What makes a move, by its name."""
        raise NotImplementedError


class MovesMixin(MemoizedMixin):
    """The same for mixtures, and what these show of their weights."""

    @property
    def _most_components(self):
        """Where births stop."""
        raise NotImplementedError

    def _gathers_calls(self):
        return self.learning_method != "online" and "birth" in self.moves

    @property
    def _learns_concentration(self):
        return is_auto(self.weight_concentration_prior)

    def _makers(self):
        """Deletes before merges, so that each row of a vanishing component goes to its best one."""
        return {
            "delete": Delete,
            "merge": Merge,
            "birth": lambda: Birth(self._most_components),
        }

    def _published(self, model):
        return {"weight_concentration_prior_": model.weights.concentration}

    @property
    def n_active_components_(self):
        """Number of components to which at least a thousandth of the rows is expected to belong."""
        fitted = self._of_fit("n_active_components_")
        return n_active(fitted.model.counts(fitted.stats), fitted.model.dtype)

    @property
    def weight_concentration_(self):
        """Parameters of q of the sticks, shape (2, K), or of the Dirichlet, (K,)."""
        fitted = self._of_fit("weight_concentration_")
        weights = fitted.lam()[0]
        return weights.T if fitted.model.weights.family is Beta else weights[0]

    def sample_mixtures(self, n_samples=1, random_state=None):
        """Draw whole mixtures from the posterior.

        Parameters
        ----------
        n_samples : int, default=1
            Mixtures to draw.
        random_state : int, RandomState instance or None, default=None
            None uses the estimator's own.

        Returns
        -------
        dict
            "weights", shape (n_samples, K), which sum to less than 1 by the mass of components not
            yet seen; and "components", the parameters of each component as
            ``posterior_.components`` draws them: means and precisions of Gaussians.
        """
        fitted = self._require_fitted()
        given = self.random_state if random_state is None else random_state
        draws = self.posterior_.sample(n_samples, given)
        return draws | {"weights": fitted.model.weights.weights_of(draws["weights"])}
