"""Which functions a worker process can find, and by what name."""

import functools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chargehand.engines.brief import Brief
from chargehand.engines.child_processes import importable
from chargehand.errors import UsageError
from tests.integration.children_at_work import MODULE, PATIENCE, decorated, double, result_of


class Office:
    def work(self, brief: Brief) -> None: ...

    @classmethod
    def manage(cls, brief: Brief) -> str:
        return cls.__name__

    def __call__(self, brief: Brief) -> None: ...


@functools.wraps(double)
def doubled(brief: Brief) -> Any:
    return double(brief)


def test_a_function_at_the_top_of_a_module_is_importable() -> None:
    assert importable(double) == f"{MODULE}:double"
    assert importable(decorated.function) == f"{MODULE}:decorated"
    assert importable(Office.manage) == f"{__name__}:Office.manage"


async def test_a_method_of_a_class_runs_in_a_child() -> None:
    assert await result_of(Office.manage) == "Office"


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda brief: None, "a lambda"),
        (Office().work, "a method of one object"),
        (Office(), "an object"),
        (functools.partial(double), "an object"),
        (doubled, "another function"),
    ],
)
def test_what_a_child_could_not_find_is_refused_with_the_way_out(
    function: Callable[..., Any], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason) as refused:
        importable(function)
    assert "at the top of a module" in str(refused.value)


def test_a_function_inside_a_function_is_refused() -> None:
    def inside(brief: Brief) -> None: ...

    with pytest.raises(UsageError, match="inside another function"):
        importable(inside)


SCRIPT = """
import asyncio, sys
from chargehand.engines.base import Job
from chargehand.engines.brief import Brief
from chargehand.engines.child_processes import Children, importable
from chargehand.facts.outcome import Done
from chargehand.facts.plan import Task

def work(brief):
    return __name__

async def main():
    children = Children(importable(work), 1)
    brief = Brief("r1", Task(id="t1", description="Do it", worker="w"), 1, "w", {}, None)
    outcome = await children.call(brief, Job(brief, None))
    print(importable(work).rpartition(":")[0])
    print(outcome.value.read() if isinstance(outcome, Done) else outcome)
    await children.close()

"""
GUARDED = SCRIPT + "if __name__ == '__main__':\n    asyncio.run(main())\n"
UNGUARDED = SCRIPT + "asyncio.run(main())\n"


def output_of(*command: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=cwd, capture_output=True, text=True, timeout=PATIENCE
    )
    return done.stdout + done.stderr


def test_a_worker_defined_in_the_script_that_is_run_is_found(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(GUARDED)
    script = (tmp_path / "script.py").resolve()
    assert output_of("script.py", cwd=tmp_path) == f"{script}\n__child_main__\n"


def test_a_worker_defined_in_a_module_that_is_run_is_found(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(GUARDED)
    assert output_of("-m", "module", cwd=tmp_path) == "module\nmodule\n"


def test_a_script_that_would_start_itself_again_in_every_child_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(UNGUARDED)
    assert "if __name__ == '__main__':" in output_of("script.py", cwd=tmp_path)


def test_a_function_that_was_typed_in_is_refused(tmp_path: Path) -> None:
    assert "was typed in" in output_of("-c", GUARDED, cwd=tmp_path)
