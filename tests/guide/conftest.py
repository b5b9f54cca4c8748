"""Shared by the guide: a way to write a plan in one line."""

from collections.abc import Callable
from typing import Any

import pytest

import chargehand as ch


def make_plan(*tasks: ch.Task, goal: str = "Show one thing") -> ch.Plan:
    return ch.Plan(goal=goal, tasks=tasks)


def make_task(id_: str, worker: str, *needs: str | ch.Need, **more: Any) -> ch.Task:
    return ch.Task(
        id=id_, description=f"Produce the result of {id_}", worker=worker, needs=needs, **more
    )


@pytest.fixture
def plan() -> Callable[..., ch.Plan]:
    return make_plan


@pytest.fixture
def task() -> Callable[..., ch.Task]:
    return make_task
