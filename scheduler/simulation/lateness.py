"""How much longer than usual attempts take in a simulated run, by lot."""

from collections import Counter
from random import Random

from deskgrid.scheduler.simulation.runs import SLOWLY, Conditions


class Lateness:
    """Draws as `Conditions` says, in the order in which it is asked."""

    def __init__(self, conditions: Conditions) -> None:
        self._conditions = conditions
        self._random = Random(conditions.seed)
        self._tries = Counter[int]()

    def takes(self, task: int, seconds: float) -> float:
        """How long the next attempt of a task takes that usually takes ``seconds``."""
        conditions = self._conditions
        if conditions.slow:
            self._tries[task] += 1
            slow = Random(f"slow {conditions.seed} {task} {self._tries[task]}").random() < conditions.slow
            seconds *= SLOWLY if slow else 1.0
        if conditions.jitter:
            seconds *= 1.0 + conditions.jitter * self._random.expovariate(1.0)
        return seconds
