"""The example that a file of tests is about, by the name of the file, and what came of it."""

from pathlib import Path

import pytest

import chargehand as ch
from chargehand.documents import Document
from tests.complete_examples.checks import Example, example_of


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where an example would write files."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def example(request: pytest.FixtureRequest) -> Example:
    return example_of(request.module.__name__.rpartition(".test_")[2])


@pytest.fixture(scope="module")
def result(example: Example) -> ch.RunResult:
    return example.finished


@pytest.fixture(scope="module")
def document(example: Example, result: ch.RunResult) -> Document:
    return example.document(result)
