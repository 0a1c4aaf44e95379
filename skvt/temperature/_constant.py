"""A constant temperature."""

from dataclasses import dataclass

from skvt.contracts import FitPlan, RunningPolicy, TemperaturePolicy


@dataclass(eq=False, repr=False)
class ConstantTemperature(TemperaturePolicy):
    """One temperature throughout the fit.

    Parameters
    ----------
    value : float, default=1.0
        Temperature, at least 1. Unless it is 1, the result is the posterior of the tempered model
        [VT16 eq. 2], not of the model itself.

    Examples
    --------
    >>> from skvt import TemperedLDA
    >>> from skvt.datasets import make_topic_corpus
    >>> from skvt.temperature import ConstantTemperature
    >>> X = make_topic_corpus(60, n_components=3, n_features=30, random_state=0).X
    >>> lda = TemperedLDA(3, temperature=ConstantTemperature(1.2), max_iter=3, random_state=0)
    >>> lda.fit(X).history_["temperature"]
    [1.2, 1.2, 1.2]
    """

    value: float = 1.0

    def check(self, plan: FitPlan) -> None:
        self._require("value", 1.0)

    def start(self, plan: FitPlan) -> RunningPolicy:
        running = RunningPolicy()
        running.mean_inv_temp = 1.0 / self.value
        return running
