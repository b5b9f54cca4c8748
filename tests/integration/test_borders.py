"""Hostile values at every border: the giver gets a typed error, the neighbours succeed, the journal reads.

A border is a function that hands one value in where users, workers, tools, hooks, people or other
programs can. To add one, write it and mark it with `@border`; every hostile value is tried on it.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import pytest
from mcp import Client, MCPError

import chargehand as ch
from chargehand.errors import ChargehandError, UnknownKeyword
from chargehand.facts.events import RunFinished
from chargehand.facts.outcome import Done, Failed
from chargehand.facts.value import Value
from chargehand.journal.base import Mail
from chargehand.journal.open_journal import open_journal
from chargehand.models.base import ToolCall
from chargehand.patterns import Group, RecursiveSupervisor, RoundRobinManager
from chargehand.server.mcp import McpTools, server_for
from tests.hostile_values import HOSTILE, RUN_OPTIONS, TASK_FIELDS


class Mute(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        return cast("str", None)


class Shy(Exception):
    """Breaks whoever looks at it."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("retry_after", "kind", "__notes__", "args"):
            raise RuntimeError(f"do not look at my {name}")
        return super().__getattribute__(name)

    def __str__(self) -> str:
        raise ValueError("no words")

    __repr__ = __str__


class World:
    """A supervisor on a durable journal, a victim that does what it is told, and two neighbours."""

    def __init__(self, journal: Path) -> None:
        self.act: Callable[[ch.Brief], Awaitable[object]] = _nothing
        self.gate = asyncio.Event()
        self.tool_gives: Callable[[], object] = object

        @ch.worker("victim", "Does what the test says")
        async def victim(brief: ch.Brief) -> object:
            return await self.act(brief)

        @ch.worker("neighbour", "Works beside it")
        async def neighbour(brief: ch.Brief) -> str:
            await self.gate.wait()
            return f"fine: {await brief.step('look', len, 'four', effect='pure')}"

        @ch.tool(effect="pure")
        async def rubbish() -> Any:
            """Give what the test says."""
            return self.tool_gives()

        caller = ch.Worker(
            "caller",
            "McpTools a tool",
            tools=[rubbish],
            model=ch.ScriptedModel([_call_then_answer] * 1_000),
        )
        self.boss = ch.Supervisor(
            [victim, neighbour, caller],
            journal=journal,
            limits=ch.Limits(attempts=1, active=60),
            on_question="return",
        )

    async def run(self, act: "Callable[[ch.Brief], Awaitable[object]] | None" = None) -> object:
        """A run of one task for the victim, or whatever it is that refuses it."""
        self.act = act or _nothing
        return await self.boss.run(plan_of())

    @asynccontextmanager
    async def neighbours(self) -> AsyncIterator[None]:
        """Two other runs, under way all the while, which must succeed."""
        self.gate.clear()
        beside = [await self.boss.submit(plan_of(worker="neighbour")) for _ in range(2)]
        yield
        self.gate.set()
        async with asyncio.timeout(60):
            for run in beside:
                assert (await run.wait()).status == "succeeded"

    async def outcome_of(self, handed_in: Awaitable[object]) -> object:
        """What came of handing something in; a typed refusal as a value."""
        try:
            async with asyncio.timeout(60):
                return await handed_in
        except (ChargehandError, MCPError) as refusal:
            return refusal


def _call_then_answer(request: Any) -> "str | ToolCall":
    return ToolCall("c", "rubbish", "{}") if len(request.turns) < 3 else "It gave something."


async def _nothing(_: ch.Brief) -> object:
    return None


def plan_of(goal: Any = "Try it", worker: str = "victim", **task: Any) -> ch.Plan:
    fields = {"id": "t", "description": "Do what is to be done", "worker": worker, **task}
    return ch.Plan(goal=goal, tasks=[ch.Task(**fields)])


Border = Callable[[World, Any], Awaitable[object]]
BORDERS: dict[str, Border] = {}


def border(function: Border) -> Border:
    BORDERS[getattr(function, "__name__", "").replace("_", " ")] = function
    return function


def of_task(field: str, *, listed: bool = False) -> None:
    async def hand_in(world: World, value: Any) -> object:
        fields: dict[str, Any] = {field: [value] if listed else value}
        return await world.boss.run(plan_of(**fields))

    BORDERS[f"task {field}"] = hand_in


for _field in TASK_FIELDS:
    of_task(_field, listed=_field == "needs")


def of_terms(field: str) -> None:
    async def hand_in(world: World, value: Any) -> object:
        return await world.boss.run(plan_of(), **{field: value})

    BORDERS[f"run {field}"] = hand_in


for _field in RUN_OPTIONS:
    of_terms(_field)


def of_values(name: str, make: Callable[[Any], object]) -> None:
    async def hand_in(_: World, value: Any) -> object:
        return make(value)

    BORDERS[name] = hand_in


of_values("Limits deadline", lambda x: ch.Limits(deadline=x))
of_values("Limits tokens", lambda x: ch.Limits(tokens=x))
of_values("Limits money", lambda x: ch.Limits(money=x))
of_values("TaskLimits timeout", lambda x: ch.TaskLimits(timeout=x))
of_values("OnFailure patience", lambda x: ch.OnFailure("ask", patience=x))
of_values("OnFailure steps", lambda x: ch.OnFailure(x))
of_values("OnFailure kinds", lambda x: ch.OnFailure("fail", kinds=x))
of_values("RetryPolicy", lambda x: ch.RetryPolicy(first=x))
of_values("Elastic", lambda x: ch.Elastic(wait=x))
of_values("worker name", lambda x: ch.worker(x, "Works")(_nothing))
of_values("worker timeout", lambda x: ch.worker("w", "Works", timeout=x)(_nothing))
of_values("worker skills", lambda x: ch.worker("w", "Works", skills=[x])(_nothing))
of_values("Worker timeout", lambda x: ch.Worker("w", "Works", timeout=x))
of_values("Worker instructions", lambda x: ch.Worker("w", "Works", instructions=x))
of_values("Supervisor workers", lambda x: ch.Supervisor(x))
of_values("ModelGateway rates", lambda x: ch.ModelGateway(x))
of_values("ModelGateway rate", lambda x: ch.ModelGateway({"openai": x}))
of_values("open_model", lambda x: ch.open_model(x))
of_values(
    "worker capacity",
    lambda x: ch.Supervisor([ch.worker("w", "Works", capacity=x)(_nothing)]),
)


@border
async def tool_timeout(_: World, value: Any) -> object:
    @ch.tool(timeout=value)
    def noop() -> None:
        """Do nothing."""

    return noop


@border
async def goal_of_a_plan(world: World, value: Any) -> object:
    return await world.boss.run(plan_of(value))


@border
async def argument_in_a_plan(world: World, value: Any) -> object:
    return await world.boss.run(plan_of(args={"x": value}))


@border
async def request_itself(world: World, value: Any) -> object:
    return await world.boss.run(value)


@border
async def posted_plan(world: World, value: Any) -> object:
    return await world.boss.post(plan_of(args={"x": value}, deadline=value))


@border
async def result_of_a_worker(world: World, value: Any) -> object:
    async def act(_: ch.Brief) -> object:
        return value

    return await world.run(act)


@border
async def outcome_made_by_a_worker(world: World, value: Any) -> object:
    async def act(_: ch.Brief) -> object:
        return Done(value, usage=value)

    return await world.run(act)


@border
async def failure_made_by_a_worker(world: World, value: Any) -> object:
    async def act(_: ch.Brief) -> object:
        return Failed(kind=value, message=value, retry_after=value)

    return await world.run(act)


@border
async def words_of_an_exception(world: World, value: Any) -> object:
    class Odd(Exception):
        def __str__(self) -> str:
            return cast("str", value)

    async def act(_: ch.Brief) -> object:
        raise Odd(value)

    return await world.run(act)


@border
async def kind_of_an_exception(world: World, value: Any) -> object:
    async def act(_: ch.Brief) -> object:
        raise ch.WorkerError("no", kind=value, retry_after=value)

    return await world.run(act)


@border
async def attributes_of_an_exception(world: World, value: Any) -> object:
    async def act(_: ch.Brief) -> object:
        error = ValueError("later")
        error.retry_after = value  # type: ignore[attr-defined]  # as other libraries have it
        raise error

    return await world.run(act)


def of_brief(name: str, call: Callable[[ch.Brief, Any], Any]) -> None:
    async def hand_in(world: World, value: Any) -> object:
        async def act(brief: ch.Brief) -> object:
            done = call(brief, value)
            if done is not None:
                await done
            return "accepted"

        return await world.run(act)

    BORDERS[f"brief {name}"] = hand_in


of_brief("ask text", lambda brief, x: brief.ask(x))
of_brief("ask choices", lambda brief, x: brief.ask("Which?", choices=[x, "other"]))
of_brief("ask all choices", lambda brief, x: brief.ask("Which?", choices=x))
of_brief("ask default", lambda brief, x: brief.ask("Which?", default=x))
of_brief("ask patience", lambda brief, x: brief.ask("Which?", patience=x))
of_brief("progress text", lambda brief, x: brief.progress(x))
of_brief("progress fraction", lambda brief, x: brief.progress("half", x))
of_brief("step name", lambda brief, x: brief.step(x, len, "four"))
of_brief("step function", lambda brief, x: brief.step("s", x))
of_brief("step argument", lambda brief, x: brief.step("s", id, x))
of_brief("step result", lambda brief, x: brief.step("s", lambda: x))
of_brief("step effect", lambda brief, x: brief.step("s", len, "four", effect=x))
of_brief("note", lambda brief, x: brief.board.post(x))
of_brief("note tags", lambda brief, x: brief.board.post("n", tags=[x]))
of_brief("note segment", lambda brief, x: brief.board.post("n", segment=x))
of_brief("note importance", lambda brief, x: brief.board.post("n", importance=x))
of_brief("note metadata", lambda brief, x: brief.board.post("n", metadata={"x": x}))
of_brief("notes asked for", lambda brief, x: brief.board.notes(author=x))
of_brief("notes limit", lambda brief, x: brief.board.notes(limit=x))
of_brief("block label", lambda brief, x: brief.board.write(x, 1))
of_brief("block value", lambda brief, x: brief.board.write("b", x))
of_brief("block expect", lambda brief, x: brief.board.write("c", 1, expect=x))
of_brief("block guard", lambda brief, x: brief.board.guard("d", readers=[x]))


@border
async def result_of_a_tool(world: World, value: Any) -> object:
    world.tool_gives = lambda: value
    return await world.boss.run(plan_of(worker="caller"))


@border
async def hook(world: World, value: Any) -> object:
    @world.boss.on(RunFinished)
    def odd(_: str, __: object) -> object:
        if isinstance(value, str):
            raise SystemExit(value)
        return value

    return await world.run()


@border
async def kind_of_event_of_a_hook(world: World, value: Any) -> object:
    return world.boss.on(value)


@border
async def function_of_a_hook(world: World, value: Any) -> object:
    return world.boss.on(RunFinished)(value)


async def _asking(world: World) -> ch.RunResult:
    async def act(brief: ch.Brief) -> object:
        return await brief.ask("Which?")

    return cast("ch.RunResult", await world.run(act))


@border
async def answer_of_a_person(world: World, value: Any) -> object:
    waiting = await _asking(world)
    await world.boss.answer(waiting.questions[0].id, value)
    return None


@border
async def name_of_a_person(world: World, value: Any) -> object:
    waiting = await _asking(world)
    await world.boss.answer(waiting.questions[0].id, "this", by=value)
    return None


@border
async def question_that_is_answered(world: World, value: Any) -> object:
    await world.boss.answer(value, "this")
    return None


@border
async def reason_of_a_person(world: World, value: Any) -> object:
    waiting = await _asking(world)
    await world.boss.pause(waiting.id, value)
    await world.boss.cancel(waiting.id, value)
    return None


@border
async def note_of_a_person(world: World, value: Any) -> object:
    waiting = await _asking(world)
    await world.boss.steer(waiting.id, value)
    return None


@border
async def letter_in_the_inbox(world: World, value: Any) -> object:
    for subject in ("submit", "answer", "steer", "budget"):
        body = repr(value).encode(errors="backslashreplace") if isinstance(value, str) else b"{}"
        stream = "" if subject == "submit" else (await _asking(world)).id
        letter = Mail(key=f"{subject} {id(value)}", stream=stream, subject=subject, body=body)
        await world.boss.journal.mail.post(letter)
    return await world.run()


def of_client(name: str, arguments: Callable[[Any], dict[str, Any]], tool: str = "run") -> None:
    async def hand_in(world: World, value: Any) -> object:
        try:  # a client can only send what JSON has a form for; infinity is written as its largest
            value = Value.of(value).read()
        except ch.UsageError:
            value = 1e308
        async with (
            McpTools(world.boss) as calls,
            Client(server_for(calls)) as client,
        ):
            return await client.call_tool(tool, arguments(value))

    BORDERS[f"MCP {name}"] = hand_in


_PLAN = msgspec.to_builtins(plan_of())
of_client("deadline", lambda x: {"plan": _PLAN, "deadline": x})
of_client("money", lambda x: {"plan": _PLAN, "money": x})
of_client("priority", lambda x: {"plan": _PLAN, "priority": x})
of_client("key", lambda x: {"plan": _PLAN, "key": x})
of_client("plan", lambda x: {"plan": x})
of_client(
    "task deadline",
    lambda x: {
        "plan": msgspec.to_builtins({**_PLAN, "tasks": [{**_PLAN["tasks"][0], "deadline": x}]})
    },
)
of_client(
    "task patience",
    lambda x: {
        "plan": {
            **_PLAN,
            "tasks": [{**_PLAN["tasks"][0], "on_failure": {"steps": ["ask"], "patience": x}}],
        }
    },
)
of_client("run", lambda x: {"run": x}, "status")
of_client("question", lambda x: {"question": x, "text": x}, "answer")
of_client("most", lambda x: {"most": x}, "runs")


#: borders that take lengths of time alone, and what the error must name
LENGTHS = {
    "task deadline": "deadline",
    "task expect": "expect",
    "run deadline": "deadline",
    "Limits deadline": "deadline",
    "TaskLimits timeout": "timeout",
    "OnFailure patience": "patience",
    "RetryPolicy": "first",
    "Elastic": "wait",
    "worker timeout": "timeout",
    "Worker timeout": "timeout",
    "tool timeout": "timeout",
}


class Row(NamedTuple):
    border: str
    value: str
    outcome: object


@contextmanager
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with (
        caplog.at_level("CRITICAL", logger="chargehand"),
        caplog.at_level("CRITICAL", logger="mcp"),
    ):
        yield


@asynccontextmanager
async def world_at(path: Path) -> AsyncIterator[World]:
    world = World(path)
    async with world.boss:
        yield world


def test_there_are_enough_combinations() -> None:
    assert len(BORDERS) * len(HOSTILE) >= 120


@pytest.mark.parametrize("name", BORDERS)
async def test_j1_j2_hostile_values_hurt_nobody_but_who_hands_them_in(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each value ends in a typed error or a run that ends; what was acknowledged can be read again."""
    rows: list[Row] = []
    with quiet(caplog):
        async with world_at(tmp_path / "runs.db") as world, world.neighbours():
            for value, make in HOSTILE.items():
                outcome = await world.outcome_of(BORDERS[name](world, make()))
                rows.append(Row(name, value, outcome))
    for row in rows:
        if isinstance(row.outcome, ch.RunResult):
            assert row.outcome.status in (*ch.RunStatus, "waiting"), row
        if name in LENGTHS:  # of the hostile values none is a length of time
            assert isinstance(row.outcome, ch.UsageError), row
            assert LENGTHS[name] in str(row.outcome), row
    assert len(rows) == len(HOSTILE)
    journal = open_journal(tmp_path / "runs.db")
    for head in await journal.heads():
        events = [entry.event async for entry in journal.read(head.stream)]
        assert len(events) == head.seq
    await journal.close()


RAISED: dict[str, Callable[[], BaseException]] = {
    "one that cannot say what it is": Mute,
    "one that breaks whoever looks": Shy,
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "StopAsyncIteration": StopAsyncIteration,
    "MemoryError": MemoryError,
    "RecursionError": lambda: RecursionError("deep"),
    "a group": lambda: ExceptionGroup("many", [Mute(), Shy(), ValueError("\ud800")]),
    "a group of worse": lambda: BaseExceptionGroup("worse", [SystemExit(), Mute()]),
    "infinite retry_after": lambda: ch.WorkerError("x", kind="resource", retry_after=timedelta.max),
    "an unknown kind": lambda: ch.WorkerError("x", kind="transient"),
    "a Unicode error": lambda: UnicodeEncodeError("utf-8", "\ud800", 0, 1, "lone"),
    "endless words": lambda: ValueError("x" * 10_000_000),
}


@pytest.mark.parametrize("place", ["worker", "thread", "step", "tool"])
async def test_j1_whatever_is_raised_ends_the_attempt_and_nothing_else(
    place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with quiet(caplog):
        async with world_at(tmp_path / "runs.db") as world, world.neighbours():
            for make in RAISED.values():

                def give_way(make: Callable[[], BaseException] = make) -> object:
                    raise make()

                async def act(brief: ch.Brief, give_way: Callable[[], object] = give_way) -> object:
                    match place:
                        case "step":
                            return await brief.step("s", give_way)
                        case "thread":
                            return await asyncio.to_thread(give_way)
                        case _:
                            return give_way()

                world.tool_gives = give_way
                worker = "caller" if place == "tool" else "victim"
                world.act = act
                outcome = await world.outcome_of(world.boss.run(plan_of(worker=worker)))
                assert isinstance(outcome, ch.RunResult)
                assert outcome.status in ("failed", "waiting", "succeeded")
                if outcome.status == "failed":
                    error = outcome.tasks["t"].error
                    assert error is not None
                    assert len(error.message) < 100_000
                    assert error.message.encode()


ARGUMENTS: dict[str, tuple[Callable[..., object], str]] = {}


ARGUMENTS["Supervisor"] = (
    lambda **given: ch.Supervisor([], **given),
    "limits parallel balance model gateway secrets settings prompts retry on_failure breaker "
    "starts clock name description capacity plan_for notify on_question default",
)
ARGUMENTS["Worker"] = (
    lambda **given: ch.Worker("w", "Works", **given),
    "tools model settings rules skills secrets destinations preapproved prompts on_failure",
)
ARGUMENTS["Factory"] = (
    lambda **given: ch.Factory(**{"name": "f", "description": "Makes", **given}),
    "name description tools model settings make skills secrets destinations preapproved prompts",
)
ARGUMENTS["RecursiveSupervisor"] = (
    RecursiveSupervisor,
    "name description model settings parts timeout",
)
ARGUMENTS["ModelGateway"] = (ch.ModelGateway, "breaker patience cache")
ARGUMENTS["Coordinator"] = (lambda **given: ch.Coordinator(":memory:", **given), "clock boards")
ARGUMENTS["ModelSettings"] = (
    ch.ModelSettings,
    "max_tokens temperature top_p reasoning seed stop context extra",
)
ARGUMENTS["open_model"] = (
    lambda **given: ch.open_model("openai:x", **{"key": "k", **given}),
    "base_url key protocol headers api_version timeouts abilities",
)
ARGUMENTS["Group"] = (
    lambda **given: Group([ch.Worker("w", "Works")], **{"manager": RoundRobinManager(), **given}),
    "manager name description blocks background every max_buffer min_buffer limits retry model",
)


@pytest.mark.parametrize("owner", ARGUMENTS)
def test_each_argument_of_a_constructor_is_taken_or_refused_by_name(owner: str) -> None:
    make, names = ARGUMENTS[owner]
    wrong: dict[str, Callable[[], object]] = {
        **HOSTILE,
        "a dict": lambda: {"first": 1},
        "a list": lambda: ["A"],
        "a word": lambda: "?",
    }
    for name in names.split():
        for value in wrong.values():
            try:
                make(**{name: value()})
            except ChargehandError as refusal:
                assert str(refusal)  # noqa: PT017 - that it is typed is what matters
    with pytest.raises(UnknownKeyword, match=f"^{owner} takes no"):
        make(**{f"{names.split()[0]}_": 1})


def test_what_is_meant_beyond_doubt_is_taken() -> None:
    ch.Supervisor([], on_failure=["again", "ask"])
    ch.Worker("w", "Works", on_failure=["again"])
    ch.ModelGateway(patience=3)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ch.Supervisor([], limits=cast("Any", {"money": 2})), r"limits=.*give Limits\("),
        (lambda: ch.Supervisor([], retry=cast("Any", {"first": 1})), r"retry=.*give RetryPolicy\("),
        (lambda: ch.Supervisor(cast("Any", ch.Worker("w", "Works"))), "workers=.*give a list"),
        (lambda: ch.Supervisor([], balance="fair"), "balance='fair' is none of 'least_busy'"),
        (lambda: ch.Supervisor([], prompts="/nosuch"), "prompts='/nosuch' is not a folder"),
        (lambda: ch.Supervisor([], secrets=cast("Any", ["sk-1"])), "secrets must be a dict"),
        (lambda: ch.Worker("w", "Works", model=cast("Any", 3)), "3 is not a model"),
        (lambda: ch.Worker("w", "Works", secrets="KEY"), "secrets='KEY' must be a list"),
        (lambda: ch.ModelSettings(temperature=cast("Any", "hot")), "temperature='hot'"),
        (lambda: ch.ModelSettings(max_tokens=-5), "max_tokens=-5 must not be negative"),
    ],
)
def test_a_wrong_argument_is_named_with_what_is_wanted(
    make: Callable[[], object], said: str
) -> None:
    with pytest.raises(ch.UsageError, match=said):
        make()


@pytest.mark.parametrize(
    ("given", "host"),
    [
        ("https://example.org", "example.org"),
        ("http://example.org:80/path", "example.org"),
        ("example.org:443", "example.org"),
        ("example.org/path", "example.org"),
        ("*.example.org", "example.org"),
        ("[::1]:80", "::1"),
    ],
)
def test_a_destination_that_is_more_than_a_host_is_refused_with_the_host(
    given: str, host: str
) -> None:
    def send() -> None:
        """Send it."""

    words = re.escape(f"destinations: {given!r} is more than a host; write {host!r}")
    with pytest.raises(ch.UsageError, match=words):
        ch.Worker("w", "Works", destinations=[given])
    with pytest.raises(ch.UsageError, match=re.escape(f"tool 'send': destination: {given!r}")):
        ch.tool(effect="once", destination=given)(send)


def test_hosts_and_addresses_of_machines_are_destinations() -> None:
    worker = ch.Worker("w", "Works", destinations=["Example.org.", "127.0.0.1", "::1", "*"])
    assert worker.destinations == {"Example.org", "127.0.0.1", "::1", "*"}


async def test_a_secret_that_the_supervisor_lacks_is_named_when_its_worker_joins() -> None:
    worker = ch.Worker("w", "Works", secrets=["KEY"])
    words = r"worker 'w' is granted the secret 'KEY', which its supervisor does not have.*secrets={'KEY': …}"
    with pytest.raises(ch.UsageError, match=words):
        ch.Supervisor([worker])
    with pytest.raises(ch.UsageError, match=words):
        ch.Supervisor([ch.Factory("w", "Works", secrets=["KEY"])])
    async with ch.Supervisor([]) as boss:
        with pytest.raises(ch.UsageError, match=words):
            await boss.join(worker)
    async with ch.Supervisor([], model="offline", secrets={"KEY": "sk-12345"}) as boss:
        await boss.join(worker)


async def test_a_secret_that_a_worker_was_not_granted_is_refused_with_the_way_out() -> None:
    @ch.tool(effect="pure")
    def tell(context: ch.ToolContext) -> str:
        """Tell the secret."""
        return context.secret("KEY")

    model = ch.ScriptedModel(
        [ToolCall("1", "tell", "{}"), lambda request: str(request.turns[-1].parts)]
    )
    worker = ch.Worker("w", "Works", tools=[tell], model=model)
    boss = ch.Supervisor([worker], secrets={"KEY": "sk-12345"})
    said = str((await boss.run(plan_of(worker="w"))).output)
    assert "'KEY' is not granted to this tool; to grant it: Worker(…, secrets=['KEY'])" in said


async def test_a_default_that_is_no_choice_is_refused(tmp_path: Path) -> None:
    async with world_at(tmp_path / "runs.db") as world:
        result = await world.run(lambda brief: brief.ask("Which?", choices=["red"], default="blue"))
    assert isinstance(result, ch.RunResult)
    assert "default='blue' is none of the choices" in str(result.tasks["t"].error)


@pytest.mark.parametrize(
    ("text", "choices", "fact"),
    [
        (" ", [], "text is empty"),
        ("Which?", ["red", ""], r"choices=\['red', ''\] has an empty text"),
    ],
)
async def test_an_empty_question_or_choice_is_refused(
    tmp_path: Path, text: str, choices: list[str], fact: str
) -> None:
    async with world_at(tmp_path / "runs.db") as world:
        result = await world.run(lambda brief: brief.ask(text, choices=choices))
    assert isinstance(result, ch.RunResult)
    assert re.search(f"brief.ask: {fact}", str(result.tasks["t"].error))


def test_a_question_is_answered_without_an_event_loop(tmp_path: Path) -> None:
    @ch.worker("w", "Asks")
    async def asks(brief: ch.Brief) -> str:
        return await brief.ask("Which?")

    boss = ch.Supervisor([asks], journal=tmp_path / "runs.db", on_question="return")
    waiting = boss.run_sync(plan_of(worker="w"))
    boss.answer_sync(waiting.questions[0].id, "this")
    assert boss.resume_sync(waiting.id).output == "this"
