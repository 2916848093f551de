"""The policies of the paper on SCOJO-P: EASY backfilling in the order of its classes; they differ in sizes."""

from functools import partial

from deskgrid.papers.scojo_p.policies.cirne_berman import CirneBerman
from deskgrid.papers.scojo_p.policies.classes import Classes
from deskgrid.papers.scojo_p.policies.nmin import Nmin
from deskgrid.papers.scojo_p.policies.scojo import Scojo
from deskgrid.scheduler.parallel.sizes import Rigid
from deskgrid.scheduler.parallel.where import Fastest
from deskgrid.scheduler.policies.parallel import policy_of

RIGID = policy_of("rigid", Classes, Rigid, Fastest)
NMIN = policy_of("nmin", Classes, Nmin, Fastest)
CIRNE_BERMAN = policy_of("cirne-berman", Classes, CirneBerman, Fastest)
CIRNE_BERMAN_SHRINK = policy_of("cirne-berman-shrink", Classes, partial(CirneBerman, shrinks=True), Fastest)
SCOJO = policy_of("scojo", Classes, Scojo, Fastest, options=("ideal",))
SCOJO_P = policy_of("scojo-p", Classes, partial(Scojo, predicts=True), Fastest, options=("ideal",))
