"""The policies of the paper on TLA: first come, first served; they differ in the site where a job starts."""

from deskgrid.papers.tla.policies.ai2 import AdaptiveIntelligent2
from deskgrid.papers.tla.policies.tla import TemporalLookAhead
from deskgrid.scheduler.parallel.order import FirstCome
from deskgrid.scheduler.parallel.sizes import Rigid
from deskgrid.scheduler.parallel.where import BestFit, Fastest
from deskgrid.scheduler.policies.parallel import policy_of

# At the fastest site, at the one that fits best, or at one of both (Section 2.3).
FF = policy_of("ff", FirstCome, Rigid, Fastest)
BF = policy_of("bf", FirstCome, Rigid, BestFit)
AI2 = policy_of("ai2", FirstCome, Rigid, AdaptiveIntelligent2)
# At the site that is best for all that wait (Section 3).
TLA = policy_of(
    "tla",
    FirstCome,
    Rigid,
    TemporalLookAhead,
    options=("simulation_depth", "allocation_depth", "inner", "seed", "explain"),
)
