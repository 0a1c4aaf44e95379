"""The outcome of a fit, and the properties by which estimators show the outcome to users."""

from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from skvt.contracts import MoveRecord, RunningPolicy
from skvt.files import in_files
from skvt.fitting._buffer import Gathered
from skvt.fitting._move_log import MoveLog
from skvt.inference import History, State
from skvt.models.mixture import Joins
from skvt.readers import Reader
from skvt.typing import Array, IndexArray


@in_files("estimators.Fitted", nan=("parameters",))
@dataclass(frozen=True)
class Fitted:
    """The outcome, final or so far, of a fit or of a stream of calls of ``partial_fit``.

    beta are the global variables of the model, such as the parameters of its K components, and z
    are the local variables of a row, such as the component of the row.

    - ``model``: the model with the learned priors.
    - ``state``: the statistics, which determine q(beta), and the position in the fit.
    - ``policy``: the running temperature policy, which sets the temperature T of each step.
    - ``n_rows``: the total weight of the rows that the statistics represent.
    - ``counts_rows``: if True, ``n_rows`` is the total weight of the rows of ``fit`` and of all
      later calls of ``partial_fit``. If False, ``n_rows`` is the assumed size of a stream.
    - ``elbo``: the bound (ELBO) of these rows in nats; None during a fit, in a stream, and after
      topics were merged or dropped.
    - ``history``: the records of passes and calls.
    - ``parameters``: values of the estimator's parameters at the last call.
    - ``assignments`` (n, K): q(z) of the rows of the last call, if the estimator publishes q(z).
    - ``labels`` (n,): the most probable component of each row of the last call.
    - ``component_classes`` (K,): the classes of components, if rows had labels.
    - ``topic_labels``: the names that the user gave to topics, by identifiers of topics.
    - ``cluster_labels``: the names that the user gave to clusters, by the identifiers of the
      components of each cluster.
    - ``words`` (n_features,): the names of the columns.
    - ``joins``: the sequence in which components are joined to clusters.
    - ``seen``: the checksum of the rows of ``fit``, and the number of rows of a batch. A warm start
      in which both are the same uses the memos of the batches again, which have the statistics and
      entropies of the batches. None if the state has no memos of the rows of ``fit``.
    - ``gathered``: rows of the last small calls of ``partial_fit``, among which births, the moves
      that add components, are tried.
    - ``n_words``: the sum of all counts of words in ``fit``.
    - ``reader``: the reader, which converts further rows to numbers; None during a fit.
    """

    model: object
    state: State
    policy: RunningPolicy
    n_rows: float
    counts_rows: bool = True
    elbo: float | None = None
    history: History = field(default_factory=History)
    parameters: dict[str, Any] = field(default_factory=dict)
    assignments: Array | None = None
    labels: IndexArray | None = None
    component_classes: list[Any] | None = None
    topic_labels: dict[int, str] | None = None
    cluster_labels: dict[tuple[int, ...], str] | None = None
    words: NDArray[Any] | None = None
    joins: Joins | None = None
    seen: tuple[str, int] | None = None
    gathered: Gathered | None = None
    n_words: float | None = None
    # The reader is not in files: `skvt.load` makes it from the attributes of the estimator.
    reader: Reader | None = field(default=None, metadata={"process_only": True})

    @property
    def stats(self):
        """Statistics that count every row once.

        The statistics of the state may count each row several times while T > 1.
        """
        return self.state.plain_stats

    def lam(self):
        """Return the natural parameters of q(beta), a read-only array for each block of beta."""
        return self._lam

    @cached_property
    def _lam(self):
        lam = self.model.natural_parameters(self.stats)
        for array in lam:
            array.flags.writeable = False
        return lam

    @property
    def shown_fit(self):
        """The fit without the background of a mixture, for attributes and predictions.

        The background is a component of the rows that belong to no cluster. Without a background,
        return this fit.
        """
        return self._shown_fit or self

    @cached_property
    def _shown_fit(self):
        """The fit without the background; None if there is no background."""
        model, stats = self.model.without_background(self.stats)
        if model is self.model:
            return None
        # ``stats`` count every row once, as at T = 1. The memos are left out.
        state = self.state.convert_to_state(stats=stats, inv_temp=1.0, replication=1.0)
        return replace(self, model=model, state=state)

    def draft(self, stat_rows=None, **changes):
        """Return a copy with changed fields, independent of this fit.

        The caller may change the state, the policy and the history of the copy in place. In the
        arrays of statistics, the caller may change only the rows ``stat_rows``, such as the rows of
        some words in a topic model. None stands for all rows.
        """
        state, policy = self.state.draft(stat_rows), deepcopy(self.policy)
        return replace(self, state=state, policy=policy, history=History(self.history), **changes)

    def with_names_by_position(self):
        """Return the fit in which the positions of components are the keys of names.

        Without memos of an earlier fit, a fit gives its components new identifiers: 0, 1, ...
        """
        ids = getattr(self.state, "component_ids", np.empty(0)).tolist()
        if not ids:
            return self
        position_of = {component_id: position for position, component_id in enumerate(ids)}
        topic_labels = {
            position_of[topic]: name
            for topic, name in (self.topic_labels or {}).items()
            if topic in position_of
        }
        cluster_labels = {}
        for cluster, name in (self.cluster_labels or {}).items():
            if position_of.keys() >= set(cluster):
                positions = sorted(position_of[component_id] for component_id in cluster)
                cluster_labels[tuple(positions)] = name
        return replace(
            self, topic_labels=topic_labels or None, cluster_labels=cluster_labels or None
        )

    @property
    def memos(self):
        """The memo of each batch by key; {} unless inference is memoized."""
        return getattr(self.state, "memos", {})

    def can_be_replaced_by(self, gathered, n_components):
        """Return whether a new model of the gathered rows can replace the fit without loss.

        ``gathered`` are the rows of this call and of earlier calls, or None. ``n_components`` is
        the number of components without a background.

        - Without memos, the gathered rows must come from several calls. They are then all rows so
          far, because rows are gathered only from the beginning of a stream.
        - With memos, births must be due, all memos must belong to gathered rows, and the fit must
          have a single component, so that no division of the rows into components is lost.
        """
        if gathered is None:
            return False
        if not self.memos:
            return gathered.from_several_calls
        has_all_memos = set(self.memos) <= gathered.memo_keys
        return gathered.is_due and has_all_memos and n_components == 1

    def without_data_of_rows(self):
        """Return the fit without the fields that predictions in other processes do not need.

        Memos, data of single rows, the log of moves, the policy and the words are left out.
        """
        state = self.state.convert_to_state(row_starts=None, move_log=[])
        omitted_fields = dict.fromkeys(("policy", "assignments", "labels", "words", "gathered"))
        return replace(self, state=state, **omitted_fields)

    def __getstate__(self):
        # The cached properties are left out, because they can be computed again.
        cached_names = "_lam", "_shown_fit"
        return {name: value for name, value in vars(self).items() if name not in cached_names}


class fitted_property(property):
    """Decorator that makes a method a property of fitted estimators.

    The method takes the :class:`Fitted` that attributes show. Before a fit, the property raises
    NotFittedError, which is an AttributeError.
    """

    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, estimator, owner=None):
        if estimator is None:
            return self
        if "_fitted" not in vars(estimator):
            raise NotFittedError(
                f"{type(estimator).__name__!r} object has no attribute {self.name!r} before fit."
            )
        return self.fget(estimator, estimator._get_shown_fit(estimator._fitted))


def model_property(path, doc):
    """Make a property that returns a field of the fitted model.

    ``path`` is a chain of attributes of the model, such as "sticks.concentration", and ``doc`` is
    the docstring of the property. Arrays are copied, so that a caller who changes the array does
    not change the model.
    """

    def read_field(estimator, fitted):
        value = attrgetter(path)(fitted.model)
        return value.copy() if isinstance(value, np.ndarray) else value

    read_field.__doc__ = doc
    return fitted_property(read_field)


class MoveLogMixin:
    """The attribute ``move_log_``."""

    @fitted_property
    def move_log_(self, fitted):
        """Proposals of moves, as columns of a table."""
        records = fitted.state.move_log
        names = [field.name for field in fields(MoveRecord)]
        return MoveLog({name: [getattr(record, name) for record in records] for name in names})
