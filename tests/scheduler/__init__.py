"""The scheduler: what it decides, that its state agrees with itself, and what it costs."""

import pytest

pytest.register_assert_rewrite("tests.scheduler.builders", "tests.scheduler.watched")
