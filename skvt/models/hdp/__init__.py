"""The hierarchical Dirichlet process: topics whose number is learned, with moves of topics."""

from skvt.models.hdp._birth import BirthOfTopics
from skvt.models.hdp._delete import DeleteTopic
from skvt.models.hdp._merge import MergeTopics
from skvt.models.hdp._model import HDP
from skvt.models.hdp._sticks import Sticks
