"""Step sizes of stochastic inference."""

from dataclasses import dataclass

from skvt.files import in_files


@in_files("schedules.RobbinsMonro")
@dataclass(frozen=True)
class RobbinsMonro:
    """Steps ``rho_t = scale (offset + t)^(-decay)``, at most 1, t = 0, 1, ... [HBWP13 eq. 26]."""

    # Delay >= 1: down-weights early steps.
    offset: float
    # Forgetting rate; (0.5, 1] guarantees convergence, 0 gives constant steps of 1.
    decay: float
    # If above 1, the first steps have size 1.
    scale: float = 1.0

    def __call__(self, step: float) -> float:
        """Step size of step number ``step``, at most 1."""
        return min(1.0, self.scale * (self.offset + step) ** -self.decay)
