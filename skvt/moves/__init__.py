"""Moves: births, merges and deletes of components, which are kept if the bound rises."""

from skvt.moves._base import compute_bound, concatenate_components, find_rounding_scale
from skvt.moves._birth import Birth
from skvt.moves._delete import Delete
from skvt.moves._fresh import fit_fresh_mixture
from skvt.moves._ledger import Ledger
from skvt.moves._merge import Merge, compute_pair_gains, dissolve
from skvt.moves._targets import Target, draw_targets
from skvt.moves._trial import (
    MERGE_DESCRIPTION,
    Decision,
    Trial,
    compete,
    decide,
    record_rejected_merges,
)
