"""The schema of crew files, and error messages for all faults of a file."""

import copy
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)

from chargehand.decisions.dispatch import Balance
from chargehand.errors import UsageError
from chargehand.facts.durations import length_of
from chargehand.facts.form_faults import faults_in, place_in_tables, unknown_key
from chargehand.facts.sizes import size_of


def _length(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError('must be a length of time in quotes, such as "90s", "5m" or "1h30m"')  # noqa: TRY004 - Pydantic expects ValueError
    try:
        return length_of(value)
    except UsageError as error:
        raise ValueError(str(error)) from None


def _size(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError('must be a size in quotes, such as "500MB" or "2GB"')  # noqa: TRY004 - Pydantic expects ValueError
    try:
        return size_of(value)
    except UsageError as error:
        raise ValueError(str(error)) from None


Length = Annotated[timedelta, BeforeValidator(_length)]
Size = Annotated[int, BeforeValidator(_size)]
ModelName = str | list[str]


def _one_or_several(value: object) -> object:
    return [value] if isinstance(value, str | dict) else value


class CrewTable(BaseModel):
    """One table of a crew file. An unknown key is a fault."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class LimitsForm(CrewTable):
    """`[crew.limits]`"""

    money: float | None = Field(default=None, ge=0)
    tokens: int | None = Field(default=None, ge=0)
    calls: int | None = Field(default=None, ge=0)
    deadline: Length | None = None
    active: Length | None = None
    tasks: int | None = Field(default=None, ge=1)
    items: int | None = Field(default=None, ge=1)
    depth: int | None = Field(default=None, ge=1)
    attempts: int | None = Field(default=None, ge=1)
    losses: int | None = Field(default=None, ge=1)
    replans: int | None = Field(default=None, ge=0)
    turns: int | None = Field(default=None, ge=1)
    parallel: int | None = Field(default=None, ge=1)
    grace: Length | None = None


class SettingsForm(CrewTable):
    """`[crew.settings]` and `[worker.settings]`"""

    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_tokens: int | None = Field(default=None, ge=1)
    reasoning: Literal["low", "medium", "high"] | None = None
    seed: int | None = None


class OnFailureForm(CrewTable):
    """`[crew.on_failure]` and `[worker.on_failure]`; a plain list sets `steps`"""

    steps: list[str] = ["fail"]
    kinds: dict[str, list[str]] = {}
    patience: Length | None = None


class ElasticForm(CrewTable):
    """`capacity` and `parallel` that adapt to the load; a plain number is fixed"""

    min: int = Field(default=1, ge=1)
    max: int = Field(ge=1)
    wait: Length | None = None
    period: Length | None = None

    @model_validator(mode="after")
    def _is_a_span(self) -> "ElasticForm":
        if self.min > self.max:
            raise ValueError(f"min = {self.min} is above max = {self.max}; swap them")
        return self


Places = Annotated[
    Annotated[int, Field(ge=1), Tag("int")] | Annotated[ElasticForm, Tag("ElasticForm")],
    # Validate only as the kind that was meant, so that a fault is reported once.
    Discriminator(lambda given: "ElasticForm" if isinstance(given, dict) else "int"),
]


class NotifyForm(CrewTable):
    """A target in `notify` with its own kinds of notices; the default is questions"""

    to: str
    of: list[Literal["question", "finished", "budget", "failed"]]


class RetryForm(CrewTable):
    """`[crew.retry]`: the waits before retries, which double from `first` up to `cap`"""

    first: Length | None = None
    cap: Length | None = None
    jitter: float | None = Field(default=None, ge=0, le=1)


class RetentionForm(CrewTable):
    """`[crew.retention]`: which finished runs a server keeps"""

    older_than: Length | None = None
    keep: int | None = Field(default=None, ge=0)
    max_size: Size | None = None


class ModelForm(CrewTable):
    """`[models.NAME]`: a model that the file refers to by this name, with its address and rate limits"""

    model: str
    base_url: str | None = None
    #: the environment variable with the API key; empty: that of the provider
    key_variable: str = ""
    #: per minute
    requests: float | None = Field(default=None, gt=0)
    #: per minute
    tokens: float | None = Field(default=None, gt=0)
    #: concurrent calls
    concurrency: int | None = Field(default=None, ge=1)


class CrewForm(CrewTable):
    """`[crew]`"""

    name: str = ""
    description: str = ""
    model: ModelName | None = None
    parallel: Places | None = None
    #: which of several suitable workers gets a task
    balance: Annotated[Balance, Field(strict=False)] = Balance.LEAST_BUSY
    journal: str = ""
    prompts: str | None = None
    share: list[str] = []
    #: a single target need not be in a list
    notify: Annotated[list[str | NotifyForm], BeforeValidator(_one_or_several)] = []
    #: with --approach route: the worker for a request that fits no other worker
    default: str = ""
    retry: RetryForm = RetryForm()
    retention: RetentionForm = RetentionForm()
    on_failure: list[str] | OnFailureForm | None = None
    limits: LimitsForm = LimitsForm()
    settings: SettingsForm = SettingsForm()


class RulesForm(CrewTable):
    """`[worker.rules]`"""

    init: list[str] = []
    child: dict[str, list[str]] = {}
    terminal: list[str] = []
    max: dict[str, int] = {}
    required: list[str] = []
    approval: list[str] = []


class WorkerForm(CrewTable):
    """`[[worker]]`: an LLM worker, a Python function, or a crew of its own."""

    name: str = Field(default="", max_length=100)
    description: str = ""
    instructions: str = ""
    model: ModelName | None = None
    skills: list[str] = []
    tools: list[str] = []
    settings: SettingsForm = SettingsForm()
    rules: RulesForm = RulesForm()
    capacity: Places | None = None
    weight: float | None = Field(default=None, gt=0)
    timeout: Length | None = None
    on_failure: list[str] | OnFailureForm | None = None
    secrets: list[str] = []
    destinations: list[str] = []
    preapproved: list[str] = []
    prompts: str | None = None
    function: str | None = None
    process: bool = False
    crew: str | None = None

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> "WorkerForm":
        said = self.model_fields_set
        if self.function is not None and self.crew is not None:
            raise ValueError("is a function or a crew, not both; remove one of the two")
        if self.function is None and self.process:
            raise ValueError("only a function runs in a process of its own; drop process")
        if self.function is not None or self.crew is not None:
            kind = "a function" if self.function is not None else "a crew"
            only = said & _OF_MINDS if self.function is not None else said - _OF_CREWS
            if only:
                raise ValueError(f"is {kind}, which has no {', '.join(sorted(only))}; remove that")
        elif not self.name.strip() or not self.description.strip():
            raise ValueError("needs a name and a description; the planner chooses by them")
        return self


#: keys that only an LLM worker may have
_OF_MINDS = {
    *("instructions", "model", "tools", "settings", "rules", "secrets", "destinations", "prompts"),
    "preapproved",
}
_OF_CREWS = {"name", "description", "crew"}
#: keys that decide which kind of worker a table is, or that each kind needs
_OF_KINDS = {"name", "description", "function", "process", "crew"}


class ServerForm(CrewTable):
    """`[[mcp]]`: a server of the Model Context Protocol, a program or an address."""

    name: str = Field(min_length=1)
    command: list[str] | None = None
    env: dict[str, str] | None = None
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] | None = None
    prefix: str = ""
    pins: dict[str, str] | None = None
    #: whether workers may read the server's resources; planners then see their names
    resources: bool = False
    #: for one tool call
    timeout: Length | None = None
    #: from the start of the server until it has listed its tools
    connect: Length | None = None

    @model_validator(mode="after")
    def _is_reached_one_way(self) -> "ServerForm":
        if (self.command is None) == (self.url is None):
            raise ValueError('needs either command = ["program", …] or url = "https://…"')
        return self


class ToolsetForm(CrewTable):
    """`[tools.NAME]`: a built-in set of tools with its own settings."""

    #: the built-in set; empty: the set with the name of this table
    use: str = ""
    #: for files, data and sandbox; default for files and data: what --files names
    folders: list[str] = []
    hidden: bool = False
    #: for files and data: the folders are trusted, so that their contents carry no taint
    trusted: bool = False
    #: for web: the allowed hosts; default: the worker's destinations
    allow: list[str] = []
    #: for sandbox: how long a program may run
    limit: str = ""
    #: prefix of the tool names, so that two sets of one kind differ
    prefix: str = ""


class CrewFile(CrewTable):
    """A whole crew file."""

    crew: CrewForm = CrewForm()
    worker: list[WorkerForm] = Field(min_length=1)
    mcp: list[ServerForm] = []
    tools: dict[str, ToolsetForm] = {}
    models: dict[str, ModelForm] = {}


def read_form(document: dict[str, Any], origin: str) -> tuple[CrewFile, list[str]]:
    """Validate a crew file. Returns what is valid of it, and all faults of the schema with their positions.

    What else is wrong can so be reported together with them. Raises a `UsageError` with the faults if too little is
    valid to look further.
    """
    try:
        return CrewFile.model_validate(document), []
    except ValidationError as error:
        faults = _faults(error)
    lines = [f"{place_of(each['loc'], document)}: {_words(each)}" for each in faults]
    rest = copy.deepcopy(document)
    # Without these keys, or if one of them is misspelt, a worker seems to lack what it has.
    doubtful = {
        each["loc"][:2]
        for each in faults
        if each["type"] == "extra_forbidden" or set(each["loc"][2:3]) & _OF_KINDS
    }
    for _ in range(_MOST_PRUNINGS):
        # The last item of a list first: those in front of it keep their numbers.
        if not all(_prune(rest, each["loc"]) for each in reversed(faults)):
            break
        try:
            return CrewFile.model_validate(rest), lines
        except ValidationError as error:
            faults = _faults(error)
        lines += [
            f"{place_of(each['loc'], document)}: {_words(each)}"
            for each in faults
            if len(each["loc"]) == 2 and each["loc"][0] == "worker" and each["loc"] not in doubtful
        ]
    raise faults_in(origin, lines)


#: once a fault is taken out, the checks of a whole table find others
_MOST_PRUNINGS = 3
#: what other tables refer to: without it, each of them would seem to be at fault
_REFERRED_TO = ("mcp", "models", "tools")


def _faults(error: ValidationError) -> list[Any]:
    return list(error.errors(include_url=False, include_context=True))


def _prune(document: dict[str, Any], location: Sequence[int | str]) -> bool:
    """Take the innermost key or item with a fault out of a document; False if that would make others seem faulty."""
    if location[0] in _REFERRED_TO or not isinstance(document.get("worker"), list):
        return False
    if location[0] == "worker" and len(location) < 3:
        return len(location) == 2 and _make_plain(document["worker"], int(location[1]))
    holder, key = document, location[0]
    inner: Any = document.get(str(key))
    for part in location[1:]:
        if isinstance(inner, dict) and part in inner:
            holder, key, inner = inner, part, inner[part]
        elif isinstance(inner, list) and isinstance(part, int) and part < len(inner):
            if len(inner) > 1 and not isinstance(inner[part], dict | list):
                del inner[part]
                return True
            inner = inner[part]
    holder.pop(str(key), None)
    return "worker" in document


def _make_plain(workers: list[Any], number: int) -> bool:
    """Make a worker with a fault as a whole one without that fault. It stays in its place: all keep their numbers."""
    given = workers[number]
    if not isinstance(given, dict):
        return False
    kept = {
        key: value for key, value in given.items() if key not in ("function", "process", "crew")
    }
    names = {"name": f"worker {number + 1}", "description": "not valid"}
    workers[number] = kept | {key: str(kept.get(key) or "").strip() or names[key] for key in names}
    return True


#: kinds of values in Pydantic's locations, which `place_of` leaves out
_KINDS = ("str", "list[str]", "int", "ElasticForm")


def place_of(location: Sequence[int | str], document: dict[str, Any]) -> str:
    """A position in a crew file, such as `[[worker]] 2 ('analyst'), tools`."""
    told = [part for place, part in enumerate(location) if place == 0 or part not in _KINDS]
    # All that stands at the top is a table, also where it is missing.
    return place_in_tables(tuple(told), document) if len(told) != 1 else f"[{told[0]}]"


def _words(fault: Any) -> str:
    match fault["type"]:
        case "extra_forbidden":
            return _unknown_key(fault["loc"])
        case "missing":
            return (
                "is missing; a crew needs at least one [[worker]]"
                if fault["loc"] == ("worker",)
                else "is missing"
            )
        case "value_error":
            return str(fault["ctx"]["error"])
        case _:
            said = str(fault["msg"])
            return f"{said[0].lower()}{said[1:]}, not {fault['input']!r}"[:300]


_TABLES: dict[str, type[CrewTable]] = {
    "crew": CrewForm,
    "worker": WorkerForm,
    "mcp": ServerForm,
    "tools": ToolsetForm,
    "models": ModelForm,
    "retry": RetryForm,
    "limits": LimitsForm,
    "settings": SettingsForm,
    "rules": RulesForm,
    "on_failure": OnFailureForm,
    "ElasticForm": ElasticForm,
}


def _unknown_key(location: Sequence[int | str]) -> str:
    words = [part for part in location[:-1] if isinstance(part, str)]
    table = next((_TABLES[part] for part in reversed(words) if part in _TABLES), CrewFile)
    return unknown_key(location[-1], list(table.model_fields))
