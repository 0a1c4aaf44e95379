"""Contracts of models and their parts, of engines, moves and temperature policies."""

from skvt.contracts._component import (
    Completes,
    Completion,
    Component,
    Describes,
    HiddenValues,
    Likelihood,
    Predicts,
    SharesGlobals,
)
from skvt.contracts._engine import (
    AnyEngine,
    Engine,
    LocalTotals,
    PassInputs,
    PassResult,
    Resumable,
    StepAfterPass,
    Stream,
    StreamEngine,
)
from skvt.contracts._memo import Memo, Memos, MovableState, SampledState
from skvt.contracts._model import (
    PROTOCOLS,
    BatchScope,
    Capability,
    Collapsible,
    ConjugateModel,
    Correctable,
    Drawable,
    HasHyperprior,
    LocalResult,
    Memoizable,
    Mergeable,
    Model,
    PriorTerm,
    Requirement,
    Restartable,
    RowBatch,
    RowSource,
    Temperable,
    check_requirements,
    missing_members,
    require_one_temperature,
)
from skvt.contracts._move import (
    Move,
    MoveRecord,
    MoveTools,
    Observer,
    ObserverTools,
    SampledMove,
    SolvedBatch,
)
from skvt.contracts._policy import Batch, Energies, FitPlan, RunningPolicy, TemperaturePolicy
from skvt.contracts._weights import DrawnWeights, Weights
