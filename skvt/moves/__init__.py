"""Moves: changes of components that are kept if the bound rises."""

from skvt.moves._base import bound_of, concatenate_components, is_accepted, size_of
from skvt.moves._birth import Birth
from skvt.moves._delete import Delete
from skvt.moves._fresh import fresh_mixture
from skvt.moves._ledger import Ledger
from skvt.moves._merge import Merge, dissolve, pair_gains
from skvt.moves._targets import Target, choose
from skvt.moves._trial import ONE_FOR_BOTH, Outcome, Trial, compete, judged, rejected
