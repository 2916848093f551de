"""The policies of CISNE: PCs with the least load, or such that jobs which compute share them with some that do not."""

from deskgrid.papers.cisne.policies.where import Normal, Uniform
from deskgrid.scheduler.parallel.order import Easy, FirstCome
from deskgrid.scheduler.parallel.sizes import Rigid
from deskgrid.scheduler.policies.parallel import policy_of

NORMAL = policy_of("cisne-normal", FirstCome, Rigid, Normal, options=("mpl",))
UNIFORM = policy_of("cisne-uniform", FirstCome, Rigid, Uniform, options=("mpl",))
NORMAL_EASY = policy_of("cisne-normal-easy", Easy, Rigid, Normal, options=("mpl",))
UNIFORM_EASY = policy_of("cisne-uniform-easy", Easy, Rigid, Uniform, options=("mpl",))
