"""Recorded conversations go through a supervisor word by word."""

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks import evaluation
from benchmarks.evaluation import replayed


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str | None, *calls: tuple[str, str]) -> dict[str, Any]:
    listed = [
        {"id": f"c{number}", "function": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(calls)
    ]
    return {"role": "assistant", "content": text, "tool_calls": listed}


def returned(name: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "name": name, "content": text}


CONVERSATION = [
    user("Hello!"),
    said("Which booking?"),
    user("A1."),
    said(None, ("find", '{"id":"A1"}')),
    returned("find", '{"id": "A1", "seat": null}'),
    said("I found it.", ("think", '{"thought": "BEGIN\\nEND"}')),
    returned("think", ""),
    said("I'm sorry, but I cannot help with that."),
    user("Please."),
    said(None, ("find", '{"id":"A1"}')),
    returned("find", "Error: booking not found"),
    said(None, ("transfer", "{}")),
    returned("transfer", "Transfer successful"),
    user("###STOP###"),
]


async def test_every_call_and_result_comes_out_as_it_was_recorded() -> None:
    recorded, trace = await replayed(CONVERSATION)
    assert trace == recorded
    assert [each.name for each in recorded if each.kind == "call"] == [
        "find",
        "think",
        "find",
        "transfer",
    ]
    assert sum(each.kind == "text" for each in recorded) == 3


def test_without_the_workloads_it_says_that_it_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CHARGEHAND_WORKLOADS", raising=False)
    assert evaluation.main(["--json"]) == 0
    assert "skipped" in json.loads(capsys.readouterr().out)
