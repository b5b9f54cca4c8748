"""A factory on the roster: for each task it makes a worker for that very task, and lets it do the attempt."""

import copy
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Unpack

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from chargehand.engines.brief import Brief
from chargehand.errors import UsageError, WorkerError
from chargehand.facts.argument_checks import FUNCTION, arguments_checked
from chargehand.facts.outcome import ErrorClass, Failed, Outcome
from chargehand.facts.value import canonical, digest_of
from chargehand.models.base import ModelSettings, system, user
from chargehand.roles.data_fences import cut, fenced
from chargehand.roles.durable_model_calls import DurableModelCaller, ask_for
from chargehand.roles.function_worker import Where, check_words
from chargehand.roles.json_reply_check import one_of, record
from chargehand.roles.llm_worker import Worker, WorkerOptions
from chargehand.roles.prompts import prompt
from chargehand.roles.shared_resources import Resources
from chargehand.tools.base import Tool

#: what a plan hands to a factory's task in `args`
ROLE, TOOLS = "role", "tools"
MADE = "You were called in for this one task."
#: characters of each input that are shown to whoever decides on a worker
LONGEST_INPUT = 2_000

Make = Callable[[Brief], Worker]
"""Makes the worker for one attempt; called again with the same brief when that is resumed."""


class Hire(Struct, frozen=True, forbid_unknown_fields=True):
    """Who is to do a task, and with what."""

    role: str = ""
    tools: tuple[str, ...] = ()


class Factory:
    """Creates a worker for each task, with instructions and granted tools for this task only.

    A task names in `args` the `role` of its worker and which of the factory's `tools` it gets.
    If it names neither, a model decides, in a durable step `hire`. Or `make` builds the worker
    from the brief, in your own code: the same brief must then give the same worker. A tool that
    is not granted is neither visible nor callable.
    """

    where = Where.LOOP

    @arguments_checked(settings=ModelSettings, tools=Sequence, make=FUNCTION)
    def __init__(
        self,
        name: str,
        description: str,
        *,
        tools: Sequence[Tool] = (),
        make: Make | None = None,
        **options: Unpack[WorkerOptions],
    ) -> None:
        check_words(name, description, "factory")
        if make is not None and tools:
            raise UsageError(
                f"factory {name!r}: with make=…, tools are given to the workers that it makes"
            )
        #: a worker with all tools that can be granted
        self._ablest = Worker(name, MADE, tools=tools, **options)
        self._options = options
        self._make = make
        self.name = name
        self.toolbox = self._ablest.toolbox
        offer = f". Tools it can grant: {', '.join(self.toolbox.names)}."
        self.description = f"{description.rstrip(' .')}{offer}" if tools else description
        self.model = self._ablest.model
        self.skills = self._ablest.skills
        self.secrets = self._ablest.secrets
        self.timeout = self._ablest.timeout
        self.place = self._ablest.place

    def __repr__(self) -> str:
        return f"<factory {self.name!r}: {self.description}>"

    @property
    def takes_hires(self) -> bool:
        """Whether a plan may name the role and the tools; False if your own function decides."""
        return self._make is None

    def version(self, resources: Resources) -> str:
        """Changes with what it can grant and how it decides; empty if your own function decides."""
        if self._make is not None:
            return ""
        ablest = self._ablest.version(resources)
        return digest_of(canonical([ablest, self._hiring_words(resources)])) if ablest else ""

    def work(self, resources: Resources) -> Callable[[Brief], Awaitable[Outcome]]:
        """The function that runs an attempt of this factory with these resources."""
        if self._make is not None:
            return self._by_hand(resources, self._make)
        resources.models(self.model, f"factory {self.name!r}")  # refuses at once if there is none

        async def perform(brief: Brief) -> Outcome:
            asked = _asked_in(brief.task.args)
            if isinstance(asked, str):
                return self._refused(asked)
            hire = await self._hired(brief, resources) if asked is None else asked
            unknown = [name for name in hire.tools if name not in self.toolbox]
            if unknown:
                return self._refused(f"there is no tool {', '.join(map(repr, unknown))}")
            own = copy.copy(brief)  # what was said to the factory is not said to the worker
            args = {
                name: value for name, value in own.task.args.items() if name not in (ROLE, TOOLS)
            }
            own.task = replace(brief.task, args=args)
            return await self.specialist(hire).work(resources)(own)

        return perform

    def specialist(self, hire: Hire) -> Worker:
        """The worker with this role and these tools."""
        options = self._options.copy()
        options["preapproved"] = [name for name in hire.tools if name in self._ablest.preapproved]
        tools = tuple(self.toolbox.only(hire.tools))
        return Worker(self.name, MADE, instructions=hire.role, tools=tools, **options)

    def _by_hand(self, resources: Resources, make: Make) -> Callable[[Brief], Awaitable[Outcome]]:
        def made_for(brief: Brief) -> Callable[[Brief], Awaitable[Outcome]]:
            made = make(brief)
            if not isinstance(made, Worker):
                raise WorkerError(
                    f"factory {self.name!r}: make returned {made!r}; it must return a chargehand.Worker",
                    kind="denied",
                )
            if made.model is None:
                made.model = self.model
            # Nobody could see at the start of the run which models would be asked.
            capped = brief.limits.money is not None
            if capped and (model := resources.unpriced(made.model, f"worker {made.name!r}")):
                from chargehand.models.prices import unpriced_words

                whose = f"worker {made.name!r}, made by factory {self.name!r},"
                raise WorkerError(unpriced_words(model, whose), kind="denied")
            return made.work(resources)

        async def perform(brief: Brief) -> Outcome:
            # Not tried again: the same brief makes the same worker, as wrong as this one.
            try:
                work = made_for(brief)
            except UsageError as error:
                raise WorkerError(f"factory {self.name!r}: {error}", kind="denied") from error
            return await work(brief)

        return perform

    async def _hired(self, brief: Brief, resources: Resources) -> Hire:
        """Who a model thinks should do this, with which tools. Asked once for each lineage of attempts."""
        worker = self._ablest
        own = Resources(model=worker.model, settings=worker.settings, prompts=worker.prompts)
        own = own.below(resources)
        shape = record(
            role={"type": "string", "description": "who the worker is and how it works"},
            tools={"type": "array", "items": one_of(self.toolbox.names)},
        )
        turns = (system(self._hiring_words(own)), user(f"Staff this.\n{_told(brief)}"))
        answer = await ask_for(DurableModelCaller(brief, own), "hire", turns, shape)
        granted = dict.fromkeys(name for name in answer[TOOLS] if name in self.toolbox)
        return Hire(answer[ROLE], tuple(granted))

    def _hiring_words(self, resources: Resources) -> str:
        specs = self.toolbox.specs
        lines = [f"- {spec.name}: {' '.join(spec.description.split())}" for spec in specs]
        listed = "\n".join(lines) or "(none)"
        return prompt("hire", self._ablest.prompts or resources.prompts, tools=listed)

    def _refused(self, why: str) -> Failed:
        """Final: the same words again would be refused again. Whoever planned it must say it otherwise."""
        have = ", ".join(self.toolbox.names) or "none"
        return Failed(
            kind=ErrorClass.LOGIC,
            message=f"{why}; factory {self.name!r} takes args role (text) and tools (of: {have})",
            error="HireRefused",
            is_final=True,
        )


def _asked_in(args: dict[str, Any]) -> Hire | str | None:
    """Who the plan wants; None if it leaves that open; in words, what is wrong with it."""
    asked = {name: args[name] for name in (ROLE, TOOLS) if args.get(name)}
    if not asked:
        return None
    try:
        return msgspec.convert(asked, Hire)
    except msgspec.ValidationError as error:
        return f"its args are not understood ({error})"


def _told(brief: Brief) -> str:
    task = brief.task
    lines = [fenced("task", task.description)]
    if task.args:
        lines.append(fenced("given", task.args))
    lines += [fenced(name, cut(str(value), LONGEST_INPUT)) for name, value in brief.inputs.items()]
    if task.accept:
        lines.append(fenced("accepted if", task.accept))
    return "".join(lines)
