"""Runs or follows a run on the command line: shows events, asks questions, handles Ctrl-C, prints the result."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from enum import IntEnum
from functools import partial

import click
from msgspec.structs import replace

from chargehand.cli import output
from chargehand.cli.ask_person import TerminalPrompt, ask_until_stuck
from chargehand.cli.event_display import RunView, WatchOptions
from chargehand.cli.options import again, with_resume_words
from chargehand.cli.run_details import ended_json
from chargehand.decisions.budget import OVER_BUDGET
from chargehand.decisions.schedule import RunState
from chargehand.decisions.wait_reasons import Cause
from chargehand.errors import ChargehandError, RunInterrupted, UnknownQuestion
from chargehand.facts.events import KINDS, RunStatus
from chargehand.facts.outcome import Question
from chargehand.interrupt_signals import counting_signals
from chargehand.journal.base import load_value
from chargehand.presentation.display_text import clean, doubt_lines, one_line, output_words
from chargehand.presentation.progress_lines import LABEL, summary, sureness
from chargehand.presentation.questions_and_typed_answers import question_lines
from chargehand.presentation.run_status import nested_in
from chargehand.result import RunResult
from chargehand.supervisor import Supervisor
from chargehand.supervisor.shared_runtime import GRACE
from chargehand.sync_async_bridge import in_thread


class Exit(IntEnum):
    """Exit codes of a run."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    PARTIAL = 3
    NEEDS_A_PERSON = 4
    OVER_BUDGET = 5
    INTERRUPTED = 130


#: pauses and continues a run in the live view
PAUSE_KEY = "p"

_OF_STATUS = {
    RunStatus.SUCCEEDED: Exit.DONE,
    RunStatus.PARTIAL: Exit.PARTIAL,
    RunStatus.FAILED: Exit.FAILED,
    RunStatus.CANCELLED: Exit.INTERRUPTED,
}


class RunSession:
    """Leads one run until it ends, needs a person, or is interrupted by Ctrl-C.

    With `leave`, another process leads the run, and this process only follows it; calling `leave` stops that. `unled`
    then says how to continue the run if no process leads it, and whether that was printed before.
    """

    def __init__(
        self,
        boss: Supervisor,
        watch: RunView,
        manner: WatchOptions,
        leave: Callable[[], None] | None = None,
        unled: Callable[[], Awaitable[tuple[str, bool]]] | None = None,
    ) -> None:
        self._leave = leave
        self._unled = unled
        self._boss = boss
        self._watch = watch
        self._manner = manner
        self._loop: asyncio.AbstractEventLoop | None = None
        self._group: asyncio.TaskGroup | None = None
        self._is_interrupted = False
        #: whether writing the result to its file failed
        self._is_unwritten = False
        if watch.screen is not None:
            watch.screen.leads, watch.screen.has_model = leave is None, boss.has_model
        for path, nested in nested_in(boss):
            nested.on(*KINDS.values())(partial(watch.hear_below, path))

    def conduct(self, start: Callable[[], Awaitable[None]]) -> int:
        """Run `start`, which passes events to the view, and print the result. Returns the exit code."""
        with counting_signals(self._interrupted), _unsaid(self._manner):
            return int(asyncio.run(self._conduct(start)))

    async def _conduct(self, start: Callable[[], Awaitable[None]]) -> Exit:
        self._loop = asyncio.get_running_loop()
        try:
            try:
                await self._do(start)
            finally:
                if self._watch.screen is not None:
                    self._watch.screen.close()
            result = await self._boss.look(self._watch.run)
            if self._unled is not None and self._is_detached(result):
                return self._tell_detached(result.id, *await self._unled())
            return await in_thread(self._tell, result)  # it may load blobs
        finally:
            await self._boss.close()

    async def _do(self, start: Callable[[], Awaitable[None]]) -> None:
        """Run `start` until it returns or is interrupted."""
        failure: Exception | None = None
        async with asyncio.TaskGroup() as group:
            self._group = group
            beside = [group.create_task(self._mind_questions())]
            if self._watch.screen is not None:
                self._watch.screen.on_key = self._obey_key
                beside.append(group.create_task(self._watch.screen.run()))
            try:
                await start()
            except (ChargehandError, click.Abort) as error:
                failure = error  # raised outside the task group, which would wrap it
            for task in beside:
                task.cancel()
        self._group = None
        if failure is not None and not isinstance(failure, RunInterrupted):
            raise failure

    # questions

    async def _mind_questions(self) -> None:
        """Ask questions at this terminal if a person is here. Otherwise the run itself follows `--on-question`."""
        source, is_followed = _OpenQuestions(self._boss, self._watch), self._leave is not None
        if self._manner.asks_here:
            await ask_until_stuck(source, self._watch.screen or TerminalPrompt())
        elif is_followed and self._manner.returns:
            await ask_until_stuck(source, None)
        else:
            return
        await self._stop(timedelta(0))

    async def _stop(self, grace: timedelta = GRACE) -> None:
        if self._leave is None:
            await self._boss.stop(grace)
        else:
            self._leave()

    # keys, and Ctrl-C

    def _obey_key(self, key: str) -> None:
        if key == PAUSE_KEY and self._group is not None:
            self._group.create_task(self._pause_or_go_on())

    async def _pause_or_go_on(self) -> None:
        run = self._watch.run
        is_paused = (await self._boss.look(run)).status is RunState.PAUSED
        try:
            await (self._boss.unpause(run) if is_paused else self._boss.pause(run))
        except ChargehandError as error:
            output.say(str(error))

    def _interrupted(self, times: int) -> None:
        """Handle a signal. This can run between any two lines of the main thread, so the event loop does the work."""
        if times > 2 or self._loop is None or not self._watch.run:
            raise KeyboardInterrupt
        self._loop.call_soon_threadsafe(self._obey, times)

    def _obey(self, times: int) -> None:
        if self._group is None:
            return
        self._is_interrupted = True
        if self._watch.screen is not None and self._leave is None:
            self._watch.screen.stop(times)
        if self._leave is not None:
            self._leave()
        elif times == 1:
            output.say(
                "interrupted: nothing new is started; running attempts have "
                f"{GRACE.total_seconds():g} s to finish, and the rest can be resumed. Ctrl-C again cancels the run"
            )
            self._group.create_task(self._stop())
        else:
            output.say("interrupted twice: cancelling the run")
            self._group.create_task(self._boss.cancel(self._watch.run, "interrupted twice"))

    # the end

    def _tell(self, result: RunResult) -> Exit:
        if not self._manner.as_json:
            self._tell_answer(result)
        elif self._manner.quiet:
            output.as_json(ended_json(result))
        if self._manner.as_json:
            self._is_in_file(result)
        if self._manner.report:
            output.say(str(result.report))
        exit_ = self._exit(result)
        for line in self._after(result, exit_):
            output.say(line)
        if self._manner.summary and isinstance(result.status, RunStatus):
            for line in summary(result, again("trace", result.id, self._manner.choice)):
                output.say(line, hang=LABEL)
        return exit_

    def _is_detached(self, result: RunResult) -> bool:
        """Whether this process stopped following a run that has not ended."""
        is_open = not isinstance(result.status, RunStatus) and not result.parked
        return is_open and self._exit(result) is Exit.INTERRUPTED

    def _tell_detached(self, run: str, unled: str, is_said: bool) -> Exit:
        if unled and not is_said:
            output.say(unled)
        goes_on = "" if unled else "the run continues; "
        output.say(f"{goes_on}follow it again with:  {again('watch', run, self._manner.choice)}")
        output.say(f"cancel it with:  {again('cancel', run, self._manner.choice)}")
        return Exit.INTERRUPTED

    def _tell_answer(self, result: RunResult) -> None:
        """Print the answer on stdout, and doubts and gaps on stderr. A run that waits for a person has no answer yet."""
        is_in_file = self._is_in_file(result)
        if not is_in_file and self._exit(result) is not Exit.NEEDS_A_PERSON:
            words = clean(output_words(result.answer.output))
            streamed = clean(self._watch.streamed)
            if streamed and words.startswith(streamed):
                words = words[len(streamed) :].lstrip("\n")
            if words:
                output.result(words)
        for line in doubt_lines(result.answer):
            output.say(line)
        is_told = self._manner.quiet or self._manner.summary  # the summary has it
        if isinstance(result.status, RunStatus) and not is_told and (words := sureness(result)):
            output.say(words)

    def _is_in_file(self, result: RunResult) -> bool:
        """Write the result to its file, if one is given; True if it need not be printed.

        An unfinished run has no result yet: it must not replace the result of an earlier run.
        """
        file, words = self._manner.file, output_words(result.answer.output)
        if not file:
            return False
        if not isinstance(result.status, RunStatus):
            output.tell_unwritten(file, "the run has not ended")
            return False
        is_written = output.write_file(file, words, quiet=self._manner.quiet)
        self._is_unwritten = not is_written
        return is_written

    def _exit(self, result: RunResult) -> Exit:
        if isinstance(result.status, RunStatus):
            exit_ = exit_of(result.status, result.trace.reason)
            return Exit.FAILED if self._is_unwritten and exit_ is Exit.DONE else exit_
        is_asking = result.status is RunState.WAITING and not self._is_interrupted
        return Exit.NEEDS_A_PERSON if is_asking else Exit.INTERRUPTED

    def _after(self, result: RunResult, exit_: Exit) -> list[str]:
        """What the person can do next, if the run has not ended."""
        choice = self._manner.choice
        is_led = self._leave is not None and not result.parked
        go_on = again("watch" if is_led else "resume", result.id, choice)
        lines: list[str] = []
        if exit_ is Exit.NEEDS_A_PERSON:
            for question in result.questions:
                lines += question_lines(question)
                lines.append(f"answer it:  {again('answer', question.id, choice)} TEXT")
            lines += [f"waiting for {words}" for words in _absent(result)[:3]]
            lines.append(f"then:       {go_on}")
        elif not isinstance(result.status, RunStatus):
            why = with_resume_words(result.parked, result, choice)
            lines += [one_line(why, 400)] if why else []
            lines.append(f"finished work is kept; continue with:  {go_on}")
        return lines


class _OpenQuestions:
    """The open questions of a run and of the runs nested in it."""

    def __init__(self, boss: Supervisor, watch: RunView) -> None:
        self._boss = boss
        self._watch = watch

    async def next(self) -> tuple[Question, int] | None:
        question = next(iter(self._watch.open.values()), None)
        if question is None:
            return None
        evidence = await load_value(question.evidence, self._boss.journal.blobs)
        return replace(question, evidence=evidence), len(self._watch.open) - 1

    async def is_open(self, question: str) -> bool:
        return question in self._watch.open

    async def answer(self, question: str, text: str) -> None:
        try:
            await self._boss.answer(question, text)
        except UnknownQuestion:
            self._watch.open.pop(question, None)
            raise
        self._watch.open.pop(question, None)

    async def delegate(self, question: str) -> None:
        await self._boss.delegate(question)

    async def is_stuck(self) -> bool:
        if not self._watch.open:
            return False
        return (await self._boss.look(self._watch.run)).status is RunState.WAITING

    async def wait_change(self) -> None:
        await self._watch.changed.wait()
        self._watch.changed.clear()


@contextlib.contextmanager
def _unsaid(manner: WatchOptions) -> Iterator[None]:
    """Suppress log messages about waits that this terminal shows itself: questions, pauses and retries."""
    shown = [" answer ", "whether more may be spent"] * manner.asks_here
    shown += [" unpause "] * manner.is_live
    shown += ["its next try at "] * (not manner.quiet and not manner.as_json)

    def is_said(record: logging.LogRecord) -> bool:
        if record.msg.startswith("submission_waits"):
            return False  # `FollowedRun` says whether any server can start it
        is_wait = record.msg.startswith("run_waits")
        return not (is_wait and any(command in record.getMessage() for command in shown))

    log = logging.getLogger("chargehand")
    log.addFilter(is_said)
    try:
        yield
    finally:
        log.removeFilter(is_said)


def _absent(result: RunResult) -> list[str]:
    """The unavailable model providers, each once."""
    waits = [each for each in result.waits if each.cause is Cause.PROVIDER]
    return list(dict.fromkeys(one_line(each.what, 400) for each in waits))


def exit_of(status: RunStatus, reason: str) -> Exit:
    """The exit code for the status and the reason of a finished run."""
    is_short = status is not RunStatus.SUCCEEDED
    return Exit.OVER_BUDGET if is_short and reason.startswith(OVER_BUDGET) else _OF_STATUS[status]
