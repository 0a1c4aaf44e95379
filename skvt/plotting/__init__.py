"""Displays of fitted estimators, like those of scikit-learn.

A display is made from data, or from an estimator by ``from_estimator``, and can be drawn again by
``plot``. matplotlib is imported when a display is drawn. Pages for browsers do not need it.
"""

from skvt.plotting._clusters import ClusterTreeDisplay
from skvt.plotting._components import ComponentsDisplay
from skvt.plotting._effects import EffectsDisplay, TopicSharesDisplay
from skvt.plotting._explorer import topic_explorer
from skvt.plotting._history import ELBODisplay, TemperatureDisplay
from skvt.plotting._moves import MovesDisplay
from skvt.plotting._profiles import ProfilesDisplay
from skvt.plotting._pyldavis import prepare_arguments, save_pyldavis
from skvt.plotting._report import cluster_report
from skvt.plotting._topics import TopicsDisplay

__all__ = [
    "ClusterTreeDisplay", "ComponentsDisplay", "ELBODisplay", "EffectsDisplay", "MovesDisplay",
    "ProfilesDisplay", "TemperatureDisplay", "TopicSharesDisplay", "TopicsDisplay",
    "prepare_arguments", "save_pyldavis", "topic_explorer",
]  # fmt: skip
