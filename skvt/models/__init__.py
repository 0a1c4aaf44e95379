"""What each model knows of its likelihood: what rooms share, and a room for each."""

from skvt.models._active import n_active
from skvt.models._dirichlet_correction import Gammas, corrected_statistics
from skvt.models._known_partition import choice_log_partition, noise_log_partition
