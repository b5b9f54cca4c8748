"""However a run stops being led here, its callers hear of it, others can lead it, and nothing is lost or done twice."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import chargehand as ch
from chargehand.errors import JournalBusy, JournalError, JournalFull, KeyConflict, NotLeading
from chargehand.facts.events import Event, QuestionAnswered, RunFinished, RunReleased, RunRequested
from chargehand.facts.outcome import NeedsInput
from chargehand.journal.memory import MemoryJournal
from chargehand.runtime.command_inbox import AnswerMail, answer_mail
from chargehand.runtime.run_leader import LedRuns
from chargehand.server.mcp.tool_replies import RunReply
from chargehand.supervisor.supervisor import Supervisor
from chargehand.testing import FakeClock, run_virtual
from tests.guide.conftest import make_plan, make_task

#: virtual seconds; what hangs is found out at once
SOON = 30


@ch.worker("quick", "Is done at once")
async def quick(_: ch.Brief) -> str:
    return "done"


@ch.worker("slow", "Takes two seconds")
async def slow(_: ch.Brief) -> str:
    await asyncio.sleep(2)
    return "done"


@ch.worker("asker", "Asks a person")
async def asker(brief: ch.Brief) -> str:
    return await brief.ask("What colour?")


def plan_for(worker: str) -> ch.Plan:
    return make_plan(make_task("a", worker))


def virtual(story: Callable[[Supervisor], Awaitable[None]], *crew: Any) -> None:
    """Play a story of a supervisor in virtual time, and fail if it does not end."""

    async def main() -> None:
        boss = ch.Supervisor(
            crew or (quick, slow, asker), journal=MemoryJournal(), clock=FakeClock()
        )
        await asyncio.wait_for(story(boss), SOON)

    run_virtual(main())


def refusing_release(boss: Supervisor, error: JournalError, times: int = 1) -> None:
    """Have the journal refuse so often to let go of a lease."""
    release, left = boss.journal.leases.release, [times]

    async def refuse(stream: str, epoch: int) -> None:
        if left[0]:
            left[0] -= 1
            raise error
        await release(stream, epoch)

    boss.journal.leases.release = refuse  # type: ignore[method-assign]


def before_append(
    boss: Supervisor, kind: type[Any], then: Callable[[str], Awaitable[None]]
) -> None:
    """Do this before an event of this kind is written."""
    append = boss.journal.append

    async def appended(stream: str, events: Sequence[Event], **terms: Any) -> Any:
        if any(isinstance(event, kind) for event in events):
            await then(stream)
        return await append(stream, events, **terms)

    boss.journal.append = appended  # type: ignore[method-assign]


async def kinds_of(boss: Supervisor, run: str) -> list[str]:
    return [type(entry.event).__name__ async for entry in boss.journal.read(run)]


async def question_of(boss: Supervisor, run: str) -> str:
    async for entry in boss.journal.read(run):
        outcome = getattr(entry.event, "outcome", None)
        if isinstance(outcome, NeedsInput):
            return outcome.question.id
    raise AssertionError("nothing was asked")


# A lease that the journal refuses to let go of


def test_a_lease_that_is_not_released_at_once_ends_no_other_run() -> None:
    async def story(boss: Supervisor) -> None:
        refusing_release(boss, JournalBusy("locked by another program"))
        other = asyncio.create_task(boss.run(plan_for("slow")))
        asked = await boss.run(plan_for("asker"), on_question="return")
        assert (asked.status, (await other).status) == ("waiting", "succeeded")
        assert all(not head.owner for head in await boss.journal.heads())
        again = await boss.resume(asked.id, on_question="return")  # it can be let go of twice
        assert again.status == "waiting"

    virtual(story)


def test_a_supervisor_stops_although_the_journal_refuses_to_release_a_run() -> None:
    async def story(boss: Supervisor) -> None:
        refusing_release(boss, JournalBusy("locked by another program"))
        async with boss:
            runs = [await boss.submit(plan_for("slow")) for _ in range(2)]
            await boss.stop(0)
            for run in runs:
                with pytest.raises(ch.RunInterrupted):
                    await run.wait()

    virtual(story)


# Stops and cancellations at the wrong moment


def test_a_run_that_is_begun_while_the_supervisor_stops_is_refused() -> None:
    async def story(boss: Supervisor) -> None:
        lead, begun = boss.journal.leases.lead, asyncio.Event()

        async def lead_late(stream: str, holder: Any = None) -> int:
            begun.set()
            await asyncio.sleep(1)
            return await lead(stream, holder)

        boss.journal.leases.lead = lead_late  # type: ignore[method-assign]
        running = asyncio.create_task(boss.run(plan_for("quick")))
        await begun.wait()
        await boss.stop(0)
        with pytest.raises(ch.UsageError, match="the supervisor is stopping"):
            await running
        assert all(not head.owner for head in await boss.journal.heads())

    virtual(story)


def test_a_caller_who_gives_up_while_a_run_is_taken_over_does_not_keep_it() -> None:
    async def story(boss: Supervisor) -> None:
        async with boss:
            asked = await boss.run(plan_for("asker"), on_question="return")
            lead = boss.journal.leases.lead

            async def lead_late(stream: str, holder: Any = None) -> int:
                async def later() -> int:
                    await asyncio.sleep(1)
                    return await lead(stream, holder)

                return await asyncio.shield(
                    asyncio.ensure_future(later())
                )  # as a writer's thread does

            boss.journal.leases.lead = lead_late  # type: ignore[method-assign]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(boss.resume(asked.id), 0.5)
            await asyncio.sleep(2)
            (head,) = await boss.journal.heads()
            assert (head.owner, head.epoch) == ("", 2)

    virtual(story)


def test_a_run_with_a_key_is_cancelled_while_its_first_events_are_written() -> None:
    async def story(boss: Supervisor) -> None:
        before_append(boss, RunRequested, lambda _: asyncio.sleep(1))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(boss.run(plan_for("slow"), key="k"), 0.5)
        (head,) = await boss.journal.heads()
        assert (await boss.look(head.stream)).status == "cancelled"

    virtual(story)


def test_two_callers_with_one_key_share_a_run_that_is_not_written_yet() -> None:
    async def story(boss: Supervisor) -> None:
        before_append(boss, RunRequested, lambda _: asyncio.sleep(1))
        both = await asyncio.gather(*(boss.run(plan_for("quick"), key="k") for _ in range(2)))
        assert both[0].id == both[1].id
        assert {each.status for each in both} == {"succeeded"}

    virtual(story)


def test_another_request_with_the_key_of_a_run_that_is_not_written_yet_is_refused() -> None:
    async def story(boss: Supervisor) -> None:
        before_append(boss, RunRequested, lambda _: asyncio.sleep(1))
        first = asyncio.create_task(boss.run(plan_for("quick"), key="k"))
        await asyncio.sleep(0.5)
        with pytest.raises(KeyConflict):
            await boss.run(plan_for("slow"), key="k")
        assert (await first).status == "succeeded"

    virtual(story)


def test_a_supervisor_that_is_closed_interrupts_its_runs() -> None:
    async def story(boss: Supervisor) -> None:
        run = await boss.submit(plan_for("slow"))
        await boss.close()
        with pytest.raises(ch.RunInterrupted, match="resume it"):
            await run.wait()
        other = ch.Supervisor([quick, slow, asker], journal=boss.journal, clock=FakeClock())
        assert (await other.resume(run.id)).status == "succeeded"

    virtual(story)


def test_a_worker_leaves_although_its_caller_waits_no_longer() -> None:
    async def story(boss: Supervisor) -> None:
        async with boss:
            running = asyncio.create_task(boss.run(plan_for("slow")))
            await asyncio.sleep(0.5)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(boss.leave("slow"), 0.5)
            assert (await running).status == "succeeded"
            await asyncio.sleep(0)
            await boss.join(slow)
            assert (await boss.run(plan_for("slow"))).status == "succeeded"

    virtual(story)


# A runtime that has failed


def test_a_failed_runtime_answers_those_who_wait_and_is_replaced() -> None:
    async def story(boss: Supervisor) -> None:
        async with boss:
            run = await boss.submit(plan_for("slow"))
            await asyncio.sleep(0.5)
            runtime = boss._runtimes.current
            assert runtime is not None

            def mistake(_: object) -> None:
                raise ValueError("a mistake in the pool")

            runtime.kernel.dispatch.place = mistake  # type: ignore[assignment, method-assign]
            with pytest.raises(
                ch.RunInterrupted, match=r"a mistake in the pool.*repeat the command"
            ):
                await boss.pause(run.id)  # the round that would have written it has failed
            with pytest.raises(ValueError, match="a mistake in the pool"):
                await run.wait()
            assert (await boss.run(plan_for("quick"))).status == "succeeded"
            assert (await boss.resume(run.id)).status == "succeeded"

    virtual(story)


def test_a_run_that_has_ended_is_no_lost_run_while_a_lease_is_renewed() -> None:
    async def story(boss: Supervisor) -> None:
        leases, doubts = boss.journal.leases, [0]
        is_valid = leases.is_valid

        async def doubt(_: str) -> None:
            doubts[0] = 2

        def is_sure() -> bool:
            doubts[0] -= 1
            return doubts[0] < 0 and is_valid()

        async with boss:
            other = await boss.submit(plan_for("slow"))
            before_append(boss, RunFinished, doubt)
            leases.is_valid = is_sure  # type: ignore[method-assign]
            assert (await boss.run(plan_for("quick"))).status == "succeeded"
            assert (await other.wait()).status == "succeeded"

    virtual(story)


# What arrives while a run is let go of


def test_an_answer_that_arrives_while_a_run_is_let_go_of_waits_for_the_next_leader() -> None:
    async def story(boss: Supervisor) -> None:
        async def answer(run: str) -> None:
            question = await question_of(boss, run)
            await boss.journal.mail.post(answer_mail(run, AnswerMail(question, "a", "blue", "me")))
            await asyncio.sleep(1)  # the inbox is opened meanwhile

        before_append(boss, RunReleased, answer)
        async with boss:
            asked = await boss.run(plan_for("asker"), on_question="return")
            await asyncio.sleep(1)
            assert "QuestionAnswered" not in await kinds_of(boss, asked.id)
            assert len(await boss.journal.mail.unread()) == 1
            assert (await boss.resume(asked.id)).answer.output == "blue"

    virtual(story)


def test_nothing_is_begun_in_the_round_that_lets_go_of_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    effects: list[int] = []

    @ch.worker("painter", "Asks a person, and paints")
    async def paint(brief: ch.Brief) -> str:
        colour = await brief.ask("What colour?")
        effects.append(brief.attempt)
        await asyncio.sleep(1)
        return colour

    async def story(boss: Supervisor) -> None:
        let_go = LedRuns.let_go

        async def let_go_and_answer(self: LedRuns, run: str, *args: Any) -> None:
            going = asyncio.create_task(let_go(self, run, *args))
            await asyncio.sleep(0)
            question, now = await question_of(boss, run), self._clock.now()
            answered = QuestionAnswered(question=question, task="a", text="blue", by="me", at=now)
            self._pending.post(run, answered)
            await going

        async with boss:
            with monkeypatch.context() as patched:
                patched.setattr(LedRuns, "let_go", let_go_and_answer)
                asked = await boss.run(plan_for("painter"), on_question="return")
            assert (await kinds_of(boss, asked.id))[-3:] == [
                "RunReleased",
                "QuestionAnswered",
                "AttemptStarted",
            ]
            assert (await boss.resume(asked.id)).answer.output == "blue"
        assert len(effects) == 1

    virtual(story, paint)


# Servers


async def test_a_submitted_run_is_tried_again_if_another_process_had_it(tmp_path: Path) -> None:
    boss = ch.Supervisor([quick], journal=tmp_path / "runs.db")
    lead, refused = boss.journal.leases.lead, asyncio.Event()

    async def lead_second(stream: str, holder: Any = None) -> int:
        if not refused.is_set():
            refused.set()
            raise NotLeading(
                "another process begins it just now"
            )  # and dies before its first event
        return await lead(stream, holder)

    boss.journal.leases.lead = lead_second  # type: ignore[method-assign]
    async with boss:
        run = await boss.post(plan_for("quick"))
        await refused.wait()
        async for _ in boss.watch(run):
            pass
        assert (await boss.look(run)).status == "succeeded"


async def test_a_server_goes_on_after_its_journal_was_full(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    boss = ch.Supervisor([quick], journal=tmp_path / "runs.db")
    abandoned, refused, looked = boss.journal.leases.abandoned, asyncio.Event(), asyncio.Event()

    async def refuse_once() -> Any:
        if not refused.is_set():
            refused.set()
            raise JournalFull("the disk is full")
        looked.set()
        return await abandoned()

    boss.journal.leases.abandoned = refuse_once  # type: ignore[method-assign]
    serving = asyncio.create_task(boss.serve())
    run = await boss.post(plan_for("quick"))
    async for _ in boss.watch(run):
        pass
    await looked.wait()
    assert not serving.done()
    await boss.stop(0)
    await serving
    assert "standby_waits error=the disk is full" in caplog.text
    await boss.close()


def test_a_copy_of_a_run_may_be_read_while_the_run_goes_on() -> None:
    async def story(boss: Supervisor) -> None:
        async with boss:
            run = await boss.submit(plan_for("slow"))
            live = await boss.look(run.id)
            copy = await boss.control.look(run.id, is_copy=True)
            await run.wait()
            assert (live.status, copy.status) == ("succeeded", "running")
            assert RunReply.of(copy, "running", is_here=True).status == "running"

    virtual(story)
