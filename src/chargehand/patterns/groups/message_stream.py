"""Hearing a conversation while it is held: messages from the events of its run, each once it is durable."""

import logging
from collections.abc import Callable, Sequence

from chargehand.facts.answer import AnswerPiece
from chargehand.facts.events import AttemptFinished, Event, PlanAdopted, PlanAmended, RunRequested
from chargehand.facts.outcome import Done
from chargehand.facts.plan import Task
from chargehand.patterns.groups.messages import (
    CLOSING,
    EVERYONE,
    USER,
    Bring,
    Message,
    Spoken,
    SpokenTurn,
    assignments_in,
)

log = logging.getLogger("chargehand")

Hear = Callable[[Message], object]
"""Called with each message of a conversation, on the event loop; it must not block."""


class MessageStream:
    """Tells of one run what is said in it."""

    def __init__(self, hear: Hear, bring: Bring) -> None:
        self._hear = hear
        self._bring = bring
        self._tasks: dict[str, Task] = {}
        #: its id, once it is known
        self.run = ""

    def tell(self, messages: Sequence[Message]) -> None:
        """Tell these. What the listener raises is logged, and changes nothing."""
        for message in messages:
            try:
                self._hear(message)
            except KeyboardInterrupt:
                raise
            except BaseException:  # a listener's SystemExit must not end the run
                log.exception("hear_failed run=%s", self.run)

    async def take(self, event: Event | AnswerPiece) -> None:
        """Tell what this event says, if it says anything."""
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
                pass  # nobody says anything by it

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
        if turn is None and task.id != CLOSING:
            return
        message = Message(
            sender=task.worker,
            to=(USER if turn is None else turn.reply_to,),
            content=(await self._bring(done.value)).read(),
            turn=0 if turn is None else turn.turn,
            task=task.id,
        )
        self.tell([message])
