"""Models, a folder for each likelihood, and the functions that several models share."""

from skvt.models._active import count_active
from skvt.models._dirichlet_correction import Gammas, correct_statistics
from skvt.models._known_partition import compute_choice_partition, compute_noise_partition
from skvt.models._topics import Topics
