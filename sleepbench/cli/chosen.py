"""How the options of ``deskgrid sleepbench simulate`` change the parameters and the predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import click

from deskgrid.scheduler.model import UnknownOption, UnknownPolicy
from deskgrid.scheduler.policies import Policy
from deskgrid.sleepbench.parameters import Options, Parameters, paper_parameters
from deskgrid.sleepbench.simulated import Trial, policy_of, takes_option


class Chosen(NamedTuple):
    """The options that change the parameters; None if an option was not given."""

    paper: bool
    restart: float | None
    overhead: float | None
    overhead_known: bool | None
    opening: float | None
    jitter: float | None
    saving: float | None
    queue: int | None
    announce: str
    policy_option: Mapping[str, object]
    slow: float | None = None
    copies: bool = False

    def parameters(self, policies: Sequence[str]) -> Parameters:
        """The parameters of an ideal grid, or of the paper's, changed by the given options."""
        base = paper_parameters() if self.paper else Parameters()
        said = {
            "restart_s": self.restart,
            "overhead_s": self.overhead,
            "overhead_known": self.overhead_known,
            "opening_s": self.opening,
            "jitter": self.jitter,
            "saving_s": self.saving,
            "slow": self.slow,
            "copies": self.copies,
        }
        changed: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
        options = {name: self._options(name, base.options.get(name, {})) for name in policies}
        unused = {key for key in self.policy_option if "." not in key}.difference(*options.values())
        if unused:
            raise click.BadParameter(f"no policy takes {min(unused)!r}", param_hint="--policy-option")
        return replace(base, announces=self.announce == "all", options=options, **changed)

    def _options(self, policy: str, base: Options) -> Options:
        """The options of one policy. An option without a policy's name is for all policies that have it."""
        options = dict(base)
        if self.queue is not None and takes_option(policy, queue_length=self.queue):
            options["queue_length"] = self.queue
        for key, value in self.policy_option.items():
            owner, dot, name = key.rpartition(".")
            if owner == policy or (not dot and _has_option(policy, name, value)):
                options[name] = value
        return options


def _has_option(policy: str, name: str, value: object) -> bool:
    """Whether the policy has this option. A wrong value is reported later, when the policy is made."""
    try:
        policy_of(policy, {name: value}, 0)
    except UnknownOption:
        return False
    except UnknownPolicy:
        pass
    return True


def new_policies(policies: Sequence[str], parameters: Parameters) -> list[Policy]:
    return [_new_policy(name, parameters.options[name]) for name in policies]


def _new_policy(name: str, options: Options) -> Policy:
    try:
        return policy_of(name, options, 0)
    except UnknownPolicy as error:
        raise click.BadParameter(str(error), param_hint="--policy-option" if options else "--policy") from error


class ErrorSweep(NamedTuple):
    """The errors tried for each problem and policy: all combinations of runtime and uptime factors."""

    runtime: Sequence[float]
    uptime: Sequence[float]

    @property
    def asked(self) -> bool:
        return bool(self.runtime or self.uptime)

    def pairs(self) -> list[tuple[float, float]]:
        """(F of runtimes, F of uptimes)."""
        return [(runtime, uptime) for runtime in self.runtime or (1.0,) for uptime in self.uptime or (1.0,)]

    def name(self, trial: Trial) -> str:
        """The name of a line of the table."""
        runtime = f" F={trial.runtime_error:g}" if self.runtime else ""
        uptime = f" F={trial.uptime_error:g}" if self.uptime else ""
        return f"{trial.policy}{runtime}{uptime}"

    def title(self) -> str:
        """The meaning of F, for the title of the table, in the order in which the names of lines have the factors."""
        what = [*["runtimes"] * bool(self.runtime), *["uptimes"] * bool(self.uptime)]
        return f", F: of predicted {' and '.join(what)}" if what else ""
