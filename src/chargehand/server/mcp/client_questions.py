"""Asking the person at a client what a run asks, while a call of that client waits for the run."""

import asyncio

from chargehand.decisions.schedule import RunState
from chargehand.errors import UsageError
from chargehand.facts.outcome import Question
from chargehand.server.mcp.client_session import Client, form_of
from chargehand.server.mcp.run_updates import Follower
from chargehand.supervisor import Supervisor


class ClientQuestions:
    """Has the person at a client asked what a run asks, each question once."""

    def __init__(
        self, boss: Supervisor, client: Client, heard: Follower, group: asyncio.TaskGroup
    ) -> None:
        self._boss = boss
        self._client = client
        self._heard = heard
        self._group = group
        self._asked: dict[str, asyncio.Task[None]] = {}
        #: to be asked by ending the call
        self.by_return: list[Question] = []

    async def is_over(self, run: str) -> bool:
        """Ask what is new. True if there is nothing to wait for but people who cannot be asked here."""
        result = await self._boss.look(run)
        self._heard.may_ask = bool(result.questions)
        fresh = [each for each in result.questions if self._is_new(each)]
        if fresh and self._client.is_asked_by_return:
            self.by_return = fresh
            return True
        for question in fresh:
            self._asked[question.id] = self._group.create_task(self._ask(question))
        is_asking = any(not task.done() for task in self._asked.values())
        is_heard = any(each.id in self._client.answered for each in result.questions)
        is_left = bool(result.questions) and not is_asking and not is_heard
        return is_left and result.status is RunState.WAITING

    def break_off(self) -> None:
        """The call is over; what is still open may be answered elsewhere."""
        for task in self._asked.values():
            task.cancel()

    def _is_new(self, question: Question) -> bool:
        settled = self._client.declined | self._client.answered
        is_known = question.id in self._asked or question.id in settled
        return not is_known and self._client.can_be_asked and form_of(question) is not None

    async def _ask(self, question: Question) -> None:
        text = await self._client.ask(question)
        if text:
            await is_taken(self._boss, question.id, text, self._client)
        self._heard.look_again()  # look again: it may have been the last one


async def is_taken(boss: Supervisor, question: str, text: str, client: Client) -> bool:
    """Answer for the person at a client; what cannot be taken leaves the question open."""
    try:
        await boss.answer(question, text, by=client.name)
    except UsageError:
        return False  # answered elsewhere by now, or none of its choices
    client.answered.add(question)
    return True
