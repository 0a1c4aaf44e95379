"""Step sizes of stochastic inference, by the number of the step."""

from dataclasses import dataclass

from skvt.files import in_files


@in_files("schedules.RobbinsMonro")
@dataclass(frozen=True)
class RobbinsMonro:
    """Step sizes ``rho_t = min(1, scale (offset + t)^(-decay))``, t = 0, 1, ... [HBWP13 eq. 26]."""

    # The delay, at least 1. A larger offset makes early steps smaller.
    offset: float
    # The forgetting rate. Values in (0.5, 1] guarantee convergence; 0 gives steps of size 1, if
    # ``scale`` is 1.
    decay: float
    # If above 1, the first steps have size 1.
    scale: float = 1.0

    def __call__(self, step: float) -> float:
        """Return the size of step number ``step``."""
        return min(1.0, self.scale * (self.offset + step) ** -self.decay)
