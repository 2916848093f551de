"""The wire protocol: every message, the limits of its fields, and one codec for all messages.

Import it with ``from deskgrid import wire``. Inside, each file imports only files above it in this list:

- `limits`: every limit, with its reason;
- `text`, `payload`, `batches`: cleaned text, large payloads, rows that travel together;
- `source`: a reader of packed values, one by one, lengths first;
- `fields`: the types and ranges of fields;
- `failure`, `template`: a worker's account of a failure, and the data that all tasks of a bag share;
- `task_options`: a submitter's options for every task of a bag;
- `messages`: the messages and their rows;
- `codec`: messages to bytes and back.

Outside this order are `joinline` (the line to paste), `status` (the status document) and `dealer` (the socket with
which workers and clients send and receive messages).

``python -m deskgrid.wire`` prints the table of limits that is in SECURITY.md.
"""

from deskgrid.wire.batches import in_batches
from deskgrid.wire.codec import (
    FIELDS,
    ProtocolError,
    decode,
    encode,
    large_of,
    pack_columns,
    parts_of,
    results_in,
    results_of_tasks,
    weight,
)
from deskgrid.wire.failure import UNREADABLE, Failure, read_failure
from deskgrid.wire.limits import (
    ACCOUNT_CHARACTERS,
    ANSWER_BYTES,
    ARGUMENTS_LIMIT,
    BAG_LIMIT,
    BATCH_BYTES,
    BATCH_ROWS,
    CHUNK_BYTES,
    CONTROL_BYTES,
    FILES_LIMIT,
    HELD_ROWS,
    KEY_BYTES,
    LARGE_BYTES,
    LINE_BYTES,
    MESSAGE_LIMIT,
    NAME_BYTES,
    PAYLOAD_LIMIT,
    PICKLED_BYTES,
    PRINTED_BYTES,
    QUESTION_BYTES,
    QUESTION_ITEMS,
    RESULTS_ROWS,
    RETRIES_LIMIT,
    SAID_BYTES,
    SECONDS_LIMIT,
    SLOTS_LIMIT,
    TABLE_BYTES,
    WINDOWS_LIMIT,
)
from deskgrid.wire.messages import FROM_CLIENT, FROM_LAB, FROM_WORKER, MESSAGES, Message
from deskgrid.wire.messages.client import (
    Accepted,
    Answer,
    Ask,
    BagResult,
    Failed,
    Greeting,
    Hello,
    Outcomes,
    Submit,
    Watch,
)
from deskgrid.wire.messages.common import Blob, Fetch, Goodbye, Outcome, Refused, Rejoin
from deskgrid.wire.messages.worker import (
    Assign,
    Enrol,
    Enrolled,
    Finished,
    Heartbeat,
    Join,
    Leave,
    Planned,
    Recall,
    Ref,
    Result,
    Returned,
    Running,
    Stop,
    Taken,
    Welcome,
    Window,
    Work,
)
from deskgrid.wire.payload import Chunks, Payload, frames_of, payload_of, sha256_of
from deskgrid.wire.task_options import TaskOptions, read_task_options
from deskgrid.wire.template import KINDS, Kind, TemplateRefused, read_template, template_kind
from deskgrid.wire.text import clean, clean_lines, cut, is_longer

VERSION = "0.1.0"

__all__ = [
    "ACCOUNT_CHARACTERS",
    "ANSWER_BYTES",
    "ARGUMENTS_LIMIT",
    "BAG_LIMIT",
    "BATCH_BYTES",
    "BATCH_ROWS",
    "CHUNK_BYTES",
    "CONTROL_BYTES",
    "FIELDS",
    "FILES_LIMIT",
    "FROM_CLIENT",
    "FROM_LAB",
    "FROM_WORKER",
    "HELD_ROWS",
    "KEY_BYTES",
    "KINDS",
    "LARGE_BYTES",
    "LINE_BYTES",
    "MESSAGES",
    "MESSAGE_LIMIT",
    "NAME_BYTES",
    "PAYLOAD_LIMIT",
    "PICKLED_BYTES",
    "PRINTED_BYTES",
    "QUESTION_BYTES",
    "QUESTION_ITEMS",
    "RESULTS_ROWS",
    "RETRIES_LIMIT",
    "SAID_BYTES",
    "SECONDS_LIMIT",
    "SLOTS_LIMIT",
    "TABLE_BYTES",
    "UNREADABLE",
    "VERSION",
    "WINDOWS_LIMIT",
    "Accepted",
    "Answer",
    "Ask",
    "Assign",
    "BagResult",
    "Blob",
    "Chunks",
    "Enrol",
    "Enrolled",
    "Failed",
    "Failure",
    "Fetch",
    "Finished",
    "Goodbye",
    "Greeting",
    "Heartbeat",
    "Hello",
    "Join",
    "Kind",
    "Leave",
    "Message",
    "Outcome",
    "Outcomes",
    "Payload",
    "Planned",
    "ProtocolError",
    "Recall",
    "Ref",
    "Refused",
    "Rejoin",
    "Result",
    "Returned",
    "Running",
    "Stop",
    "Submit",
    "Taken",
    "TaskOptions",
    "TemplateRefused",
    "Watch",
    "Welcome",
    "Window",
    "Work",
    "clean",
    "clean_lines",
    "cut",
    "decode",
    "encode",
    "frames_of",
    "in_batches",
    "is_longer",
    "large_of",
    "pack_columns",
    "parts_of",
    "payload_of",
    "read_failure",
    "read_task_options",
    "read_template",
    "results_in",
    "results_of_tasks",
    "sha256_of",
    "template_kind",
    "weight",
]
