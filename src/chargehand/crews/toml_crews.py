"""Loads crews from TOML files, and reports all faults of a file with their positions."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from chargehand.crews.crew import Crew, Hand, joined_rates
from chargehand.crews.crew_schema import (
    CrewFile,
    CrewForm,
    CrewTable,
    ElasticForm,
    ModelName,
    OnFailureForm,
    RulesForm,
    WorkerForm,
    read_form,
)
from chargehand.crews.python_references import load
from chargehand.crews.toolsets import Toolsets, from_environment
from chargehand.decisions.elastic_capacity import Elastic
from chargehand.decisions.rate_limiter import Rates
from chargehand.decisions.tool_rules import (
    ApprovalRule,
    ChildRule,
    InitRule,
    MaxCountRule,
    RequiredRule,
    Rule,
    TerminalRule,
)
from chargehand.errors import ModelDenied, UsageError
from chargehand.facts.failure_policy import OnFailure
from chargehand.facts.form_faults import faults_in
from chargehand.facts.limits import Limits
from chargehand.facts.retention import Retention
from chargehand.facts.retry_policy import RetryPolicy
from chargehand.journal.postgres_address import is_dsn
from chargehand.models.base import Model, ModelSettings
from chargehand.models.open_model import NamedKey, open_model, refuse_unknown_model
from chargehand.notify.base import NoticeKind, Subscription
from chargehand.notify.open_notifier import open_notifiers
from chargehand.regular_file import read_regular_file
from chargehand.roles.function_worker import FunctionWorker
from chargehand.roles.llm_worker import Worker
from chargehand.toml_parser import toml_document
from chargehand.usable_path import checked_path

if TYPE_CHECKING:
    from chargehand.roles.shared_resources import ModelChoice

T = TypeVar("T")
#: makes a model that replaces another one, from its name and the function that would open it
StandIn: TypeAlias = Callable[[str, Callable[[], Model]], Model]


def toml_crew(
    path: Path,
    files: Sequence[Path] | None = (),
    above: Sequence[Path] = (),
    stand_in: StandIn | None = None,
) -> Crew:
    """Load the crew from a TOML file. Paths in the file are relative to its folder.

    `files` is what tools for files and data read, unless the crew file names folders; None: the working folder.
    `above` are the crew files in which this one is nested. `stand_in` replaces the models of `[models.NAME]`.
    """
    place = checked_path(path, "the crew file", home=True).resolve()
    if place in above:
        circle = " → ".join(each.name for each in (*above, place))
        raise UsageError(f"crews are nested in a circle: {circle}; take one of them out")
    form, faults = read_form(_document(path, place), str(path))
    return _Reader(path, form, files, (*above, place), stand_in, faults).crew()


def _document(path: Path, place: Path) -> dict[str, Any]:
    try:
        data = read_regular_file(place)
    except FileNotFoundError:
        raise UsageError(
            f"there is no crew file {str(path)!r}; chargehand init {path} writes one to start from"
        ) from None
    except OSError as error:
        raise UsageError(f"crew file {str(path)!r} cannot be read: {error.strerror}") from None
    return toml_document(data, str(path))


class _Reader:
    def __init__(
        self,
        path: Path,
        form: CrewFile,
        files: Sequence[Path] | None,
        above: Sequence[Path],
        stand_in: StandIn | None,
        faults: Sequence[str],
    ) -> None:
        self._stand_in = stand_in
        self._path = path
        self._folder = above[-1].parent
        self._form = form
        self._files = files
        self._above = above
        self._faults: list[str] = [*faults]
        #: the errors that are already in `_faults`
        self._told: list[Exception] = []
        self._models: dict[str, Model] = {}
        #: why a model of `[models.NAME]` cannot be opened, by its name
        self._unopened: dict[str, UsageError | ModelDenied] = {}
        self._toolsets = Toolsets(
            folder=self._folder, files=files, sets=form.tools, servers=form.mcp
        )

    def crew(self) -> Crew:
        """Build the crew. Raises a `UsageError` that lists all faults of the file."""
        crew = self._form.crew
        for name in self._form.models:
            self._try(f"[models.{name}]", partial(self._opened, name))
        workers = [
            self._try(_place_of(number, form), partial(self._worker, form, _place_of(number, form)))
            for number, form in enumerate(self._form.worker, 1)
        ]
        made = [each.name for each in workers if each is not None]  # a function has its own name
        names = [*(form.name for form in self._form.worker), *made]
        self._refuse_second_names(workers)
        if crew.default and crew.default not in names:
            self._faults.append(f"[crew], default: {crew.default!r} is not a worker of this crew")
        model = self._model(crew.model, "[crew], model")
        on_failure = self._try("[crew]", lambda: _on_failure(crew.on_failure))
        prompts = self._try("[crew]", lambda: self._prompts(crew))
        notify = self._try("notify", lambda: self._notify(crew))
        journal = self._try("[crew], journal", lambda: self._journal(crew.journal))
        settings = self._try("[crew], settings", partial(_made_of, ModelSettings, crew.settings))
        limits = self._try("[crew], limits", partial(_made_of, Limits, crew.limits))
        retry = self._try("[crew], retry", partial(_made_of, RetryPolicy, crew.retry))
        retention = self._try("[crew], retention", partial(_made_of, Retention, crew.retention))
        parallel = self._try("[crew], parallel", partial(_places, crew.parallel))
        secrets = self._secrets()
        if self._faults:
            raise faults_in(str(self._path), self._faults)
        return Crew(
            workers=tuple(worker for worker in workers if worker is not None),
            share=tuple(crew.share),
            name=crew.name or self._path.stem,
            description=crew.description,
            settings=settings,
            limits=limits,
            parallel=parallel,
            balance=crew.balance,
            journal=journal or "",
            retry=retry,
            retention=retention,
            rates=self._rates(),
            default=crew.default,
            secrets=secrets,
            origin=str(self._path),
            model=model,
            on_failure=on_failure,
            prompts=prompts,
            notify=notify or (),
        )

    def _refuse_second_names(self, workers: "Sequence[Hand | None]") -> None:
        known: dict[str, int] = {}
        for number, (form, made) in enumerate(zip(self._form.worker, workers, strict=True), 1):
            name = form.name if made is None else made.name
            first = known.setdefault(name, number)
            if name and first != number:
                place = _place_of(number, form)
                self._faults.append(
                    f"{place}: two workers are named {name!r}, this one and [[worker]] {first}; names must be unique"
                )

    def _try(self, place: str, make: Callable[[], T]) -> T | None:
        """Call `make`, and keep its error with the position in the file; None after an error.

        A model or server that cannot be opened raises the same error object wherever it is used; it is kept once.
        """
        try:
            return make()
        except (UsageError, ModelDenied) as error:
            if not any(error is each for each in self._told):
                self._faults.append(f"{place}: {error}")
                self._told.append(error)
            return None

    def _model(self, chosen: ModelName | None, place: str) -> "ModelChoice | None":
        """The chosen models: an opened model for a name of `[models.NAME]`, otherwise the text itself."""
        if chosen is None:
            return None
        if isinstance(chosen, str):
            return self._try(place, partial(self._named, chosen))
        tried = [self._try(place, partial(self._named, each)) for each in chosen]
        return [each for each in tried if each is not None]

    def _named(self, name: str) -> "str | Model":
        """An opened model for a name of `[models.NAME]`; otherwise the text, if a provider is named in it."""
        if name in self._form.models:
            return self._opened(name)
        try:
            refuse_unknown_model(name)
        except UsageError as error:
            raise UsageError(f"{error}; or describe it in this file: [models.{name}]") from None
        self._refuse_bad_replies(name)
        return name

    def _refuse_bad_replies(self, name: str) -> None:
        """Read a file of replies now. One that is not there may be replaced by `--model`, and is missed at the start."""
        provider, _, path = name.partition(":")
        if provider != "written" or not Path(path).is_file():
            return
        if name not in self._unopened:
            try:
                open_model(name)
                return
            except UsageError as error:
                self._unopened[name] = error
        raise self._unopened[name]

    def _opened(self, name: str) -> Model:
        if name in self._unopened:
            raise self._unopened[name]
        if name not in self._models:
            opened = partial(self._open, name)
            stand_in, model = self._stand_in, self._form.models[name].model
            try:
                self._models[name] = opened() if stand_in is None else stand_in(model, opened)
            except (UsageError, ModelDenied) as error:
                self._unopened[name] = error
                raise
        return self._models[name]

    def _open(self, name: str) -> Model:
        form, key = self._form.models[name], None
        if variable := form.key_variable:
            found = from_environment(variable, "key_variable")
            key = NamedKey(found, f"{variable} (key_variable)")
        return open_model(form.model, base_url=form.base_url, key=key)

    def _journal(self, given: str) -> str:
        """The path of the journal, relative to the crew file's folder; a DSN is unchanged."""
        is_path = bool(given) and not is_dsn(given)
        return str(self._folder / given.removeprefix("sqlite:")) if is_path else given

    def _rates(self) -> dict[str, Rates]:
        agreed = [
            (name, _made_of(Rates, form, "requests", "tokens", "concurrency"))
            for name, form in self._form.models.items()
        ]
        return joined_rates(
            (self._opened(name).account, rates) for name, rates in agreed if rates is not None
        )

    def _worker(self, form: WorkerForm, place: str) -> "Hand | None":
        if form.crew is not None:
            return self._nested(form, form.crew)
        if form.function is not None:
            return self._function(form, form.function)
        before = len(self._faults)
        of_name = [
            self._try(place, partial(self._toolsets.tools, [name], form.destinations))
            for name in form.tools
        ]
        tools = [tool for found in of_name for tool in found or ()]
        if None not in of_name:  # otherwise a rule may be about a tool that could not be loaded
            have = {tool.name for tool in tools}
            self._faults += [
                f"{place}: a rule names the tool {name!r}, which this worker does not have"
                for name in _tools_in(form.rules)
                if name not in have
            ]
        model = self._model(form.model, place)
        on_failure = self._try(place, lambda: _on_failure(form.on_failure))
        prompts = self._try(place, lambda: self._prompts(form))
        has_faults = len(self._faults) > before or None in of_name
        worker = self._try(
            place,
            lambda: Worker(
                form.name,
                form.description,
                instructions=form.instructions,
                tools=tools,
                model=model,
                settings=_made_of(ModelSettings, form.settings),
                rules=() if has_faults else _rules(form.rules),
                skills=form.skills,
                secrets=form.secrets,
                destinations=form.destinations,
                preapproved=form.preapproved,
                capacity=_places(form.capacity),
                weight=form.weight,
                timeout=form.timeout,
                prompts=prompts,
                on_failure=on_failure,
            ),
        )
        return None if has_faults else worker

    def _function(self, form: WorkerForm, reference: str) -> FunctionWorker:
        found = load(reference, self._folder, _can_be_worker)
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
        inner = toml_crew(self._folder / file, self._files, self._above, self._stand_in)
        description = form.description or inner.description
        if not description.strip():
            raise UsageError(f"needs a description, here or as [crew] description in {file}")
        return replace(inner, name=form.name or inner.name, description=description)

    def _prompts(self, form: CrewForm | WorkerForm) -> Path | None:
        if form.prompts is None:
            return None
        folder = checked_path(self._folder / form.prompts, "prompts")
        if not folder.is_dir():
            raise UsageError(f"prompts = {form.prompts!r} is not a folder")
        return folder

    def _notify(self, form: CrewForm) -> list[Subscription]:
        given = [
            each
            if isinstance(each, str)
            else Subscription(each.to, tuple(map(NoticeKind, each.of)))
            for each in form.notify
        ]
        return [Subscription(to, tuple(of)) for to, of in open_notifiers(given)]

    def _secrets(self) -> dict[str, str]:
        names = {name: form.name for form in self._form.worker for name in form.secrets}
        found: dict[str, str] = {}
        for name, worker in names.items():
            try:
                found[name] = from_environment(name, f"worker {worker!r}")
            except UsageError as error:
                self._faults.append(str(error))
        return found


def _can_be_worker(thing: object) -> bool:
    return isinstance(thing, FunctionWorker) or inspect.isfunction(thing)


def _place_of(number: int, form: WorkerForm) -> str:
    name = f" ({form.name!r})" if form.name else ""
    return f"[[worker]] {number}{name}"


def _made_of(kind: Callable[..., T], form: CrewTable, *fields: str) -> T | None:
    """An object with the fields that the file sets; None if it sets none."""
    given = form.model_dump(include=set(fields) or None, exclude_none=True)
    return kind(**given) if given else None


def _places(form: int | ElasticForm | None) -> int | Elastic | None:
    if not isinstance(form, ElasticForm):
        return form
    times = form.model_dump(include={"wait", "period"}, exclude_none=True)
    return Elastic(least=form.min, most=form.max, **times)


def _on_failure(form: list[str] | OnFailureForm | None) -> OnFailure | None:
    if form is None or isinstance(form, list):
        return None if form is None else OnFailure(form)
    return OnFailure(form.steps, form.kinds, form.patience)


def _tools_in(form: RulesForm) -> list[str]:
    """The tools that rules name, each once."""
    named = [*form.init, *form.child, *form.terminal, *form.max, *form.required, *form.approval]
    return list(dict.fromkeys([*named, *(name for row in form.child.values() for name in row)]))


def _rules(form: RulesForm) -> list[Rule]:
    return [
        *(InitRule(tool) for tool in form.init),
        *(ChildRule(tool, tuple(children)) for tool, children in form.child.items()),
        *(TerminalRule(tool) for tool in form.terminal),
        *(MaxCountRule(tool, most) for tool, most in form.max.items()),
        *(RequiredRule(tool) for tool in form.required),
        *(ApprovalRule(tool) for tool in form.approval),
    ]
