"""The messages of a group, turn by turn. They are read from the plan of the run and stored nowhere else."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import groupby, islice
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from chargehand.decisions.group_conversation import EVERYONE, SpokenTurn
from chargehand.decisions.live_run import LiveRun
from chargehand.decisions.rule_answer import why_not_done
from chargehand.decisions.task_graph import TaskNode, TaskState
from chargehand.errors import UsageError
from chargehand.facts.answer import AnswerPiece
from chargehand.facts.events import AttemptFinished, Event, PlanAdopted, PlanAmended, RunRequested
from chargehand.facts.outcome import Done
from chargehand.facts.plan import Need, Task
from chargehand.facts.value import Value
from chargehand.roles.data_fences import asked, cut, fenced, with_notes, words_of
from chargehand.sync_async_bridge import outside_task

#: the sender of messages from outside of a group
USER = "user"
#: ids of the tasks that are not turns: the earlier conversation, and the answer of a manager
MINUTES, CLOSING = "minutes", "answer"
#: the name of the input that contains the minutes
BEFORE = "what was said before"
#: messages that are shown at most, and how many stay when the oldest are hidden
MOST, LEAST = 50, 20
#: characters of the reason for a missing reply that a manager sees
LONGEST_REASON = 400
#: a member that says the same this many times in a row makes no progress
REPEATS = 3

#: loads a value from its blob
Bring = Callable[[Value], Awaitable[Value]]

log = logging.getLogger("chargehand")


class Message(Struct, frozen=True, kw_only=True):
    """A message of a conversation, with its sender and its receivers."""

    sender: str
    to: tuple[str, ...]
    content: Any
    #: number of the turn; 0: not a turn of a member
    turn: int = 0
    #: the task of the run from which it came or to which it went
    task: str = ""

    @property
    def text(self) -> str:
        """The content as text."""
        return words_of(self.content)

    def __str__(self) -> str:
        return f"{self.sender} to {', '.join(self.to)}: {self.text}"


class Buffer(Struct, frozen=True):
    """How many messages are shown: if there are more than `most`, the oldest are hidden."""

    most: int = MOST
    least: int = LEAST

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise UsageError(
                f"min_buffer={self.least}, max_buffer={self.most}: min_buffer must be at least 1, "
                "and max_buffer at least min_buffer"
            )

    def held(self, count: int) -> int:
        """How many of `count` messages are shown: the newest, each in full."""
        if count <= self.most:
            return count
        # One message too many shrinks it to `least`; from there it grows again by one per message.
        return self.least + (count - self.most - 1) % (self.most + 1 - self.least)


class Spoken(Struct, frozen=True):
    """A turn of a member, with the reply."""

    task: str
    speaker: str
    turn: SpokenTurn
    #: the message to answer
    asked: str
    #: the reply; None: there was none; that of an old turn may not be loaded from its blob
    value: Value | None = None
    #: why there is no reply
    why: str = ""

    @property
    def content(self) -> Any:
        return None if self.value is None else self.value.read()

    @property
    def text(self) -> str:
        return words_of(self.content)

    def in_words(self) -> str:
        """The turn as text, for a manager."""
        if self.value is None:
            why = fenced("reason", cut(self.why, LONGEST_REASON))
            return f"{self.speaker} ({self.task}) did not answer.\n{why}"
        return fenced(f"{self.task} from {self.speaker} to {self.turn.reply_to}", self.text)


class Talk(Struct, frozen=True, kw_only=True):
    """The current state of a conversation."""

    request: str
    #: version of the plan
    version: int = 0
    #: names and descriptions
    members: Mapping[str, str] = {}
    spoken: Sequence[Spoken] = ()
    #: the answer of the manager, once there is one
    closing: Message | None = None
    #: whether the run has minutes of the conversation before the request
    has_minutes: bool = False
    #: the minutes; None: there are none, or they are not read yet
    minutes: Value | None = None
    buffer: Buffer = Buffer()
    #: steering notes of people, sent after the request
    notes: Sequence[str] = ()
    #: the contents of the blocks that the manager may read, as text
    blocks: str = ""

    @property
    def is_closed(self) -> bool:
        """Whether the manager has given its answer, which ends the conversation."""
        return self.closing is not None

    @property
    def rounds(self) -> int:
        return self.spoken[-1].turn.round if self.spoken else 0

    @property
    def last(self) -> Spoken | None:
        return self.spoken[-1] if self.spoken else None

    @property
    def held(self) -> Sequence[Spoken]:
        """The turns that are still shown, newest last."""
        return self.spoken[len(self.spoken) - self.buffer.held(len(self.spoken)) :]

    @property
    def folded(self) -> int:
        """How many earlier turns are no longer shown."""
        return len(self.spoken) - len(self.held)

    @property
    def unheard(self) -> list[str]:
        """Members that have not been asked yet."""
        heard = {each.speaker for each in self.spoken}
        return [name for name in self.members if name not in heard]

    @property
    def is_stuck(self) -> bool:
        """Whether the last speaker has said the same `REPEATS` times in a row."""
        if self.last is None:
            return False
        own = [each.value for each in self.spoken if each.speaker == self.last.speaker]
        words = {None if value is None else value.digest for value in own[-REPEATS:]}
        return len(own) >= REPEATS and len(words) == 1

    def in_words(self) -> str:
        """The text that a manager gets: the request, the blocks and the messages so far."""
        before = "" if self.minutes is None else fenced(BEFORE, self.minutes.read())
        request = asked(with_notes(self.request, self.notes))
        said = "".join(_in_words(batch) for batch in rounds_in(self.held))
        return f"{before}{request}{self.blocks}{folded(self.folded)}{said}"

    def messages(self) -> list[Message]:
        """All messages in order, starting with the request."""
        found = [Message(sender=USER, to=(EVERYONE,), content=self.request)]
        for batch in rounds_in(self.spoken):
            found += assignments_in(batch)
            found += [_answer(each) for each in batch if each.value is not None]
        return found if self.closing is None else [*found, self.closing]


def rounds_in(spoken: Sequence[Spoken]) -> list[list[Spoken]]:
    """The turns, grouped by round."""
    return [list(batch) for _, batch in groupby(spoken, key=lambda each: each.turn.round)]


def folded(count: int) -> str:
    """A line that replaces the messages that are no longer shown."""
    if not count:
        return ""
    return f"{count} earlier {'message is' if count == 1 else 'messages are'} not shown any more.\n"


async def read_talk(
    live_run: LiveRun,
    members: Mapping[str, str],
    buffer: Buffer,
    bring: Bring,
    *,
    first: int | None = None,
    whole: bool = False,
) -> Talk:
    """Read the conversation of a run; with `first`, only its first tasks, including system tasks.

    Blobs are loaded for the messages that are shown or, with `whole`, for all messages.
    """
    schedule, outputs = live_run.schedule, live_run.results.outputs
    requested = schedule.requested
    nodes = dict(islice(schedule.nodes.items(), first))
    last = nodes.get(CLOSING)
    settled = [node for node in nodes.values() if node.state.is_settled]
    spoken = [
        _spoken(node, turn, outputs)
        for node in settled
        if (turn := SpokenTurn.of(node.task)) is not None
    ]
    shown = 0 if whole else len(spoken) - buffer.held(len(spoken))
    for place, each in enumerate(spoken[shown:], shown):
        if each.value is not None:
            spoken[place] = replace(each, value=await bring(each.value))
    return Talk(
        request="" if requested is None else requested.request,
        version=schedule.version,
        members=members,
        spoken=spoken,
        closing=_closing(last.task) if last is not None and last.state is TaskState.DONE else None,
        has_minutes=MINUTES in nodes,
        minutes=await bring(outputs[MINUTES]) if MINUTES in nodes and MINUTES in outputs else None,
        buffer=buffer,
        notes=tuple(live_run.results.notes),
    )


def needs_of(talk: Talk) -> tuple[Need, ...]:
    """The needs of a turn: the messages that are shown, and the minutes.

    Needs are references, so nothing is stored twice and each message keeps its taint.
    """
    before = [Need(MINUTES, optional=True, name=BEFORE)] if talk.has_minutes else []
    held = [
        Need(each.task, optional=True, name=f"{each.task} from {each.speaker}")
        for each in talk.held
    ]
    return (*before, *held)


def _closing(task: Task) -> Message:
    return Message(sender=task.worker, to=(USER,), content=task.args[CLOSING], task=CLOSING)


def _spoken(node: TaskNode, turn: SpokenTurn, outputs: Mapping[str, Value]) -> Spoken:
    task = node.task
    return Spoken(
        task=task.id,
        speaker=task.worker,
        turn=turn,
        asked=task.description,
        value=outputs.get(task.id) if node.state is TaskState.DONE else None,
        why=why_not_done(node),
    )


def _in_words(batch: Sequence[Spoken]) -> str:
    """A round as text, for a manager: its messages, and the replies."""
    asked_for = [
        fenced(f"what you told {', '.join(each.to)}", each.text) for each in assignments_in(batch)
    ]
    return "".join([*asked_for, *(each.in_words() for each in batch)])


def assignments_in(batch: Sequence[Spoken]) -> list[Message]:
    """The messages of a manager in a round; the same text to several members is one message."""
    told: dict[tuple[str, str], list[Spoken]] = {}
    for each in batch:
        if each.turn.reply_to == each.turn.sender != USER:
            told.setdefault((each.turn.sender, each.asked), []).append(each)
    return [
        Message(
            sender=sender,
            to=tuple(each.speaker for each in to),
            content=words,
            task=to[0].task,
        )
        for (sender, words), to in told.items()
    ]


def told_in(task: Task, output: Any) -> list[Message]:
    """The messages of one turn: the message to the member, unless it went to everyone, and the reply."""
    turn = SpokenTurn.of(task)
    if turn is None:
        return []
    to = () if output is None else (turn.reply_to,)
    asked_for = Message(sender=turn.sender, to=(task.worker,), content=task.description)
    answer = Message(sender=task.worker, to=to, content=output, turn=turn.turn)
    return [*([asked_for] if turn.reply_to != EVERYONE else []), *([answer] if to else [])]


def _answer(spoken: Spoken) -> Message:
    return Message(
        sender=spoken.speaker,
        to=(spoken.turn.reply_to,),
        content=spoken.content,
        turn=spoken.turn.turn,
        task=spoken.task,
    )


#: called with each message of a conversation, on the event loop; must not block
Hear = Callable[[Message], object]


class MessageStream:
    """Turns the events of one run into messages, and passes them to a listener."""

    def __init__(self, hear: Hear, bring: Bring) -> None:
        self._hear = hear
        self._bring = bring
        self._tasks: dict[str, Task] = {}
        #: the id of the run, once it is known
        self.run = ""

    def tell(self, messages: Sequence[Message]) -> None:
        """Pass messages to the listener. Its errors are only logged."""
        for message in messages:
            try:
                with outside_task():
                    self._hear(message)
            except KeyboardInterrupt:
                raise
            except BaseException:  # a listener's SystemExit must not end the run
                log.exception("hear_failed run=%s", self.run)

    async def take(self, event: Event | AnswerPiece) -> None:
        """Pass on the messages in this event, if there are any."""
        match event:
            case RunRequested():
                self.run = event.run
                self.tell([Message(sender=USER, to=(EVERYONE,), content=event.request)])
            case PlanAdopted(plan=plan):
                self._assign(plan.tasks)
            case PlanAmended(added=added):
                self._assign(added)
            case AttemptFinished(task=id_, outcome=Done() as done) if id_ in self._tasks:
                await self._answer(self._tasks[id_], done)
            case _:
                pass  # no message

    def _assign(self, tasks: Sequence[Task]) -> None:
        self._tasks |= {task.id: task for task in tasks}
        turns = [(task, SpokenTurn.of(task)) for task in tasks]
        batch = [
            Spoken(task.id, task.worker, turn, task.description)
            for task, turn in turns
            if turn is not None
        ]
        self.tell(assignments_in(batch))

    async def _answer(self, task: Task, done: Done) -> None:
        turn = SpokenTurn.of(task)
        if turn is not None:
            value = await self._bring(done.value)
            self.tell([_answer(Spoken(task.id, task.worker, turn, task.description, value))])
        elif task.id == CLOSING:
            self.tell([_closing(task)])
