"""What runs in the child processes of `test_poison.py`."""

import os

import chargehand as ch


def work(brief: ch.Brief) -> str:
    if "poison" in brief.task.description:
        os._exit(1)
    return "fine"
