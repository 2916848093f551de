"""Every message, and every row in a message. The annotation of a field gives its limits, which decoding checks.

A message is a frozen dataclass. A row (one of many in a message) is a named tuple, because a busy grid makes thousands
of rows a second and a named tuple costs a third of a frozen dataclass.

Rule 1: durations in seconds, never dates: the clocks of lab PCs are wrong.
Rule 2: an honest peer keeps to the limits by itself: it refuses anything over a limit before it sends it.
"""

import typing

from deskgrid.wire.limits import CONTROL_BYTES, MESSAGE_LIMIT, SAID_BYTES
from deskgrid.wire.messages.client import (
    Accepted,
    Answer,
    Ask,
    Failed,
    Greeting,
    Hello,
    Outcomes,
    Submit,
    Watch,
)
from deskgrid.wire.messages.common import Blob, Fetch, Goodbye, Refused, Rejoin
from deskgrid.wire.messages.files import Claim, Kept, Lacks, Offer, Part, Want
from deskgrid.wire.messages.ranks import (
    Meet,
    Met,
    PmiBytes,
    PrepareRanks,
    RanksEnded,
    RanksReady,
    RanksTaken,
    RanksUnready,
    StartRanks,
)
from deskgrid.wire.messages.worker import (
    Assign,
    Checkpoint,
    CheckpointKept,
    Enrol,
    Enrolled,
    Finished,
    Heartbeat,
    Join,
    Leave,
    OutputShown,
    Planned,
    Prepare,
    Prepared,
    Recall,
    Resume,
    Returned,
    Saved,
    ShowOutput,
    Stop,
    Taken,
    Welcome,
)

Message = (
    Join
    | Heartbeat
    | Finished
    | Leave
    | Returned
    | Welcome
    | Assign
    | Recall
    | Stop
    | Taken
    | Planned
    | Fetch
    | Blob
    | Goodbye
    | Refused
    | Rejoin
    | Hello
    | Submit
    | Watch
    | Ask
    | Greeting
    | Accepted
    | Outcomes
    | Answer
    | Failed
    | Enrol
    | Enrolled
    | Offer
    | Part
    | Want
    | Lacks
    | Kept
    | Saved
    | Resume
    | CheckpointKept
    | Checkpoint
    | Prepare
    | Prepared
    | PrepareRanks
    | StartRanks
    | RanksReady
    | RanksUnready
    | RanksEnded
    | RanksTaken
    | Meet
    | Met
    | PmiBytes
    | ShowOutput
    | OutputShown
    | Claim
)

# The tag of a message is its position here, so a new message goes to the end.
MESSAGES: tuple[type[Message], ...] = typing.get_args(Message)

# The first message of a peer. Their tags, and that they begin with the version, never change (`deskgrid.wire.version`).
INTRODUCTIONS = (Join, Hello, Enrol)

FROM_LAB = (Enrol,)
FROM_RANKS = (RanksReady, RanksUnready, RanksEnded, Meet, PmiBytes)
FROM_WORKER = (
    Join,
    Heartbeat,
    Finished,
    Leave,
    Returned,
    Fetch,
    Saved,
    Resume,
    Prepared,
    OutputShown,
    Claim,
    *FROM_RANKS,
)
FROM_CLIENT = (Hello, Submit, Watch, Ask, Blob, Goodbye)
# From workers and clients.
FROM_BOTH = (Offer, Part, Want)

# The maximum bytes of each message, not counting the large payloads behind it. CONTROL_BYTES is for control messages.
MOST: dict[type[Message], int] = dict.fromkeys(MESSAGES, CONTROL_BYTES)
MOST |= dict.fromkeys((Finished, Saved, Submit, Blob, Part, RanksEnded, Meet), SAID_BYTES)
MOST |= dict.fromkeys((Assign, Checkpoint, Outcomes, Answer, PrepareRanks, Met), MESSAGE_LIMIT)
