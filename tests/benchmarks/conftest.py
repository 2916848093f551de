"""The benchmark inspects processes, which needs a POSIX system."""

import sys

collect_ignore_glob = ["test_*.py"] if sys.platform == "win32" else []
