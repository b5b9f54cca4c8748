"""A worker that never returns does not keep the program alive, and one that damages its brief is ended all the same."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

import chargehand as ch

NEVER_ENDS = """
import threading
import chargehand as ch

@ch.worker("sleeper", "Never returns", timeout=0.2)
def sleep(brief):
    threading.Event().wait()

task = ch.Task(id="a", description="Sleep", worker="sleeper", limits=ch.TaskLimits(attempts=1))
print(ch.Supervisor([sleep]).run_sync(ch.Plan(goal="g", tasks=[task])).status, flush=True)
"""


def test_a_function_that_never_returns_does_not_keep_the_program_from_exiting() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NEVER_ENDS],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "failed\n")
    assert done.stderr.count("workers_still_running workers=sleeper;") == 1


def _emptied(brief: ch.Brief) -> None:
    for name in type(brief).__slots__:
        with contextlib.suppress(AttributeError):
            delattr(brief, name)


def _replaced(brief: ch.Brief) -> None:
    for name in ("task", "run", "host", "attempt", "worker"):
        setattr(brief, name, None)


def _tainted(brief: ch.Brief) -> None:
    brief._taint = (object(),)  # type: ignore[assignment]  # as a worker might


@pytest.mark.parametrize(
    ("damage", "status"), [(_emptied, "failed"), (_replaced, "succeeded"), (_tainted, "failed")]
)
@pytest.mark.parametrize("is_plain", [True, False])
async def test_an_attempt_ends_whatever_its_worker_does_to_its_brief(
    damage: Callable[[ch.Brief], None], status: str, is_plain: bool
) -> None:
    def plain(brief: ch.Brief) -> int:
        damage(brief)
        return 1

    async def on_loop(brief: ch.Brief) -> int:
        damage(brief)
        return 1

    worker = ch.worker("w", "Damages its brief")(plain if is_plain else on_loop)
    limits = ch.TaskLimits(attempts=1)
    plan = ch.Plan(
        goal="g", tasks=[ch.Task(id="t", description="Count the sheep", worker="w", limits=limits)]
    )
    async with ch.Supervisor([worker]) as boss:
        result = await boss.run(plan)
    assert result.status == status
    if status == "failed":
        assert "has changed its brief" in str(result.answer.gaps)
