"""Results of a group: the conversation and its answer, and the replies to a broadcast."""

from collections.abc import Mapping, Sequence
from typing import Any

from chargehand.decisions.schedule import RunState
from chargehand.errors import UsageError
from chargehand.facts.answer import Answer, Gap
from chargehand.facts.events import RunStatus
from chargehand.facts.outcome import Usage
from chargehand.patterns.groups.messages import Message, Talk
from chargehand.result import RunResult


class GroupResult:
    """The result of a conversation, and its run."""

    def __init__(self, run: RunResult, talk: Talk, ended: str) -> None:
        #: the result of the run, with its tasks, trace and report
        self.run = run
        #: all messages in order, from the request to the answer
        self.messages: Sequence[Message] = tuple(talk.messages())
        #: number of turns, including those without a reply
        self.turns = len(talk.spoken)
        #: why the conversation ended, as text; empty while it continues
        self.ended = ended

    @property
    def id(self) -> str:
        """The id of the run."""
        return self.run.id

    @property
    def status(self) -> RunStatus | RunState:
        return self.run.status

    @property
    def answer(self) -> Answer:
        """The answer of the run: the manager's answer or, if there is none, the last message."""
        return self.run.answer

    @property
    def output(self) -> Any:
        """The content of the answer, without the termination token.

        It is the manager's answer or, if there is none, the last message to everyone.
        """
        return self.run.output

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What is missing, and why."""
        return tuple(self.answer.gaps)

    @property
    def usage(self) -> Usage:
        return self.run.usage

    def __str__(self) -> str:
        return "\n".join(map(str, self.messages))

    def __repr__(self) -> str:
        return f"<conversation {self.id}: {self.status.value}, {self.turns} turns>"


class Replies:
    """The replies of the members to one message, and the members that did not answer."""

    def __init__(self, run: RunResult | None) -> None:
        self._run = run
        tasks = {} if run is None else {task.task.worker: task for task in run.tasks.values()}
        #: replies by member
        self.said: Mapping[str, Any] = {
            name: task.output for name, task in tasks.items() if not task.why
        }
        #: by member, why there is no reply
        self.failed: Mapping[str, str] = {
            name: task.why for name, task in tasks.items() if task.why
        }

    @property
    def run(self) -> RunResult:
        """The run of the broadcast. Raises `UsageError` if no member was asked, because then there is no run."""
        if self._run is None:
            raise UsageError("no member was asked, so there was no run; name a member in to=")
        return self._run

    @property
    def id(self) -> str:
        """The id of the run; empty if there was none."""
        return "" if self._run is None else self._run.id

    @property
    def status(self) -> RunStatus | RunState:
        return RunStatus.SUCCEEDED if self._run is None else self._run.status

    def __len__(self) -> int:
        return len(self.said)

    def __repr__(self) -> str:
        return f"<{len(self.said)} replies, {len(self.failed)} failures>"
