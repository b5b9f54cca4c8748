"""Members of a group: wraps workers, so that they get the sender of a message and the shared blocks."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from chargehand.decisions.group_conversation import EVERYONE, SpokenTurn
from chargehand.engines.brief import Brief, SharedBoard
from chargehand.facts.failure_policy import OnFailure
from chargehand.facts.outcome import Outcome
from chargehand.patterns.groups.messages import folded
from chargehand.patterns.groups.shared_blocks import Blocks, GroupBoard, block_tools, shown
from chargehand.roles.board import BriefBoard
from chargehand.roles.function_worker import FunctionWorker, Work
from chargehand.roles.llm_worker import Worker
from chargehand.roles.prompts import prompt
from chargehand.roles.roster import Member
from chargehand.roles.shared_resources import ModelChoice, Resources
from chargehand.roles.tool_loop import ToolLoop
from chargehand.supervisor.requests import Leads


class GroupContext(Struct, frozen=True):
    """What all members of a group know about it."""

    name: str
    blocks: Blocks
    #: names and descriptions
    members: Mapping[str, str]

    def others(self, member: str) -> str:
        return ", ".join(name for name in self.members if name != member) or "nobody"


class GroupMember:
    """A worker as a member of a group.

    A function, or an agent of another framework, gets the message unchanged, `sender`, `reply_to` and
    `turn` in `brief.args`, and the group's blocks on `brief.board`. Any other worker gets all of this as
    text.
    """

    def __init__(self, member: Member, circle: GroupContext) -> None:
        self._member = member
        self._circle = circle
        self.name = member.name
        self.description = member.description
        self.skills = member.skills
        self.timeout = member.timeout
        self.where = member.where
        self.place = member.place
        # Attributes that only some kinds of workers have.
        self.memory: int | None = getattr(member, "memory", None)
        self.cpu: timedelta | None = getattr(member, "cpu", None)
        self.model: ModelChoice | None = getattr(member, "model", None)
        self.secrets: frozenset[str] = getattr(member, "secrets", frozenset())
        self.on_failure: OnFailure | None = getattr(member, "on_failure", None)

    def __repr__(self) -> str:
        return f"<member {self.name!r} of {self._circle.name!r}>"

    def refuse_unpriced(self, resources: Resources) -> None:
        """Raise `UsageError` if a cap on money cannot be enforced in runs that are nested in this member."""
        if isinstance(self._member, Leads):
            self._member.refuse_unpriced(resources)

    def version(self, resources: Resources) -> str:  # noqa: ARG002 - as all members of a roster
        """Always empty: a message depends on the earlier conversation, so results are not reused."""
        return ""

    def shared_board(self, own: SharedBoard) -> SharedBoard:
        """The board of a run, with the blocks of the group."""
        if not isinstance(own, BriefBoard):
            return own
        return GroupBoard(self._circle.blocks, self.name, own)

    def work(self, resources: Resources) -> Work:
        """The function that runs a turn of this member."""
        if isinstance(self._member, FunctionWorker):
            return self._member.work(resources)
        if isinstance(self._member, Worker):
            return self._agent(self._member, resources)
        work = self._member.work(resources)

        async def speak(brief: Brief) -> Any:
            await self._tell(brief, resources)
            return await work(brief)

        return speak

    def _agent(self, worker: Worker, resources: Resources) -> Callable[[Brief], Awaitable[Outcome]]:
        models = resources.models(worker.model, f"worker {worker.name!r}")

        async def speak(brief: Brief) -> Outcome:
            await self._tell(brief, resources)
            tools = block_tools(brief.board) if isinstance(brief.board, GroupBoard) else []
            return await ToolLoop(worker, brief, resources, models, tools).hold()

        return speak

    async def _tell(self, brief: Brief, resources: Resources) -> None:
        """Add the sender, how to reply, and the contents of the blocks to the description of the task."""
        turn = SpokenTurn.of(brief.task)
        if turn is None:
            return
        folder, board = resources.prompts, brief.board
        words = prompt(
            "turn" if turn.reply_to == EVERYONE else "message",
            folder,
            group=self._circle.name,
            name=self.name,
            others=self._circle.others(self.name),
            sender=turn.sender,
            reply=turn.reply_to,
            turn=str(turn.turn),
            message=brief.task.description,
            ending=f"When nothing is left to be said, end with {turn.token}" if turn.token else "",
            folded=folded(turn.folded),
            blocks=await shown(board, folder) if isinstance(board, GroupBoard) else "",
        )
        brief.task = replace(brief.task, description=words, args={})
