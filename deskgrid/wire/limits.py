"""Every limit of the protocol, by name. The fields of the messages say where a limit applies.

Every limit has a reason. Most follow from the messages that honest peers send; a test compares these limits with the
code that sends the messages.
"""

# One task's argument or result, or one template. If a payload is larger, its task fails with a clear error and the grid
# goes on.
PAYLOAD_LIMIT = 64 * 2**20
# A payload of this size or more is `Chunks`, and the broker stores it as a file. For smaller payloads, a file of their
# own would cost more than copying them with a batch.
LARGE_BYTES = 2**20
# A frame of a large payload: while one frame is decrypted the next is encrypted, and messages of other peers can go
# between frames.
CHUNK_BYTES = 2**20
# A batch closes at this size, so that one message never holds up the connection or the broker's loop for long. A single
# large payload travels alone.
BATCH_BYTES = 2**20
# Rows in one message: decoding them takes a few milliseconds.
BATCH_ROWS = 10_000
# Results in one message of a worker. Handling one costs far more than decoding it: up to 40 microseconds for a crash.
RESULTS_ROWS = 500
# Attempts that one worker may hold. The scheduler hands out no more (WORKER_TASKS in
# `deskgrid.scheduler.placing.placing`). When a worker introduces itself and names all of them at once, they fit into
# CONTROL_BYTES.
HELD_ROWS = 8_192
# The longest message of a worker or a client, not counting the large payloads behind it: a batch, its last row, and the
# other columns of 10,000 rows. Honest peers send no longer message, and one would hold up the loop.
SAID_BYTES = BATCH_BYTES + 2 * LARGE_BYTES
# A message and its large payloads: one payload of the maximum size, and a batch around it.
MESSAGE_LIMIT = PAYLOAD_LIMIT + SAID_BYTES
# A message that carries neither payloads nor an answer. The longest is an introduction with HELD_ROWS attempts.
CONTROL_BYTES = 2**20
# The answer to a question: the status of a large lab takes a few megabytes.
ANSWER_BYTES = 16 * 2**20
# The arguments of a question. A client asks about no more than QUESTION_ITEMS tasks at once.
QUESTION_BYTES = 2**20 - 2**12
QUESTION_ITEMS = 10_000

# A checkpoint, and what a message carries of one: others are served between the messages.
CHECKPOINT_LIMIT = 2**30
CHECKPOINT_BYTES = 16 * 2**20

# Tasks in one bag: ten times the largest bag measured. Ids and indexes beyond it have not been tried.
BAG_LIMIT = 10_000_000
# Integers are stored in SQLite, whose integers are signed 64-bit.
COUNT_LIMIT = 2**63 - 1
# How many times a task may be tried again after an error. With more, a task that always fails would run forever.
RETRIES_LIMIT = 1_000_000
# Slots of one worker: more than the cores of any PC. Each is a row in several indexes.
SLOTS_LIMIT = 1024
# Announced windows: the coming week, at most this many.
WINDOWS_LIMIT = 64
# The longest duration in seconds: three hundred years, so that no sum over a bag or a week of windows overflows.
SECONDS_LIMIT = 1e10

# Ranks of one parallel task: as many as one worker may have slots.
RANKS_LIMIT = 1024
# Memory that a task may need, or a PC have: a pebibyte. Processors of a PC: more than any has.
MEMORY_LIMIT = 2**50
PROCESSORS_LIMIT = 2**16
# Labels of a PC, or that a task asks for: names of devices and programs.
LABELS_LIMIT = 16
# Kinds of counted resources of a PC, or that a task asks for.
RESOURCES_LIMIT = 16
# What a PC tells of itself that is not well: `deskgrid doctor` has about ten checks.
FINDINGS_LIMIT = 12
# Versions of Python that one PC offers.
PYTHONS_LIMIT = 8
# How much slower or faster a PC may be than another that counts as 1. Beyond that, somebody measured wrongly.
SPEED_LEAST, SPEED_MOST = 0.001, 1000.0
# The largest number in a speed-up, and how many sizes a table of speed-ups has: one for each power of two is eleven.
SPEEDUP_LIMIT = 1e6
SPEEDUPS_LIMIT = 64
# What one rank may say at a meeting of its gang: for small values. What the ranks of one gang may say at one meeting
# together: all of it travels to each PC of the gang.
SAID_AT_MEETING_BYTES = 2**20
MEETING_BYTES = 16 * 2**20
# What a message carries of the bytes that MPI says to its process manager, or hears from it: many of its lines.
PMI_BYTES = 64 * 2**10

# Names are shown in tables; file systems and DNS also allow 255 bytes.
NAME_BYTES = 255
# A public key of CURVE.
KEY_BYTES = 32
# The packed options for every task of a bag: a few numbers, and at most AFTER_LIMIT ids, LICENCES_LIMIT names,
# PROBES_LIMIT items, LABELS_LIMIT labels, RESOURCES_LIMIT resources and SPEEDUPS_LIMIT speed-ups.
OPTIONS_BYTES = 8 * 2**10
# Bags that a bag may come after: more belong into one bag.
AFTER_LIMIT = 32
# Tasks that come before the others of their bag: enough to know a smooth sweep, and few for a scheduling pass.
PROBES_LIMIT = 16
# Kinds of licences that a task may need: more than any program that we know.
LICENCES_LIMIT = 16
# The priority of a bag, up or down. A hundred steps are more than anybody tells apart.
PRIORITY_LIMIT = 100
# One line for people: a reason, a note, a plan.
LINE_BYTES = 1024
# The broker's windows for a worker, as JSON: a table with a year of exceptions takes a tenth of this.
TABLE_BYTES = 64 * 2**10
# Captured stdout, and stderr: the part that workers keep of each, and the line that says how much was cut.
PRINTED_BYTES = 64 * 2**10 + 2**8
# What a running task has printed to stdout, and to stderr, in one message to those who watch it: one in a second. And
# the tasks, or ranks, in one message.
SHOWN_BYTES = 4 * 2**10
SHOWN_ROWS = 64
# An error's message, and its traceback, in characters: likewise.
ACCOUNT_CHARACTERS = 64 * 2**10 + 2**8
# A pickled exception: likewise.
PICKLED_BYTES = 64 * 2**10
# A whole account of a failure: the above, with four bytes for each character.
ACCOUNT_BYTES = 2**20

# A part of a stored file: a cut transfer repeats at most one, and one holds up a connection only for a moment.
PART_BYTES = 4 * 2**20
# Parts that one message names: the broker looks them up, and records them, in a few milliseconds.
OFFER_PARTS = 256
# The bytes of a SHA-256.
DIGEST_BYTES = 32
# Files in one tree, the bytes of a file, and those of a name with its folders: more is a mistake, or an archive.
TREE_FILES = 10_000
# Files in one tree and all the folders that they are in: few files with long names could name millions of folders.
TREE_PLACES = 2 * TREE_FILES
FILE_BYTES = 16 * 2**30
PLACE_BYTES = 1_024
# An argument or a result that is a stored file: more would not fit into the memory of most PCs.
VALUE_BYTES = 2 * 2**30
# Trees that one payload needs.
TREES_LIMIT = 1_000
# Patterns of output files: more than anybody types.
PATTERNS_LIMIT = 100

# Changes that one "what if" question compares: each is a forward run. Patterns, and groups of PCs, in one of them.
CHANGES_LIMIT = 16
GROUPS_LIMIT = 8
# PCs like those of one pattern that may be imagined beside those that are there, and the pieces that a task may be
# imagined to be split into.
MORE_PCS = 1_000
SPLIT_LIMIT = 100

# Sorts of PCs for which an environment has wheels: a lab has two or three. And the packed environment in a template: a
# label and about a hundred bytes for each.
BUILDS_LIMIT = 16
ENVIRONMENT_BYTES = 4 * 2**10

# Environments that a worker is told to have at once: more than the bags that it works for have.
ENVIRONMENTS_LIMIT = 64

# Arguments of a command line, and files in the bundle of a Python template: more than we have ever seen, and so few
# that a template needs little more memory than its size.
ARGUMENTS_LIMIT = 10_000
FILES_LIMIT = 10_000
