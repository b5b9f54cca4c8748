"""Forks: a recorded run once more from one of its events, paying only for what changed."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import chargehand as ch
from chargehand import recordings
from chargehand.errors import EffectsWouldRepeat, PlanRefused, UsageError
from chargehand.facts.events import AttemptFinished, RunRequested, StepFinished
from chargehand.facts.outcome import Usage
from chargehand.facts.value import digest_of
from chargehand.models.base import ModelReply, StopReason, Text, ToolCall
from chargehand.testing.model_server import ModelServer, Received, Say, model_server
from tests.recordings.recorded_run import chargehand, plan_of, task

Calls = dict[str, int]


def counting(calls: Calls, name: str = "counts") -> ch.FunctionWorker:
    @ch.worker(name, "Counts how often it is asked")
    async def counts(brief: ch.Brief) -> str:
        calls[brief.task.id] = calls.get(brief.task.id, 0) + 1
        given = "+".join(str(each) for each in brief.inputs.values())
        return f"{brief.task.description}({given})"

    return counts


def chain(*ids: str, worker: str = "counts") -> ch.Plan:
    needs = [(), *((each,) for each in ids[:-1])]
    return plan_of(*(task(id_, worker, *need) for id_, need in zip(ids, needs, strict=True)))


def changed(id_: str, words: str, *needs: str, worker: str = "counts") -> ch.Task:
    return ch.Task(id=id_, description=words, worker=worker, needs=needs)


# Python


async def test_only_what_changed_and_what_needs_it_is_done_again(tmp_path: Path) -> None:
    calls: Calls = {}
    async with ch.Supervisor([counting(calls)], journal=tmp_path / "runs.db") as boss:
        first = await boss.run(chain("a", "b", "c", "d"))
        calls.clear()
        fork = await boss.fork(first.id, tasks=[changed("c", "Look at it in another way", "b")])
        assert calls == {"c": 1, "d": 1}
        assert fork.id != first.id
        assert fork.status == "succeeded"
        assert fork.tasks["b"].output == first.tasks["b"].output
        assert "Look at it in another way" in str(fork.answer)
        events = [entry.event async for entry in boss.journal.read(fork.id)]
        requested = events[0]
        assert isinstance(requested, RunRequested)
        assert (requested.reuses, requested.fork_seq, requested.keeps) == (
            first.id,
            len([entry async for entry in boss.journal.read(first.id)]),
            ("a", "b"),
        )
        reused = {e.task: e.reused for e in events if isinstance(e, AttemptFinished)}
        assert reused == {"a": first.id, "b": first.id, "c": "", "d": ""}
        archive = await recordings.load(fork.id, boss.journal)
    assert (await recordings.replay(archive)).difference is None


def in_part(*gaps: str) -> ModelReply:
    parts = (Text("the first half"),)
    return ModelReply(parts=parts, stop=StopReason.END, usage=Usage(calls=1), gaps=gaps)


async def test_a_result_keeps_its_gaps_in_a_fork_and_is_done_again_where_it_is_reused() -> None:
    """What a task lacks is not lost with the run that said so."""
    model = ch.ScriptedModel([in_part("the second half"), in_part("the second half"), in_part()])
    boss = ch.Supervisor([counting({}), ch.Worker("reader", "Reads", model=model)])
    plan = plan_of(task("a", "reader"), task("b", "counts", "a"))
    first = await boss.run(plan)
    fork = await boss.fork(first.id, redo=["b"])
    assert len(model.requests) == 1
    assert [(gap.task, gap.why) for gap in fork.answer.gaps] == [("a", "the second half")]
    assert first.status == fork.status == "partial"
    again = await boss.run(plan, reuse=first.id)
    assert len(model.requests) == 2
    assert again.status == "partial"
    whole = await boss.run(plan, reuse=first.id)
    assert whole.status == "succeeded"
    compared = await recordings.compare(
        await recordings.load(first.id, boss.journal), await recordings.load(whole.id, boss.journal)
    )
    assert compared.tasks[0].gaps == recordings.Pair(("the second half",), ())
    assert not compared.tasks[0].is_same


async def test_a_fork_from_an_event_keeps_what_was_done_by_then(tmp_path: Path) -> None:
    calls: Calls = {}
    async with ch.Supervisor([counting(calls)], journal=tmp_path / "runs.db") as boss:
        first = await boss.run(chain("a", "b", "c"))
        seqs = {
            entry.event.task: entry.seq
            async for entry in boss.journal.read(first.id)
            if isinstance(entry.event, AttemptFinished)
        }
        for at, again in ((seqs["a"], {"b", "c"}), (seqs["b"] - 1, {"b", "c"}), (seqs["c"], set())):
            calls.clear()
            fork = await boss.fork(first.id, at=at)
            assert set(calls) == again
            assert str(fork.answer) == str(first.answer)


async def test_a_failed_task_is_done_again(tmp_path: Path) -> None:
    calls: Calls = {}
    fails = True

    @ch.worker("fragile", "Fails at first")
    async def fragile(brief: ch.Brief) -> str:
        if fails:
            raise ch.WorkerError("no", kind="denied")
        return "well"

    async with ch.Supervisor([counting(calls), fragile], journal=tmp_path / "runs.db") as boss:
        plan = plan_of(task("a", "counts"), task("b", "fragile", "a"), task("c", "counts", "b"))
        first = await boss.run(plan)
        assert first.status == "partial"
        fails = False
        fork = await boss.fork(first.id)
        assert fork.status == "succeeded"
        assert calls == {"a": 1, "c": 1}


async def test_items_of_a_mapped_task_are_kept_one_by_one(tmp_path: Path) -> None:
    """Of three items one failed: the fork does that one, and what needs them all."""
    did: list[object] = []
    bad = {"y"}

    @ch.worker("maps", "Does one item")
    async def maps(brief: ch.Brief) -> str:
        did.append(brief.inputs["item"])
        if brief.inputs["item"] in bad:
            raise ch.WorkerError("no", kind="denied")
        return f"did {brief.inputs['item']}"

    mapped = ch.Task(
        id="m", description="Do each of them", worker="maps", for_each="a", needs=["a"], at_least=3
    )

    @ch.worker("lists", "Lists them")
    async def lists(brief: ch.Brief) -> list[str]:
        did.append("list")
        return ["x", "y", "z"]

    plan = plan_of(task("a", "lists"), mapped)
    async with ch.Supervisor([maps, lists], journal=tmp_path / "runs.db") as boss:
        first = await boss.run(plan)
        assert first.tasks["m"].state == "failed"
        did.clear()
        bad.clear()
        fork = await boss.fork(first.id)
        assert fork.status == "succeeded"
        assert did == ["y"]
        assert fork.tasks["m"].output == ["did x", "did y", "did z"]
        did.clear()
        again = await boss.fork(fork.id, redo=["m"])
        assert sorted(map(str, did)) == ["x", "y", "z"]
        assert again.tasks["m"].output == fork.tasks["m"].output


async def test_failed_items_that_were_not_required_are_kept_as_they_are(tmp_path: Path) -> None:
    """Enough items are done: the task, its failed items and what needs it are kept; an item can be named."""
    did: list[object] = []
    bad = {2}

    @ch.worker("maps", "Does one item")
    async def maps(brief: ch.Brief) -> int:
        did.append(brief.item)
        if brief.item in bad:
            raise ch.WorkerError("no amount", kind="network")
        return int(brief.item)

    calls: Calls = {}
    mapped = ch.Task(
        id="m",
        description="Do each of them",
        worker="maps",
        for_each=[1, 2, 3],
        at_least=2,
        on_failure=ch.OnFailure(("again", "ask")),
    )
    plan = plan_of(mapped, task("z", "counts", "m"), task("y", "counts"))
    crew = [maps, counting(calls)]
    at_once = ch.RetryPolicy(first=0)
    async with ch.Supervisor(crew, journal=tmp_path / "runs.db", retry=at_once) as boss:
        first = await boss.run(plan, on_question="fail")
        assert first.status == "succeeded"
        (failed,) = first.tasks["m"].failed_items
        for reset in (did.clear, calls.clear, bad.clear):
            reset()
        async with asyncio.timeout(30):  # a person would be asked again
            fork = await boss.fork(first.id, tasks=[changed("y", "Look elsewhere")])
        assert (did, calls) == ([], {"y": 1})
        assert fork.status == "succeeded"
        assert fork.tasks["m"].failed_items == [failed]
        assert fork.tasks["m"].output == [1, None, 3]
        told = await boss.fork_plan(fork.id, redo=["m[1]"])
        assert told.redone == {"m": "you asked for 1 of its items", "z": "it needs m"}
        again = await boss.fork(fork.id, redo=["m[1]"])
        assert did == [2]
        assert again.tasks["m"].output == [1, 2, 3]


async def test_more_items_than_were_done_may_be_required_of_a_fork(tmp_path: Path) -> None:
    did: list[object] = []

    @ch.worker("maps", "Does one item")
    async def maps(brief: ch.Brief) -> int:
        did.append(brief.item)
        if brief.item == 2:
            raise ch.WorkerError("no amount", kind="denied")
        return int(brief.item)

    def mapped(least: int | None) -> ch.Task:
        words = "Do each of them"
        return ch.Task(id="m", description=words, worker="maps", for_each=[1, 2, 3], at_least=least)

    async with ch.Supervisor([maps], journal=tmp_path / "runs.db") as boss:
        first = await boss.run(plan_of(mapped(2)))
        did.clear()
        for least in (None, 3):
            told = await boss.fork_plan(first.id, tasks=[mapped(least)])
            assert told.redone == {"m": "1 of its items failed"}
        fork = await boss.fork(first.id, tasks=[mapped(None)])
        assert (did, fork.status) == ([2], "partial")


async def test_a_fork_says_beforehand_what_it_keeps(tmp_path: Path) -> None:
    async with ch.Supervisor([counting({})], journal=tmp_path / "runs.db") as boss:
        first = await boss.run(chain("a", "b", "c"))
        told = await boss.fork_plan(first.id, redo=["b"])
        assert told.keeps == ("a",)
        assert told.redone == {"b": "you asked for it", "c": "it needs b"}
        whole = plan_of(*first_tasks(first)[:2], changed("x", "Look at something new", "a"))
        told = await boss.fork_plan(first.id, plan=whole)
        assert told.keeps == ("a", "b")
        assert told.redone == {"x": "it is new"}
        assert len(await boss.journal.heads()) == 1, "nothing was started"


def first_tasks(result: ch.RunResult) -> list[ch.Task]:
    return [each.task for each in result.tasks.values()]


async def test_effects_are_not_repeated_unasked(tmp_path: Path) -> None:
    """Steps that may run twice are; a message that was sent is not sent again without a word."""
    sent: list[str] = []

    @ch.worker("sender", "Sends a message")
    async def sender(brief: ch.Brief) -> str:
        await brief.step("look", lambda: "there", effect="pure")
        await brief.step("send", sent.append, brief.task.description)
        return "sent"

    below = ch.Supervisor([sender], name="below", description="Sends, below")
    async with ch.Supervisor([sender, below], journal=tmp_path / "runs.db") as boss:
        nested = ch.Task(
            id="b",
            description="Have it sent by others",
            worker="below",
            args={"plan": json.loads(plan_of(task("x", "sender")).to_json())},
        )
        first = await boss.run(plan_of(task("a", "sender"), nested))
        assert len(sent) == 2
        for id_ in ("a", "b"):
            with pytest.raises(
                EffectsWouldRepeat, match=f"{id_}: send.*repeat_effects=True.*--repeat-effects"
            ):
                await boss.fork(first.id, redo=[id_])
        assert len(sent) == 2
        await boss.fork(first.id, redo=["a"], repeat_effects=True)
        assert len(sent) == 3


async def test_a_killed_fork_is_resumed_as_a_fork(tmp_path: Path) -> None:
    """What it keeps is known from its own first event and the run it was forked from."""
    calls: Calls = {}
    async with ch.Supervisor([counting(calls)], journal=tmp_path / "runs.db") as boss:
        first = await boss.run(chain("a", "b", "c"))
        calls.clear()
        run = asyncio.create_task(boss.fork(first.id, redo=["c"]))
        async for event in watched(boss, first.id):
            if isinstance(event, AttemptFinished):
                break
        await boss.stop(grace=0)
        with pytest.raises(ch.RunInterrupted) as left:
            await run
    async with ch.Supervisor([counting(calls)], journal=tmp_path / "runs.db") as boss:
        result = await boss.resume(left.value.run)
        assert result.status == "succeeded"
    assert calls == {"c": 1}


async def watched(boss: ch.Supervisor, but: str):  # type: ignore[no-untyped-def] # events
    heard: asyncio.Queue[object] = asyncio.Queue()
    boss.on(AttemptFinished)(lambda run, event: heard.put_nowait(event) if run != but else None)
    while True:
        yield await heard.get()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"at": 0}, "no event 0"),
        ({"at": 1000}, "no event 1000"),
        ({"at": 1}, "no plan at that event"),
        ({"redo": ["nowhere"]}, "no such task"),
        ({"plan": chain("a"), "instruction": "x"}, "either a whole plan"),
        ({"tasks": [changed("z", "Look at what is not there", "y")]}, "y"),
        ({"tasks": [changed("z", "Look at it with nobody", worker="nobody")]}, "nobody"),
        ({"reuse": "r1"}, "fork takes no reuse"),
    ],
)
async def test_what_cannot_be_forked_is_refused_and_starts_nothing(
    changes: dict[str, object], words: str
) -> None:
    async with ch.Supervisor([counting({})]) as boss:
        first = await boss.run(chain("a"))
        with pytest.raises((UsageError, PlanRefused), match=words):
            await boss.fork(first.id, **changes)  # type: ignore[arg-type] # on purpose
        assert len(await boss.journal.heads()) == 1


# models


PARTS = [f"t{number}" for number in range(10)]


def reply(received: Received) -> Say:
    return Say(text=f"said {digest_of(json.dumps(received.body).encode())}")


async def test_a_fork_that_changes_one_of_ten_tasks_calls_models_only_for_it_and_its_dependents(
    tmp_path: Path,
) -> None:
    """Ten tasks of a real HTTP model server: one is changed, two need it."""
    async with model_server() as server:
        server.always = reply
        llm = thinker(server)
        needs = {"t5": ["t1"], "t8": ["t5"], "t9": ["t2"]}
        ten = [task(id_, "thinker", *needs.get(id_, [])) for id_ in PARTS]
        async with ch.Supervisor([llm], journal=tmp_path / "runs.db") as boss:
            first = await boss.run(plan_of(*ten))
            assert first.status == "succeeded"
            assert len(server.requests) == 10
            server.requests.clear()
            other = changed("t1", "Look at part t1 of it again", worker="thinker")
            fork = await boss.fork(first.id, tasks=[other])
            assert fork.status == "succeeded"
            assert len(server.requests) == 3
            assert fork.usage.calls == 3
            kept = set(PARTS) - {"t1", "t5", "t8"}
            assert all(fork.tasks[id_].output == first.tasks[id_].output for id_ in kept)
            found = await recordings.compare(
                *[await recordings.load(each.id, boss.journal) for each in (first, fork)]
            )
        assert {each.task for each in found.tasks if not each.is_same} == {"t1", "t5", "t8"}


def thinker(server: ModelServer, model: str = "gpt-4.1", **more: object) -> ch.Worker:
    opened = ch.open_model(f"openai:{model}", base_url=f"{server.url}/v1", key="sk-test-key")
    return ch.Worker("thinker", "Thinks about things", model=opened, **more)  # type: ignore[arg-type] # any option


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (lambda server: thinker(server, "gpt-4.1-mini"), "model"),
        (lambda server: thinker(server, instructions="Think the other way."), "instructions"),
    ],
)
async def test_another_model_or_prompt_does_the_tasks_of_its_worker_again(
    other: Callable[[ModelServer], ch.Worker], what: str, tmp_path: Path
) -> None:
    calls: Calls = {}
    journal = tmp_path / "runs.db"
    plan = plan_of(task("a", "counts"), task("b", "thinker", "a"), task("c", "counts"))
    async with model_server() as server:
        server.always = reply
        async with ch.Supervisor([thinker(server), counting(calls)], journal=journal) as boss:
            first = await boss.run(plan)
            seq = len([entry async for entry in boss.journal.read(first.id)])
        server.requests.clear()
        async with ch.Supervisor([other(server), counting(calls)], journal=journal) as boss:
            told = await boss.fork_plan(first.id)
            assert told.redone == {"b": f"thinker: another {what}"}
            await boss.fork(first.id)
            assert len(server.requests) == 1
            await boss.fork(first.id, at=seq)
            assert len(server.requests) == 1, "what was done by then is as it was"
    assert calls == {"a": 1, "c": 1}


async def test_a_fork_in_the_middle_of_a_task_goes_on_after_its_steps(tmp_path: Path) -> None:
    """Its first model call is paid for already; only the second is made again."""
    used: list[str] = []

    @ch.tool(effect="pure")
    def look(what: str) -> str:
        """Look at something."""
        used.append(what)
        return "a tower"

    journal = tmp_path / "runs.db"
    async with model_server() as server:
        server.say(
            Say(calls=(ToolCall("1", "look", '{"what": "it"}'),)), Say(text="It is a tower.")
        )
        server.always = Say(text="It is high.")
        async with ch.Supervisor([thinker(server, tools=[look])], journal=journal) as boss:
            first = await boss.run(plan_of(task("a", "thinker")))
            assert len(server.requests) == 2
            finished = [
                entry.seq
                async for entry in boss.journal.read(first.id)
                if isinstance(entry.event, StepFinished)
            ]
            fork = await boss.fork(first.id, at=finished[1])
            assert fork.tasks["a"].output == "It is high."
        assert len(server.requests) == 3
        assert "a tower" in json.dumps(server.requests[-1].body), "what the tool found is known"
        assert used == ["it"]


# the command line


@pytest.fixture
def crew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a crew whose workers note each call in a file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "crew.py").write_text(
        "import chargehand as ch\n"
        "def noted(words):\n"
        "    with open('calls.txt', 'a') as file:\n"
        "        file.write(words + '\\n')\n"
        "@ch.worker('counts', 'Counts')\n"
        "async def counts(brief):\n"
        "    noted(brief.task.id)\n"
        "    return f'{brief.task.description} done'\n"
        "@ch.worker('other', 'Counts, too')\n"
        "async def other(brief):\n"
        "    noted('other ' + brief.task.id)\n"
        "    return 'otherwise'\n"
        "workers = [counts, other]\n"
    )
    (tmp_path / "plan.json").write_text(chain("a", "b", "c").to_json())
    result = chargehand("run", "--plan", "plan.json", "--crew", "crew.py:workers", "--here")
    assert result.exit_code == 0, result.stderr
    (tmp_path / "calls.txt").unlink()
    return tmp_path


def called(crew: Path) -> list[str]:
    file = crew / "calls.txt"
    return file.read_text().split("\n")[:-1] if file.exists() else []


def test_the_command_changes_a_task_and_prints_the_answer(crew: Path) -> None:
    result = chargehand("fork", "last", "--task", "b", "--prompt", "Look at b otherwise")
    assert result.exit_code == 0, result.stderr
    assert called(crew) == ["b", "c"]
    assert "1 of 3 tasks are kept" in result.stderr
    assert "b will be done again: another description" in result.stderr
    assert "part c of it done" in result.stdout


def test_the_command_gives_a_task_to_another_worker(crew: Path) -> None:
    result = chargehand("fork", "last", "--task", "c", "--worker", "other", "--quiet")
    assert result.exit_code == 0, result.stderr
    assert called(crew) == ["other c"]
    assert result.stdout.strip() == "otherwise"


def test_the_command_tells_without_starting_anything(crew: Path) -> None:
    told = json.loads(chargehand("fork", "last", "--at", "5", "--dry-run", "--json").stdout)
    assert (told["seq"], told["keeps"]) == (5, ["a"])
    assert list(told["redone"]) == ["b", "c"]
    assert called(crew) == []
    assert len(chargehand("runs", "--json").stdout.splitlines()) == 1


def test_the_command_forks_a_recording_into_another_journal(crew: Path) -> None:
    assert chargehand("record", "last", "-o", "run.chargehand").exit_code == 0
    plan = json.loads((crew / "plan.json").read_text())
    plan["tasks"][2]["description"] = "Look at the end of it"
    (crew / "plan.json").write_text(json.dumps(plan))
    words = ["fork", "run.chargehand", "--plan", "plan.json", "--journal", "other.db", "--quiet"]
    result = chargehand(*words)
    assert result.exit_code == 0, result.stderr
    assert called(crew) == ["c"]
    assert result.stdout.strip() == "Look at the end of it done"
    assert len(chargehand("runs", "--json", "--journal", "other.db").stdout.splitlines()) == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--prompt", "x"], "name it with --task"),
        (["--task", "b", "--prompt", "x", "--plan", "plan.json"], "leave --plan out"),
        (["--task", "z"], "there is no such task"),
        (["--task", "b", "--worker", "nobody", "--dry-run"], "'nobody' is not on the roster"),
        (["--at", "99"], "no event 99"),
    ],
)
def test_the_command_refuses_what_cannot_be_meant(words: list[str], told: str, crew: Path) -> None:
    result = chargehand("fork", "last", *words)
    assert result.exit_code == 2
    assert told in result.stderr
    assert called(crew) == []
