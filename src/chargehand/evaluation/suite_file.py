"""Loads suites from TOML files: cases, crews, models and the gate. Paths are relative to the file."""

import math
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct, field

from chargehand.errors import UsageError
from chargehand.evaluation.plan_scores import PlanTask
from chargehand.facts.form_faults import faults_in, form_faults
from chargehand.regular_file import read_regular_file
from chargehand.toml_parser import toml_document
from chargehand.usable_path import checked_path

Mode: TypeAlias = Literal["run", "plan"]
Metric: TypeAlias = Literal[
    "accepted_first",
    "accepted",
    "node_f1",
    "edge_f1",
    "routing",
    "isolation",
    "right",
    "calls",
    "prompt_tokens",
    "cost",
    "seconds",
]


class _Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a suite file; an unknown key is an error."""


class NumberCheck(_Table, frozen=True):
    """The answer contains a number within `within` of `value`."""

    value: float
    within: float = 0.0


class AnswerChecks(_Table, frozen=True):
    """The checks of an answer. All given checks must pass."""

    #: the answer contains each of these texts, ignoring case
    contains: tuple[str, ...] = ()
    number: NumberCheck | None = None
    #: JSON Schema of the answer, also given to the run
    schema: dict[str, Any] | None = None
    #: the answer names each of these source files
    cited: tuple[str, ...] = ()
    #: the right answer is that the request cannot be answered, or not completely
    refuses: bool = False
    #: a yes-or-no question about the answer for the judge model
    judge: str = ""


class Case(_Table, frozen=True):
    """A test case: a request and what you expect of its result. Only what you state is measured."""

    id: str
    request: str
    #: files and folders that the crew may read
    files: tuple[str, ...] = ()
    #: the gold plan
    plan: tuple[PlanTask, ...] | None = None
    #: the workers that should get tasks, and no others
    workers: tuple[str, ...] | None = None
    #: the only tools that may be called
    tools: tuple[str, ...] | None = None
    #: path.py:name of the type that the run returns
    output: str = ""
    #: answers to questions: each question gets the first answer that it accepts; empty: tasks that ask fail
    answers: tuple[str, ...] = ()
    checks: AnswerChecks | None = None


class CrewEntry(_Table, frozen=True):
    """A crew under evaluation: a crew file or the default crew, optionally with its own prompts."""

    name: str
    #: crew.toml, or path.py:name; empty: the default crew
    file: str = ""
    #: a folder of prompts that replaces the crew's prompts
    prompts: str = ""


class Bound(_Table, frozen=True):
    """The bounds of a metric."""

    min: float | None = None
    max: float | None = None


class SuiteOptions(_Table, frozen=True):
    """The settings of a suite."""

    name: str = ""
    #: run: run the requests; plan: only plan them
    mode: Mode = "run"
    approach: Literal["whole", "stream", "route", "steps"] = "whole"
    repeats: int = 1
    #: provider:model, or path.py:name for your own model; empty: the crews' models
    models: tuple[str, ...] = ()
    #: the model that answers the `judge` questions of cases
    judge: str = ""
    #: where the recorded replies come from, for readers of the report
    note: str = ""


class _SuiteFile(_Table, frozen=True):
    suite: SuiteOptions = SuiteOptions()
    crew: tuple[CrewEntry, ...] = (CrewEntry(name="default"),)
    case: tuple[Case, ...] = ()
    gate: dict[Metric, Bound] = field(default_factory=dict)


class Suite(NamedTuple):
    """A suite, loaded from a file."""

    path: Path
    options: SuiteOptions
    crews: tuple[CrewEntry, ...]
    cases: tuple[Case, ...]
    gate: dict[Metric, Bound]
    #: whether it contains all crews and cases of the file
    is_whole: bool = True

    @property
    def name(self) -> str:
        return self.options.name or self.path.stem

    @property
    def folder(self) -> Path:
        return self.path.parent

    @property
    def recording(self) -> Path:
        """The file with the recorded model replies, next to the suite."""
        return self.path.with_suffix(".recording.jsonl")

    def only(self, *, crews: Sequence[str] = (), cases: Sequence[str] = ()) -> "Suite":
        """The suite with only these crews and cases. An empty list selects all."""
        return self._replace(
            is_whole=self.is_whole and not crews and not cases,
            crews=tuple(_chosen(self.crews, [each.name for each in self.crews], crews, "crew")),
            cases=tuple(_chosen(self.cases, [each.id for each in self.cases], cases, "case")),
        )


def load_suite(path: str | Path) -> Suite:
    """Load a suite. Raises `UsageError`, which names the file, the position and the fault."""
    place = checked_path(path, "the suite")
    try:
        document = toml_document(read_regular_file(place), str(place))
    except OSError as error:
        raise UsageError(f"suite {place} cannot be read: {error.strerror}") from None
    try:
        form = msgspec.convert(document, _SuiteFile)
    except msgspec.ValidationError as error:
        raise faults_in(str(place), form_faults(document, _SuiteFile) or [str(error)]) from None
    except RecursionError:
        raise UsageError(
            f"{place} is nested too deep to be read; take brackets out of it"
        ) from None
    suite = Suite(place.resolve(), form.suite, form.crew, form.case, form.gate)
    faults = _faults_of(suite)
    if "gate" in document and not form.gate:
        faults.append(
            "[gate] has no metric, so that everything passes; give it one, or leave it out"
        )
    if faults:
        raise UsageError(f"{place}: {'; '.join(faults)}")
    return suite


def _faults_of(suite: Suite) -> list[str]:
    faults = [] if suite.cases else ["it has no [[case]]"]
    faults += [f"repeats = {suite.options.repeats} must be 1 or more"] * (suite.options.repeats < 1)
    for what, names in (
        ("case", [case.id for case in suite.cases]),
        ("crew", [crew.name for crew in suite.crews]),
    ):
        faults += [
            f"two {what}s are named {name!r}"
            for name in dict.fromkeys(names)
            if names.count(name) > 1
        ]
    for case in suite.cases:
        missing = (_why_missing(suite.folder, file) for file in case.files)
        faults += [f"case {case.id!r}: {why}" for why in missing if why]
        if case.checks is not None and case.checks.judge and not suite.options.judge:
            faults.append(f"case {case.id!r} asks a judge; name its model: [suite] judge = …")
        if case.output and case.checks is not None and case.checks.schema is not None:
            faults.append(f"case {case.id!r}: state either output or checks.schema, not both")
        told = [*_faults_of_plan(case.plan or ()), *_faults_of_checks(case.checks)]
        faults += [f"case {case.id!r}: {fault}" for fault in told]
    for crew in suite.crews:
        if crew.prompts and (why := _why_missing(suite.folder, crew.prompts, is_folder=True)):
            faults.append(f"crew {crew.name!r}: {why}")
    return faults + list(_faults_of_gate(suite.gate))


def _why_missing(folder: Path, name: str, *, is_folder: bool = False) -> str:
    """Why a file or folder cannot be used; empty if it exists."""
    try:
        place = checked_path(folder / name)
    except UsageError as error:
        return str(error)
    if is_folder:
        return "" if place.is_dir() else f"prompts = {name!r} is not a folder"
    return "" if place.exists() else f"there is no file {name!r}"


def _faults_of_plan(tasks: Sequence[PlanTask]) -> Iterator[str]:
    """The faults of a gold plan that cannot be a plan: scores against it would mean nothing."""
    ids = [task.id for task in tasks]
    for name in dict.fromkeys(ids):
        if ids.count(name) > 1:
            yield f"two tasks of the gold plan have the id {name!r}"
    for need in (need for task in tasks for need in task.needs if need not in ids):
        yield f"the gold plan has no task {need!r}"
    try:
        TopologicalSorter({task.id: task.needs for task in tasks}).prepare()
    except CycleError as error:
        yield f"tasks of the gold plan need each other: {' → '.join(error.args[1])}"


def _faults_of_checks(checks: AnswerChecks | None) -> Iterator[str]:
    """The faults of checks that all answers pass, or none."""
    if checks is None:
        return
    if checks == AnswerChecks():
        yield "checks states nothing, so that every answer is right; give it a check, or leave it out"
    for key, texts in (("contains", checks.contains), ("cited", checks.cited)):
        if not all(text.strip() for text in texts):
            yield f"checks.{key} has an empty text, which every answer has"
    number = checks.number
    if number is not None and not math.isfinite(number.value):
        yield f"checks.number: value = {number.value} is not a number that an answer can have"
    if number is not None and not (math.isfinite(number.within) and number.within >= 0):
        yield f"checks.number: within = {number.within} must be 0 or more, and finite"


def _faults_of_gate(gate: Mapping[Metric, Bound]) -> Iterator[str]:
    """The faults of bounds, such as missing ones: a gate must be able to fail."""
    for metric, bound in gate.items():
        given = {"min": bound.min, "max": bound.max}
        stated = {name: value for name, value in given.items() if value is not None}
        if not stated:
            yield f"gate: {metric} has no bound; write {metric} = {{ min = … }} or {{ max = … }}"
        for name, value in stated.items():
            if not math.isfinite(value):
                yield f"gate: {metric} = {{ {name} = {value} }} is no bound; write a finite number"
        if bound.min is not None and bound.max is not None and bound.min > bound.max:
            yield f"gate: {metric} has min = {bound.min:g} above max = {bound.max:g}; swap them"


def _chosen(
    entries: Sequence[Any], names: list[str], wanted: Sequence[str], what: str
) -> list[Any]:
    for name in wanted:
        if name not in names:
            raise UsageError(f"the suite has no {what} {name!r}; it has {', '.join(names)}")
    return [each for each, name in zip(entries, names, strict=True) if not wanted or name in wanted]
