"""The policies of the paper on RHAP: equal partitions, first come, first served, on the first PCs that are free."""

from deskgrid.papers.rhap.policies import partition
from deskgrid.papers.rhap.policies.listed import Listed
from deskgrid.scheduler.parallel.order import FirstCome
from deskgrid.scheduler.policies.parallel import policy_of

AP2 = policy_of("ap2", FirstCome, partition.AP2, Listed)
MAP = policy_of("map", FirstCome, partition.MAP, Listed, options=("f",))
HAP = policy_of("hap", FirstCome, partition.HAP, Listed, options=("f",))
RHAP = policy_of("rhap", FirstCome, partition.RHAP, Listed, options=("f", "most"))
MAX = policy_of("max", FirstCome, partition.MAX, Listed, options=("most",))
