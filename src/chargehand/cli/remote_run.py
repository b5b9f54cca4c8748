"""`chargehand run --server URL` and `answer --server URL`: submit a run to a server, follow it, answer its questions."""

import asyncio
import shlex
from typing import Any

import click
import msgspec

from chargehand.cli import output
from chargehand.cli.ask_person import TerminalPrompt, ask_until_stuck
from chargehand.cli.interactive_run import Exit, exit_of
from chargehand.cli.run_details import question_meant
from chargehand.client import Client, RemoteResult
from chargehand.decisions.schedule import RunState
from chargehand.errors import JournalDamaged, UnknownQuestion, UsageError
from chargehand.facts.events import Event, RunStatus, decode
from chargehand.facts.outcome import Question
from chargehand.facts.plan import Plan
from chargehand.facts.value import Value
from chargehand.presentation.display_text import clean
from chargehand.presentation.progress_lines import ProgressLines
from chargehand.presentation.questions_and_typed_answers import answer_in, question_lines
from chargehand.roles.plan_approval import ABOUT_PLAN

#: options about the crew, the journal or the process: the server has its own
_OF_SERVER = (
    "crew",
    "files",
    "model",
    "journal",
    "parallel",
    "notify",
    "here",
    "report",
)
#: values of `--on-question` that only the process that leads the run could obey
_OF_LEADER = ("supervisor", "fail")
#: kinds of questions in the API that equal `Question.about`
_KINDS_ASKED_ALIKE = ("approval", "budget", ABOUT_PLAN)


def run_at_server(url: str, asked: str | Plan, options: dict[str, Any]) -> int:
    """Submit a request or plan to a server, show its progress, print the answer, and return the exit code."""
    for name in _OF_SERVER:
        if options.get(name):
            flag = name.replace("_", "-")
            raise click.UsageError(
                f"--{flag} cannot be combined with --server: the server has its own settings"
            )
    if (mode := options["on_question"]) in _OF_LEADER:
        raise click.UsageError(
            f"--on-question {mode} cannot be combined with --server: runs of a server wait for a person's answer; "
            "give wait or return"
        )
    if options["display"] == "live":
        raise click.UsageError(
            "--display live cannot be combined with --server: a run on a server is shown line by line; leave it out"
        )
    return asyncio.run(_RemoteRun(url, options).conduct(asked))


class _RemoteRun:
    """One run on a server."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self._client = Client(url)
        #: what `--server` must be in a command that can be pasted; the token itself is not printed
        self._address = self._client.url + ("#token=TOKEN" if "#token=" in url else "")
        self._options = options
        self._is_quiet = bool(options["quiet"])
        self._lines = ProgressLines(output.say, verbose=options["verbose"])
        #: number of the last event that was shown
        self._seq = 0
        #: set by each event
        self._changed = asyncio.Event()
        #: the reason in `RunFinished`
        self._reason = ""

    async def conduct(self, asked: str | Plan) -> Exit:
        async with self._client as client:
            run = await client.submit(asked, **self._terms())
            if not self._is_quiet and not self._options["as_json"]:
                output.say(f"run {run} at {client.url}; Ctrl-C stops this command, not the run")
            is_left = await self._follow(run)
            result = await client.result(run)
            return await self._left(result) if is_left else self._show(result)

    def _terms(self) -> dict[str, Any]:
        options = self._options
        limits = {
            name: options[name]
            for name in ("money", "tokens", "calls")
            if options[name] is not None
        }
        if options["deadline"] is not None:
            limits["time"] = options["deadline"].total_seconds()
        terms = {
            name: options[name]
            for name in ("approach", "after", "reuse", "workers")
            if options[name]
        }
        return {
            **terms,
            "limits": limits,
            "priority": options["priority"],
            "on_budget": options["on_budget"],
            "review_plan": options["review"],
        }

    async def _follow(self, run: str) -> bool:
        """Show the run until it ends. True if it was left before its end, because it waits for a person."""
        showing = asyncio.ensure_future(self._show_events(run))
        asking = asyncio.ensure_future(self._mind_questions(run))
        try:
            await asyncio.wait([showing, asking], return_when=asyncio.FIRST_COMPLETED)
            await (showing if showing.done() else asking)
            return not showing.done()
        finally:
            showing.cancel()
            asking.cancel()
            await asyncio.wait([showing, asking])

    async def _show_events(self, run: str) -> None:
        async for told in self._client.events(run):
            if self._options["as_json"] and not self._is_quiet:
                output.as_json(told)
            elif not self._is_quiet and (event := event_of(told)) is not None:
                self._lines.hear(event)
            if told["kind"] == "RunFinished":
                self._reason = told.get("reason", "")
            self._seq = told["seq"]
            self._changed.set()

    # questions

    async def _mind_questions(self, run: str) -> None:
        """Ask the person at this terminal. Returns when the run waits for an answer that cannot be given here."""
        mode, source = self._options["on_question"], _RemoteQuestions(self, self._client, run)
        asks_here = mode != "return" and output.is_interactive()
        await ask_until_stuck(source, TerminalPrompt() if asks_here else None)
        if asks_here or mode != "wait":
            return
        told: set[str] = set()
        while True:
            _, questions = await self.asked(run)
            self._tell([each for each in questions if each["id"] not in told])
            told |= {each["id"] for each in questions}
            await self.wait_change()

    def _tell(self, questions: list[dict[str, Any]]) -> None:
        """Print questions, and how to answer them."""
        for told in questions:
            for line in question_lines(_question_of(told)):
                output.say(line)
            words = ["chargehand", "answer", told["id"], "--server", self._address]
            output.say(f"answer it:  {shlex.join(words)} TEXT")

    async def _left(self, result: RemoteResult) -> Exit:
        """Print what the run has so far, its questions, and what to do next."""
        options = self._options
        if options["as_json"] and self._is_quiet:
            output.as_json(result)
        elif not options["as_json"]:
            self._tell_shortfalls(result)
        if options["output"]:
            output.tell_unwritten(options["output"], "the run has not ended")
        self._tell(await self._client.questions(result.id))
        pages = f"{self._client.url}/runs/{result.id}"
        output.say(f"or there:   {pages}/questions")
        output.say(f"then:       the run continues on the server; its answer: {pages}/output")
        return Exit.NEEDS_A_PERSON

    async def asked(self, run: str) -> tuple[str, list[dict[str, Any]]]:
        """The state of the run and its open questions, after all earlier events were shown.

        The state is empty if no question is open, or if the run has changed meanwhile: `wait_change` then returns at once.
        """
        if not await self._client.questions(run):
            return "", []
        snapshot = await self._client.snapshot(run)
        while self._seq < snapshot["seq"]:
            await self.wait_change()
        state, questions = snapshot["run"]["state"], _open_of(snapshot["questions"])
        if self._seq == snapshot["seq"]:
            return state, questions
        self._changed.set()  # `wait_change` has also reported events that this snapshot does not know
        return "", questions

    async def wait_change(self) -> None:
        await self._changed.wait()
        self._changed.clear()

    def _show(self, result: RemoteResult) -> Exit:
        file, as_json = self._options["output"], self._options["as_json"]
        is_written = bool(file) and output.write_file(file, result.text, quiet=self._is_quiet)
        if as_json and self._is_quiet:
            output.as_json(result)
        elif not as_json:
            if not is_written and result.text:
                output.result(clean(result.text))
            self._tell_shortfalls(result)
        exit_ = exit_of(RunStatus(result.status), self._reason) if result.has_ended else Exit.FAILED
        return Exit.FAILED if file and not is_written and exit_ is Exit.DONE else exit_

    def _tell_shortfalls(self, result: RemoteResult) -> None:
        for gap in result.gaps if not self._is_quiet else ():
            output.say(f"missing: {clean(str(gap))}")
        for over in result.over_budget if not self._is_quiet else ():
            output.say(f"over budget: {clean(over)}")


class _RemoteQuestions:
    """The open questions of a run on a server."""

    def __init__(self, run: _RemoteRun, client: Client, id_: str) -> None:
        self._run = run
        self._client = client
        self._id = id_

    async def next(self) -> tuple[Question, int] | None:
        _, told = await self._run.asked(self._id)
        return (_question_of(told[0]), len(told) - 1) if told else None

    async def is_open(self, question: str) -> bool:
        return any(told["id"] == question for told in await self._client.questions(self._id))

    async def answer(self, question: str, text: str) -> None:
        await self._client.answer(question, text)

    async def delegate(self, question: str) -> None:
        raise UsageError(f"{question}: with --server, only a person can answer; type an answer")

    async def is_stuck(self) -> bool:
        state, questions = await self._run.asked(self._id)
        return bool(questions) and state == RunState.WAITING.value

    async def wait_change(self) -> None:
        await self._run.wait_change()


def answer_at_server(url: str, question: str, text: str) -> str:
    """Answer a question of a run on a server. Returns what follows, in words."""
    return asyncio.run(_answered(url, question, text))


async def _answered(url: str, question: str, text: str) -> str:
    run, _, rest = question.partition(":")
    async with Client(url) as client:
        open_ = [_question_of(told) for told in await client.questions(run)]
        try:
            asked = question_meant(open_, run, rest and question)
        except UnknownQuestion:  # the server says whether somebody else has answered it
            await client.answer(question, text)
            return f"{question} is answered"
        await client.answer(asked.id, answer_in(asked, text) or text)
        return f"{asked.id} is answered; the run continues on {client.url}"


def _open_of(questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in questions if each["answered"] is None and not each["is_closed"]]


def _question_of(told: dict[str, Any]) -> Question:
    """Convert a question from the JSON of the API."""
    fields = ("id", "text", "choices", "telling", "default")
    question = msgspec.convert({name: told[name] for name in fields}, Question)
    about = told["kind"] if told["kind"] in _KINDS_ASKED_ALIKE else question.about
    return msgspec.structs.replace(question, about=about, evidence=Value.of(told["evidence"]))


def event_of(told: dict[str, Any]) -> Event | None:
    """Convert an event from the JSON of the API, without payloads; None for an event of a newer version."""
    fields = {name: value for name, value in told.items() if name not in ("seq", "step")}
    if told["kind"] != "RunRequested":
        fields.pop("run", None)
    try:
        return decode(msgspec.json.encode(fields))
    except (JournalDamaged, UsageError):
        return None
