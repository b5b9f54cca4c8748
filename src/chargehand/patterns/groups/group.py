"""A group of workers that talk to each other: a supervisor whose plan is the conversation."""

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from reprlib import repr as repr_of
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from msgspec import to_builtins
from msgspec.structs import replace

from chargehand.clock import Clock
from chargehand.decisions.circuit_breaker import BreakerPolicy
from chargehand.decisions.dispatch import Balance
from chargehand.decisions.elastic_capacity import Elastic
from chargehand.decisions.group_conversation import EVERYONE, SpokenTurn
from chargehand.errors import UsageError
from chargehand.facts import argument_checks as checks
from chargehand.facts.argument_checks import Duration
from chargehand.facts.events import RunStatus
from chargehand.facts.failure_policy import OnFailure
from chargehand.facts.limits import Limits
from chargehand.facts.plan import Plan, Task
from chargehand.facts.retry_policy import RetryPolicy
from chargehand.facts.value import Value
from chargehand.journal.base import Journal, load_value
from chargehand.notify.base import Notify
from chargehand.patterns.groups.background_agent import BackgroundAgent
from chargehand.patterns.groups.managers import Manager
from chargehand.patterns.groups.messages import (
    LEAST,
    MOST,
    USER,
    Buffer,
    Hear,
    MessageStream,
    read_talk,
)
from chargehand.patterns.groups.result import GroupResult, Replies
from chargehand.patterns.groups.shared_blocks import Blocks, SharedBlock
from chargehand.patterns.groups.turn_planner import RUN, TURNS, ManagerMember, TurnPlanner
from chargehand.patterns.groups.worker_as_member import GroupContext, GroupMember
from chargehand.result import RunResult
from chargehand.roles.board import Board
from chargehand.roles.roster import Member
from chargehand.roles.shared_resources import ModelChoice
from chargehand.supervisor import Supervisor
from chargehand.supervisor.requests import RunOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chargehand.models.base import ModelSettings
    from chargehand.models.gateway import ModelGateway


class GroupTerms(TypedDict, total=False):
    """The options that a group shares with a supervisor."""

    journal: str | os.PathLike[str] | Journal | None
    limits: Limits | None
    parallel: int | None
    model: "ModelChoice | None"
    gateway: "ModelGateway | None"
    deps: object
    secrets: "Mapping[str, str] | None"
    settings: "ModelSettings | None"
    prompts: str | Path | None
    clock: Clock | None
    balance: Balance | str
    retry: RetryPolicy | None
    on_failure: OnFailure | Sequence[str] | None
    breaker: BreakerPolicy | None
    notify: Notify
    capacity: int | Elastic | None


class Group(Supervisor):
    """Workers that talk to each other, led by a manager. A group is also a supervisor.

    Each message starts a run, and each turn is a task of its plan, so a conversation survives `kill -9` and
    is resumed, cancelled, limited, traced and nested like any other run. All groups with the same name in
    one journal are one group: the next message includes the earlier conversation, as far as the buffer
    allows.

        group = Group([alice, bob], manager=RoundRobinManager(max_turns=4))
        result = await group.send("Where shall we eat?")

    `blocks` are shared by all members. `background` is a worker that reviews the conversation after every
    `every` turns, in parallel with it. If there are more than `max_buffer` messages, only the newest
    `min_buffer` are shown, plus those that follow; no message is ever cut.
    """

    @checks.arguments_checked(blocks=Sequence)
    def __init__(
        self,
        workers: Sequence[Member],
        *,
        manager: Manager,
        name: str = "group",
        description: str = "",
        blocks: Sequence[SharedBlock] = (),
        background: Member | None = None,
        every: int = 5,
        max_buffer: int = MOST,
        min_buffer: int | None = None,
        **terms: Unpack[GroupTerms],
    ) -> None:
        checks.name(name, "name")
        checks.text(description, "description")
        most = checks.count(max_buffer, "max_buffer", least=1)
        least = min(LEAST, most) if min_buffer is None else min_buffer
        self._buffer = Buffer(most, checks.count(least, "min_buffer", least=1))
        self.blocks = Blocks(name, blocks)
        self.manager = manager
        self._terms = terms
        _check(workers, manager, every, has_model=terms.get("model") is not None)
        self._circle = GroupContext(name, self.blocks, {w.name: w.description for w in workers})
        for block in blocks:
            self._check_members(block)
        clerk = ManagerMember(self._circle, manager, self._buffer)
        told = description or f"A group of {', '.join(self._circle.members)}"
        roster: list[Member] = [*(GroupMember(worker, self._circle) for worker in workers), clerk]
        self._beside: BackgroundAgent | None = None
        if background is not None and not hasattr(background, "work"):
            raise UsageError(f"background={repr_of(background)} is not a worker")
        if background is not None:
            self._staff_beside: list[Member] = [GroupMember(background, self._circle), clerk]
            self._beside = BackgroundAgent(background, clerk, self._boss_beside)
        chair = TurnPlanner(self._circle, manager, self._buffer, self._beside, every)
        self.planner = chair.plan
        super().__init__(roster, name=name, description=told, **terms)

    def __repr__(self) -> str:
        return f"<group {self.name!r}: {', '.join(self._circle.members)}>"

    # conversation

    async def send(
        self, message: str, *, hear: Hear | None = None, **terms: Unpack[RunOptions]
    ) -> GroupResult:
        """Send a message to the group and return the result when the conversation is over.

        `hear` is called with each message as soon as it is durable. If a member fails, the result contains
        the reason, and the other members continue. Cancelling this call cancels the run.
        """
        checks.text(message, "message")
        if hear is None:
            return await self.told(await self.run(message, **terms))
        ear = MessageStream(hear, self._bring)
        async for event in self.stream(message, **terms):
            await ear.take(event)
        return await self.told(ear.run)

    def send_sync(
        self, message: str, *, hear: Hear | None = None, **terms: Unpack[RunOptions]
    ) -> GroupResult:
        """`send` for code without an event loop, and for notebooks.

        One Ctrl-C stops the run, so that it can be resumed; two cancel the run.
        """
        return self.control.wait_sync(self.send(message, hear=hear, **terms))

    async def plan(self, request: str, **terms: Unpack[RunOptions]) -> Plan:  # noqa: ARG002 - as any supervisor
        """Not available: each turn depends on the turns before it."""
        raise UsageError("a group has no plan before it talks; send it the message")

    async def told(self, run: RunResult | str) -> GroupResult:
        """The conversation of a run of this group; if the run has not ended, the conversation so far."""
        result = await self.look(run) if isinstance(run, str) else run
        live_run = await self.control.live_run(result.id)
        members = self._circle.members
        talk = await read_talk(live_run, members, self._buffer, self._bring, whole=True)
        broken = [
            str(node.cause)
            for id_, node in live_run.schedule.nodes.items()
            if id_.startswith("@") and node.cause is not None
        ]
        is_over = isinstance(result.status, RunStatus)
        why = result.reason or (broken[-1] if broken else self.manager.ending(talk))
        why = why if is_over else ""
        return GroupResult(result, talk, why)

    async def broadcast(
        self,
        message: str,
        *,
        timeout: Duration | None = None,  # noqa: ASYNC109 - enforced by the schedule, like all deadlines
        to: Sequence[str] | None = None,
    ) -> Replies:
        """Send the same message to all members, or to those in `to`, at the same time, and collect the replies.

        If a member fails, the replies of the others are kept. Returns when all have answered or failed, or
        after `timeout`: members that have not answered by then are listed as failed. An empty `to` asks
        no member.
        """
        if not checks.text(message, "message").strip():
            raise UsageError("the message is empty; say what is to be answered")
        longest = checks.duration_or_none(timeout, "timeout")
        names = list(self._circle.members) if to is None else self._named(to)
        if not names:
            return Replies(None)
        await self.blocks.prepare(self.board)
        tasks = [
            Task(id=f"t{place}", description=message, worker=name, args=to_builtins(_asked(place)))
            for place, name in enumerate(names, 1)
        ]
        limits = replace(
            self.limits,
            tasks=max(self.limits.tasks, len(tasks)),
            parallel=max(self.limits.parallel, len(tasks)),
            # No grace: a member that does not stop is abandoned at once, so that `timeout` holds.
            grace=timedelta(0),
        )
        run = await self.run(Plan(goal=message, tasks=tasks), deadline=longest, limits=limits)
        await self.board(self.blocks.home).post(run.id, tags=[RUN])
        return Replies(run)

    # shared blocks

    async def attach(
        self,
        block: SharedBlock | str,
        value: Any = None,
        *,
        readers: Sequence[str] = (),
        writers: Sequence[str] = (),
        members: Sequence[str] = (),
        board: str = "",
    ) -> SharedBlock:
        """Share a block with the group, or with some of its members, from their next turn on.

        `value` is the initial value, used if the block has not been written yet. Only `readers` may read
        and only `writers` may write it, by name. Attach the returned block to another group to share it.
        """
        if isinstance(block, str):
            block = SharedBlock(block, value, readers, writers, members, board or self.blocks.home)
        if not isinstance(block, SharedBlock):
            raise UsageError(f"{repr_of(block)} is not a block; give its label, or a SharedBlock")
        self._check_members(block)
        self.blocks.attach(block)
        await self.blocks.prepare(self.board)
        return block

    def detach(self, label: str) -> None:
        """Stop sharing a block. It stays on its board, with all its versions."""
        self.blocks.detach(checks.name(label, "label"))

    async def turns(self) -> int:
        """The number of turns since the group was created."""
        counted = await self.board(self.blocks.home).find(TURNS)
        return 0 if counted is None else int(counted.value)

    # background runs

    async def quiet(self) -> list[RunResult]:
        """Wait until all background runs have ended; returns their results.

        `async with` does this on exit.
        """
        return [] if self._beside is None else await self._beside.quiet()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        stack: TracebackType | None,
    ) -> None:
        if kind is None:
            await self.quiet()
        elif self._beside is not None:
            await self._beside.stop()
        await super().__aexit__(kind, error, stack)

    def _boss_beside(self, board: Board) -> Supervisor:
        """A supervisor for a background run, on the journal of this board."""
        terms: GroupTerms = {**self._terms, "journal": board.journal, "clock": board.clock}
        return Supervisor(self._staff_beside, name=f"beside {self.name}", **terms)

    # helpers

    def _check_members(self, block: SharedBlock) -> None:
        for name in block.members:
            if name not in self._circle.members:
                raise UsageError(
                    f"block {block.label!r} cannot be attached to {name!r}, who is not a member; "
                    f"there are {', '.join(self._circle.members)}"
                )

    def _named(self, to: object) -> list[str]:
        """The members to ask, without duplicates. Raises `UsageError` for an unknown member."""
        names = dict.fromkeys(checks.names(to, "to"))
        for name in names:
            if name not in self._circle.members:
                raise UsageError(
                    f"{name!r} is not a member; there are {', '.join(self._circle.members)}"
                )
        return [*names]

    async def _bring(self, value: Value) -> Value:
        return await load_value(value, self.journal.blobs)


def _asked(place: int) -> SpokenTurn:
    return SpokenTurn(turn=place, round=1, sender=USER, reply_to=USER)


def _check(workers: Sequence[Member], manager: Manager, every: int, *, has_model: bool) -> None:
    """Raise `UsageError` for arguments with which no conversation is possible."""
    if not isinstance(workers, (list, tuple)) or not workers:
        raise UsageError("a group needs a list of at least one member")
    if not hasattr(manager, "choose"):
        raise UsageError(
            f"manager={repr_of(manager)} is not a manager; give RoundRobinManager(), or …"
        )
    for worker in workers:
        if not hasattr(worker, "work"):
            raise UsageError(f"{repr_of(worker)} is not a worker, and cannot be a member")
        if getattr(worker, "name", "") in (USER, EVERYONE, manager.name):
            raise UsageError(
                f"a member cannot be named {worker.name!r}: groups reserve that name; choose another"
            )
    checks.count(every, "every", least=1)
    if manager.thinks and manager.model is None and not has_model:
        raise UsageError(
            f"{manager!r} decides with a model and has none; give it one, or one to the group"
        )
