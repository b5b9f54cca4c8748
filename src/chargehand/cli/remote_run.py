"""`chargehand run --server URL`: a run that a server leads, submitted and followed over HTTP."""

import asyncio
from typing import Any

import click
import msgspec

from chargehand.cli import output
from chargehand.cli.ask_person import TerminalPrompt, ask
from chargehand.cli.run_session import Exit, exit_of
from chargehand.client import Client, RemoteResult
from chargehand.errors import JournalDamaged, QuestionTaken, UsageError
from chargehand.facts.events import Event, RunStatus, decode
from chargehand.facts.outcome import Question
from chargehand.facts.plan import Plan
from chargehand.facts.value import Value
from chargehand.presentation.plain_text import clean
from chargehand.presentation.progress_lines import ProgressLines

#: what says something about a crew, a journal or a process, and so is the server's to say
_OF_SERVER = (
    "crew",
    "files",
    "model",
    "journal",
    "parallel",
    "notify",
    "here",
    "on_question",
    "report",
)


def run_at_server(url: str, asked: str | Plan, options: dict[str, Any]) -> int:
    """Have a server do this, show how it goes, print the answer, and return the exit code."""
    for name in _OF_SERVER:
        if options.get(name):
            flag = name.replace("_", "-")
            raise click.UsageError(f"--{flag} cannot go with --server: the server has its own")
    if options["display"] == "live":
        raise click.UsageError(
            "--display live cannot go with --server: a run at a server is shown line by line; leave it out"
        )
    return asyncio.run(_RemoteRun(url, options).conduct(asked))


class _RemoteRun:
    """One run at a server."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self._client = Client(url)
        self._options = options
        self._is_quiet = bool(options["quiet"])
        self._lines = ProgressLines(output.say, verbose=options["verbose"])
        self._asked: set[str] = set()
        #: why the run ended as it did
        self._reason = ""

    async def conduct(self, asked: str | Plan) -> Exit:
        async with self._client as client:
            run = await client.submit(asked, **self._terms())
            if not self._is_quiet and not self._options["as_json"]:
                output.say(f"run {run} at {client.url}; Ctrl-C ends the following, not the run")
            is_left = await self._follow(run)
            return Exit.NEEDS_A_PERSON if is_left else self._show(await client.result(run))

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
        """Show what happens, to the end of the run; whether it was left because nobody here can answer."""
        async for told in self._client.events(run):
            if self._options["as_json"] and not self._is_quiet:
                output.as_json(told)
            elif not self._is_quiet and (event := event_of(told)) is not None:
                self._lines.hear(event)
            if told["kind"] == "RunFinished":
                self._reason = told.get("reason", "")
            if told["kind"] in ("AttemptFinished", "PersonAsked") and await self._is_left(run):
                return True
        return False

    async def _is_left(self, run: str) -> bool:
        """Ask the person at this terminal what the run asks; whether there is nobody to ask."""
        for told in await self._client.questions(run):
            if told["id"] in self._asked:
                continue
            self._asked.add(told["id"])
            if not output.is_interactive():
                output.say(f"{told['id']} asks: {clean(told['text'])}")
                output.say(
                    "answer it in the dashboard, or by POST questions/ID/answer; the run goes on at the server"
                )
                return True
            await self._answer(told)
        return False

    async def _answer(self, told: dict[str, Any]) -> None:
        fields = ("id", "text", "choices", "telling", "default")
        question = msgspec.convert({name: told[name] for name in fields}, Question)
        question = msgspec.structs.replace(question, evidence=Value.of(told["evidence"]))
        terminal = TerminalPrompt()
        with terminal.listening():
            text = await ask(question, terminal, _delegated)
        if text is None:
            return
        try:
            await self._client.answer(question.id, text)
        except QuestionTaken as error:
            output.say(str(error))

    def _show(self, result: RemoteResult) -> Exit:
        file, as_json = self._options["output"], self._options["as_json"]
        is_written = bool(file) and output.write_file(file, result.answer, quiet=self._is_quiet)
        if as_json and self._is_quiet:
            output.as_json(result)
        elif not as_json:
            if not is_written:
                output.result(clean(result.answer))
            for gap in result.gaps if not self._is_quiet else ():
                output.say(f"missing: {clean(str(gap))}")
        exit_ = exit_of(RunStatus(result.status), self._reason) if result.has_ended else Exit.FAILED
        return Exit.FAILED if file and not is_written and exit_ is Exit.DONE else exit_


async def _delegated(question: str) -> None:
    raise UsageError(f"{question}: over HTTP, a person answers; type an answer")


def event_of(told: dict[str, Any]) -> Event | None:
    """An event as the journal has it, without its payloads; None for one of a newer version."""
    fields = {name: value for name, value in told.items() if name not in ("seq", "step")}
    if told["kind"] != "RunRequested":
        fields.pop("run")
    try:
        return decode(msgspec.json.encode(fields))
    except (JournalDamaged, UsageError):
        return None
