"""Crews in TOML: from a file to a crew, every fault with its file, its place and the way out."""

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from chargehand.crews.crew import Crew, Hand
from chargehand.crews.form import (
    CrewFile,
    CrewForm,
    ElasticForm,
    LimitsForm,
    OnFailureForm,
    RulesForm,
    SettingsForm,
    WorkerForm,
    read_form,
)
from chargehand.crews.python import load
from chargehand.crews.toolsets import Toolsets, secrets_from_environment
from chargehand.decisions.elastic import Elastic
from chargehand.decisions.rules import (
    ApprovalRule,
    ChildRule,
    InitRule,
    MaxCountRule,
    RequiredRule,
    Rule,
    TerminalRule,
)
from chargehand.errors import UsageError
from chargehand.facts.limits import Limits
from chargehand.facts.policy import OnFailure
from chargehand.models.base import ModelSettings
from chargehand.notify.base import NoticeKind, Subscription
from chargehand.notify.opening import open_notifiers
from chargehand.roles.function import FunctionWorker
from chargehand.roles.worker import Worker


def toml_crew(path: Path, files: Sequence[Path] = (), above: Sequence[Path] = ()) -> Crew:
    """The crew in this file. Paths in it are relative to the file's folder.

    `files` are what its tools for files and data read where it does not say so itself; `above` are
    the crew files that this one is nested in.
    """
    place = path.expanduser().resolve()
    if place in above:
        circle = " → ".join(each.name for each in (*above, place))
        raise UsageError(f"crews are nested in a circle: {circle}; take one of them out")
    form = read_form(_document(path, place), str(path))
    return _Reader(path, form, files, (*above, place)).crew()


def _document(path: Path, place: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(place.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            f"there is no crew file {str(path)!r}; chargehand init {path} writes one to start from"
        ) from None
    except OSError as error:
        raise UsageError(f"crew file {str(path)!r} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from None


class _Reader:
    def __init__(
        self, path: Path, form: CrewFile, files: Sequence[Path], above: Sequence[Path]
    ) -> None:
        self._path = path
        self._folder = above[-1].parent
        self._form = form
        self._files = files
        self._above = above
        self._toolsets = Toolsets(
            folder=self._folder, files=files, sets=form.tools, servers=form.mcp
        )

    def crew(self) -> Crew:
        crew = self._form.crew
        workers = tuple(
            self._placed(number, worker) for number, worker in enumerate(self._form.worker, 1)
        )
        return Crew(
            workers=workers,
            share=tuple(crew.share),
            name=crew.name or self._path.stem,
            description=crew.description,
            model=crew.model,
            settings=_settings(crew.settings),
            limits=_limits(crew.limits),
            on_failure=self._crew_policy(),
            parallel=_places(crew.parallel),
            journal=str(self._folder / crew.journal) if crew.journal else "",
            prompts=self._prompts(crew),
            notify=self._notify(crew),
            secrets=self._secrets(),
            origin=str(self._path),
        )

    def _placed(self, number: int, form: WorkerForm) -> Hand:
        """One worker; what is wrong with it is told with its place in the file."""
        try:
            return self._worker(form)
        except UsageError as error:
            name = f" ({form.name!r})" if form.name else ""
            raise UsageError(f"{self._path}, [[worker]] {number}{name}: {error}") from error

    def _worker(self, form: WorkerForm) -> Hand:
        if form.crew is not None:
            return self._nested(form, form.crew)
        if form.function is not None:
            return self._function(form, form.function)
        return Worker(
            form.name,
            form.description,
            instructions=form.instructions,
            tools=self._toolsets.tools(form.tools, form.destinations),
            model=form.model,
            settings=_settings(form.settings),
            rules=_rules(form.rules),
            skills=form.skills,
            secrets=form.secrets,
            destinations=form.destinations,
            preapproved=form.preapproved,
            capacity=_places(form.capacity),
            weight=form.weight,
            timeout=form.timeout,
            prompts=self._prompts(form),
            on_failure=_on_failure(form.on_failure),
        )

    def _function(self, form: WorkerForm, reference: str) -> FunctionWorker:
        found = load(reference, self._folder)
        if isinstance(found, FunctionWorker):
            given, function = found, found.function
        elif callable(found):
            given, function = None, found
        else:
            raise UsageError(f"{reference} is a {type(found).__name__}, not a function")
        return FunctionWorker(
            function,
            form.name or (given.name if given else ""),
            form.description or (given.description if given else ""),
            skills=form.skills or (given.skills if given else ()),
            capacity=_places(form.capacity) or (given.capacity if given else None),
            weight=form.weight or (given.weight if given else None),
            timeout=form.timeout or (given.timeout if given else None),
            process=form.process or (given is not None and given.where == "process"),
            on_failure=_on_failure(form.on_failure) or (given.on_failure if given else None),
        )

    def _nested(self, form: WorkerForm, file: str) -> Crew:
        inner = toml_crew(self._folder / file, self._files, self._above)
        description = form.description or inner.description
        if not description.strip():
            raise UsageError(f"needs a description, here or as [crew] description in {file}")
        return replace(inner, name=form.name or inner.name, description=description)

    def _crew_policy(self) -> OnFailure | None:
        try:
            return _on_failure(self._form.crew.on_failure)
        except UsageError as error:
            raise UsageError(f"{self._path}, [crew]: {error}") from error

    def _prompts(self, form: CrewForm | WorkerForm) -> Path | None:
        if form.prompts is None:
            return None
        folder = self._folder / form.prompts
        if not folder.is_dir():
            raise UsageError(f"{self._path}: prompts = {form.prompts!r} is no folder")
        return folder

    def _notify(self, form: CrewForm) -> list[Subscription]:
        given = [
            each
            if isinstance(each, str)
            else Subscription(each.to, tuple(map(NoticeKind, each.of)))
            for each in form.notify
        ]
        try:
            return [Subscription(to, tuple(of)) for to, of in open_notifiers(given)]
        except UsageError as error:
            raise UsageError(f"{self._path}, notify: {error}") from error

    def _secrets(self) -> dict[str, str]:
        names = {name: form.name for form in self._form.worker for name in form.secrets}
        found: dict[str, str] = {}
        for name, worker in names.items():
            found |= secrets_from_environment([name], f"{self._path}: worker {worker!r}")
        return found


def _settings(form: SettingsForm) -> ModelSettings | None:
    given = form.model_dump(exclude_none=True)
    return ModelSettings(**given) if given else None


def _limits(form: LimitsForm) -> Limits | None:
    given = form.model_dump(exclude_none=True)
    return Limits(**given) if given else None


def _places(form: int | ElasticForm | None) -> int | Elastic | None:
    if not isinstance(form, ElasticForm):
        return form
    return Elastic(
        least=form.min, most=form.max, **form.model_dump(include=_TIMES, exclude_none=True)
    )


_TIMES = {"wait", "period"}


def _on_failure(form: list[str] | OnFailureForm | None) -> OnFailure | None:
    if form is None or isinstance(form, list):
        return None if form is None else OnFailure(form)
    return OnFailure(form.steps, form.kinds, form.patience)


def _rules(form: RulesForm) -> list[Rule]:
    return [
        *(InitRule(tool) for tool in form.init),
        *(ChildRule(tool, tuple(children)) for tool, children in form.child.items()),
        *(TerminalRule(tool) for tool in form.terminal),
        *(MaxCountRule(tool, most) for tool, most in form.max.items()),
        *(RequiredRule(tool) for tool in form.required),
        *(ApprovalRule(tool) for tool in form.approval),
    ]
