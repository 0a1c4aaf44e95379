"""Engines: the inference algorithms, which learn the posterior of the global parameters of a model.

All engines work with all models that have the capabilities which the engine requires.
"""

from skvt.inference._after_pass import Averaging, MovesBetweenPasses
from skvt.inference._blas import one_blas_thread
from skvt.inference._bound import compute_global_divergence, evaluate_bound, iterate_local_results
from skvt.inference._chunks import Chunk, Chunks, ChunkWeights, summarize_chunk
from skvt.inference._cluster import ChunkHandle, SealedValue, get_active_site, name_chunk_in_errors
from skvt.inference._collapsed import CollapsedInference, average_collapsed_passes
from skvt.inference._coordinate import CoordinateAscent
from skvt.inference._loop import History, HistoryEntry, Position, fit_loop
from skvt.inference._memoized import EngineTools, MemoizedInference
from skvt.inference._memos import find_unused_key
from skvt.inference._parallel import Workers
from skvt.inference._phases import Phase, make_ascent_phases, make_polish_phase
from skvt.inference._pilot import Pilot
from skvt.inference._plan import Plan, Stopping, StreamPlan, perplexity, perplexity_fall
from skvt.inference._state import ROWS_PER_BATCH, MemoizedState, Rows, State, make_rows
from skvt.inference._stochastic import StochasticInference
from skvt.inference._structured import GLOBAL_STEPS, StructuredInference
from skvt.inference._visit import VisitRequest, VisitResult, weight_by_temperature
