"""The scheduler: its decisions, the consistency of its state, and its cost."""

import pytest

pytest.register_assert_rewrite("tests.scheduler.builders", "tests.scheduler.watched")
