"""Every limit of the protocol, by name. Where it applies is said by the fields of the messages.

A limit has a reason. Most follow from what honest peers send; a test holds those to the code that sends it.
"""

# One task's argument or result, or one template. Above it a task fails with a clear error and the grid goes on.
PAYLOAD_LIMIT = 64 * 2**20
# A payload from this size on is `Chunks`, and the broker keeps it as a file: for what is smaller, a file of its own
# costs more than to be copied with a batch.
LARGE_BYTES = 2**20
# A frame of a large payload: while one is deciphered the next is enciphered, and messages of others go between two.
CHUNK_BYTES = 2**20
# A batch closes at this size, so that one message never holds the line, or the broker's loop, for long. A single large
# payload travels alone.
BATCH_BYTES = 2**20
# Rows in one message: a few milliseconds of work for whoever decodes it.
BATCH_ROWS = 10_000
# Attempts that one worker may hold. The scheduler hands out no more (`deskgrid.scheduler.placing.WORKER_TASKS`); all of
# them, named at once when the worker introduces itself, fit into CONTROL_BYTES.
HELD_ROWS = 32_768
# What a worker or a client says in one message at most, not counting the large payloads behind it: a batch, its last
# row, and what 10,000 rows have beside their payloads. A longer message is none of ours, and would hold up the loop.
SAID_BYTES = BATCH_BYTES + 2 * LARGE_BYTES
# A message and its large payloads: one of the limit, and a batch around it.
MESSAGE_LIMIT = PAYLOAD_LIMIT + SAID_BYTES
# A message that carries neither payloads nor an answer. The longest is an introduction with HELD_ROWS attempts.
CONTROL_BYTES = 2**20
# The answer to a question: the status of a large lab has a few megabytes.
ANSWER_BYTES = 16 * 2**20
# The arguments of a question. A client asks about no more than QUESTION_ITEMS tasks at once.
QUESTION_BYTES = 2**20 - 2**12
QUESTION_ITEMS = 10_000

# Tasks in one bag. Ten times the largest measured; beyond it ids and indexes have not been tried.
BAG_LIMIT = 10_000_000
# Integers are kept in SQLite, whose integers have a sign.
COUNT_LIMIT = 2**63 - 1
# How often a task may be tried again after an error. With more, a task that always fails would run for ever.
RETRIES_LIMIT = 1_000_000
# Slots of one worker: more than the cores of any PC. Each is a row in several indexes.
SLOTS_LIMIT = 1024
# Announced windows: the coming week, at most this many.
WINDOWS_LIMIT = 64
# The longest duration, seconds: three hundred years, so that no sum over a bag or a week of windows overflows.
SECONDS_LIMIT = 1e10

# Names are shown in tables, and 255 bytes is what file systems and DNS allow, too.
NAME_BYTES = 255
# A public key of CURVE.
KEY_BYTES = 32
# What a submitter says of every task of a bag, packed: a few names and numbers.
OPTIONS_BYTES = 1024
# One line for people: a reason, a note, a plan.
LINE_BYTES = 1024
# The broker's windows for a worker, as JSON: a table of a year of exceptions has a tenth of that.
TABLE_BYTES = 64 * 2**10
# Captured stdout, and stderr: what workers keep of each, and the line that says how much was cut out.
PRINTED_BYTES = 64 * 2**10 + 2**8
# An error's message, and its traceback, in characters: likewise.
ACCOUNT_CHARACTERS = 64 * 2**10 + 2**8
# An exception, pickled: likewise.
PICKLED_BYTES = 64 * 2**10
# All that a worker may say of a failure: the above, with four bytes for each character.
ACCOUNT_BYTES = 2**20

# Arguments of a command line, and files in the bundle of a Python template: more than any we have seen, and few enough
# that what is made of a template has about its size.
ARGUMENTS_LIMIT = 10_000
FILES_LIMIT = 10_000
