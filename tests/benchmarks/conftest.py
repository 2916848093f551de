"""The benchmark looks at processes as POSIX has them."""

import sys

collect_ignore_glob = ["test_*.py"] if sys.platform == "win32" else []
