"""Managers: decide who speaks next in a group, by rule or with a model that must follow rules."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from msgspec import Struct

from chargehand.decisions.group_conversation import EVERYONE
from chargehand.decisions.tool_rules import InitRule, MaxCountRule, Rule, Rules, TerminalRule
from chargehand.errors import WorkerError
from chargehand.facts import argument_checks as checks
from chargehand.facts.value import canonical
from chargehand.models.base import (
    ModelRequest,
    ModelSettings,
    Role,
    ToolCall,
    ToolOutput,
    ToolSpec,
    Turn,
    system,
    user,
)
from chargehand.patterns.groups.messages import REPEATS, USER, Talk, rounds_in
from chargehand.roles.durable_model_calls import REPAIRS, ModelCaller, ask_for, refuse_unusable
from chargehand.roles.json_reply_check import objection_to, record
from chargehand.roles.prompts import prompt
from chargehand.roles.refusal_detection import reason_in
from chargehand.roles.shared_resources import ModelChoice

NAME = "manager"
MOST_TURNS = 20
TOKEN = "DONE!"  # noqa: S105 - a word to end by, no secret

TO_ALL, TO_ONE, FINISH = "assign_to_all", "assign_to_one", "finish"
MOST_CALLS = 10
RULES: tuple[Rule, ...] = (InitRule(TO_ALL), InitRule(TO_ONE), TerminalRule(FINISH))


class TurnAssignment(Struct, frozen=True):
    """A message to one member."""

    to: str
    message: str


class Act(Struct, frozen=True, kw_only=True):
    """The decision of a manager: who speaks next, the message, and who gets the reply; or the answer."""

    #: who speaks next, all of them in parallel, and what each is asked
    assignments: tuple[TurnAssignment, ...] = ()
    #: who asks them
    sender: str = USER
    #: who gets the replies
    reply_to: str = EVERYONE
    #: text that is removed from the output, such as a termination token
    token: str = ""
    #: the answer of the group, which ends the conversation; None: the members speak next
    answer: str | None = None
    #: why the manager decided so
    why: str = ""


class Manager(Protocol):
    """Decides who speaks next in a group, and when the conversation is over."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> "ModelChoice | None":
        """The manager's own model, if it has one."""

    @property
    def settings(self) -> ModelSettings | None: ...

    @property
    def thinks(self) -> bool:
        """Whether the manager needs a model."""

    async def choose(self, talk: Talk, think: Callable[[], ModelCaller]) -> Act | None:
        """The next turns or the answer; None: the conversation is over. Called after each round, until it is over."""

    def ending(self, talk: Talk) -> str:
        """Why the conversation ended, as text."""


class RoundRobinManager:
    """Lets the members speak in turn, in roster order, for `max_turns` turns; by default one turn each."""

    model: "ModelChoice | None" = None
    settings: ModelSettings | None = None
    thinks = False

    def __init__(self, max_turns: int | None = None, *, name: str = NAME) -> None:
        self.name = checks.name(name, "name")
        self.max_turns = (
            None if max_turns is None else checks.count(max_turns, "max_turns", least=1)
        )

    def __repr__(self) -> str:
        return f"RoundRobinManager(max_turns={self.max_turns})"

    async def choose(self, talk: Talk, think: Callable[[], ModelCaller]) -> Act | None:  # noqa: ARG002 - it goes by rule
        names = list(talk.members)
        count = len(talk.spoken)
        if count >= (self.max_turns or len(names)):
            return None
        return turn_of(names[count % len(names)], talk)

    def ending(self, talk: Talk) -> str:
        return f"all {len(talk.spoken)} turns were spoken"


class DynamicManager:
    """A model picks who speaks next, until a member says the termination token or `max_turns` is reached.

    The prompt asks members to end with the token when nothing is left to say; the model may choose it
    too. Otherwise the conversation stops after `max_turns`, or when a speaker says the same thing three
    times in a row, and its run is `partial`.
    """

    thinks = True

    def __init__(
        self,
        model: "ModelChoice | None" = None,
        *,
        termination_token: str = TOKEN,
        max_turns: int = MOST_TURNS,
        settings: ModelSettings | None = None,
        name: str = NAME,
    ) -> None:
        self.name = checks.name(name, "name")
        self.model = model
        self.settings = settings
        self.max_turns = checks.count(max_turns, "max_turns", least=1)
        self.token = checks.name(termination_token, "termination_token")

    def __repr__(self) -> str:
        return f"DynamicManager(termination_token={self.token!r}, max_turns={self.max_turns})"

    async def choose(self, talk: Talk, think: Callable[[], ModelCaller]) -> Act | None:
        if self._end_of(talk):
            return None
        if len(talk.spoken) >= self.max_turns:
            raise WorkerError(
                f"max_turns={self.max_turns} is reached, and no member said {self.token}"
            )
        if talk.is_stuck and talk.last is not None:
            raise WorkerError(f"no progress: {talk.last.speaker} said the same {REPEATS} times")
        caller = think()
        choices = [*talk.members, *([self.token] if talk.spoken else [])]
        schema = record(
            next={"type": "string", "enum": choices},
            why={"type": "string", "description": "why, in one sentence"},
        )
        chosen = await ask_for(caller, "next speaker", self._turns(caller, talk), schema)
        if chosen["next"] == self.token:
            return None
        return turn_of(chosen["next"], talk, token=self.token, why=chosen["why"])

    def ending(self, talk: Talk) -> str:
        return self._end_of(talk) or f"{self.name} chose {self.token}"

    def _end_of(self, talk: Talk) -> str:
        """Why a member's message ended the conversation; empty if it did not."""
        last = talk.last
        is_said = last is not None and self.token in last.text
        return f"{last.speaker} said {self.token}" if last is not None and is_said else ""

    def _turns(self, caller: ModelCaller, talk: Talk) -> tuple[Turn, Turn]:
        roster = "\n".join(f"- {name}: {words}" for name, words in talk.members.items())
        words = prompt("speaker", caller.resources.prompts, roster=roster, token=self.token)
        left = self.max_turns - len(talk.spoken)
        unheard = canonical(talk.unheard).decode()  # the model sees only the newest messages
        told = f"Choose who speaks next. Turns left: {left}. Not asked yet: {unheard}"
        return system(words), user(f"{told}\n{talk.in_words()}")


def turn_of(name: str, talk: Talk, *, token: str = "", why: str = "") -> Act:
    """The decision that this member speaks next, to everyone."""
    last = talk.last
    return Act(
        assignments=(TurnAssignment(name, talk.request),),
        sender=USER if last is None else last.speaker,
        token=token,
        why=why,
    )


class SupervisorManager:
    """A model that leads the group with three tools: assign to all, assign to one, finish.

    Code enforces the rules: the model must first assign something; it may use each assignment tool at
    most `max_count` times; it can finish only when every member has answered or failed; the same message
    to the same member is refused the third time. Calls that break a rule have no effect and are reported
    to the model, twice; then the run ends with its results so far.
    """

    thinks = True

    def __init__(
        self,
        model: "ModelChoice | None" = None,
        *,
        max_count: int = MOST_CALLS,
        instructions: str = "",
        settings: ModelSettings | None = None,
        name: str = NAME,
    ) -> None:
        checks.count(max_count, "max_count", least=1)
        self.name = checks.name(name, "name")
        self.model = model
        self.settings = settings
        self.instructions = checks.text(instructions, "instructions")
        counts = (MaxCountRule(TO_ALL, max_count), MaxCountRule(TO_ONE, max_count))
        self.rules = Rules((*RULES, *counts), (TO_ALL, TO_ONE, FINISH))

    def __repr__(self) -> str:
        return f"<SupervisorManager {self.name!r}>"

    async def choose(self, talk: Talk, think: Callable[[], ModelCaller]) -> Act | None:
        caller = think()
        decision = ManagerDecision(self.name, talk, self.rules)
        said: list[Turn] = [*self._turns(caller, talk)]
        for _ in range(REPAIRS + 1):
            request = ModelRequest(
                turns=tuple(said),
                tools=decision.open_tools(),
                choice="required",
                settings=caller.resources.settings,
            )
            reply = await caller.ask("manage", request)
            refuse_unusable(reply, may_be_empty=True)
            act, objections = decision.judge(reply.calls)
            if act is not None:
                return act
            said += [*([reply.turn] if reply.parts else []), _told(reply.calls, objections)]
        raise WorkerError(f"{self.name} broke the rules {REPAIRS + 1} times: {objections[0]}")

    def ending(self, talk: Talk) -> str:
        return f"{self.name} gave the answer" if talk.is_closed else f"{self.name} did not finish"

    def _turns(self, caller: ModelCaller, talk: Talk) -> tuple[Turn, Turn]:
        roster = "\n".join(f"- {name}: {words}" for name, words in talk.members.items())
        words = prompt(
            "manager",
            caller.resources.prompts,
            name=self.name,
            roster=roster,
            rules=self.rules.words(),
            instructions=self.instructions,
        )
        unheard = ", ".join(talk.unheard) or "nobody"
        return system(words), user(f"Not heard yet: {unheard}\n{talk.in_words()}")


class ManagerDecision(Struct, frozen=True):
    """Checks the tool calls of a manager against the rules, and turns them into an `Act`."""

    manager: str
    talk: Talk
    rules: Rules

    def open_tools(self) -> tuple[ToolSpec, ...]:
        """The tools that the manager may call now."""
        history = history_of(self.talk)
        return tuple(
            spec
            for spec in specs_for(list(self.talk.members))
            if self._objection_to(spec.name, history) is None
        )

    def judge(self, calls: Sequence[ToolCall]) -> tuple[Act | None, list[str]]:
        """The `Act` for these calls if all are allowed; otherwise the objection to each call."""
        if not calls:
            names = " or ".join(spec.name for spec in self.open_tools())
            return None, [f"call a tool: {names}"]
        history = history_of(self.talk)
        assignments: list[TurnAssignment] = []
        objections: list[str] = []
        answer: str | None = None
        for call in calls:
            arguments, objection = self._read(call, [*history])
            objections.append(objection or "")
            if objection is None:
                history.append(call.name)
                assignments += self._assigned(call.name, arguments)
                answer = arguments["answer"] if call.name == FINISH else answer
        if any(objections):
            return None, [
                each or "not done, for the sake of the other calls" for each in objections
            ]
        if assignments and answer is not None:
            return None, [f"{FINISH} stands alone: hear first what you have just asked for"] * len(
                calls
            )
        act = Act(
            assignments=tuple(dict.fromkeys(assignments)),
            sender=self.manager,
            reply_to=self.manager,
            answer=answer,
        )
        return act, []

    def _read(self, call: ToolCall, history: list[str]) -> tuple[Any, str | None]:
        spec = next((s for s in specs_for(list(self.talk.members)) if s.name == call.name), None)
        if spec is None:
            return (
                None,
                f"there is no tool {call.name[:80]!r}; you have {TO_ALL}, {TO_ONE}, {FINISH}",
            )
        objection = self._objection_to(call.name, history)
        if objection is not None:
            return None, objection
        arguments, objection = objection_to(call.arguments, spec.parameters)
        if objection is None:
            objection = self._objection_to_words(call.name, arguments)
        return arguments, objection

    def _objection_to(self, name: str, history: list[str]) -> str | None:
        if name == FINISH and history and self.talk.unheard:
            unheard = ", ".join(self.talk.unheard)
            return (
                f"{FINISH} ends the work, and {unheard} was not heard yet; assign something first"
            )
        return self.rules.may_call(name, history)

    def _objection_to_words(self, name: str, arguments: Any) -> str | None:
        """The objection to an empty text, a refusal or a repeated message; None if there is none."""
        words = arguments["answer" if name == FINISH else "message"].strip()
        if not words:
            return f"{name}: the words are empty; say what you mean"
        if name == FINISH and reason_in(words) is not None:
            return f"{FINISH}: this is not an answer; answer from what was said, and name what is missing"
        for each in self._assigned(name, arguments):
            asked = (each.to, each.message)
            same = [s for s in self.talk.spoken if (s.speaker, s.asked) == asked]
            if any(spoken.value is None for spoken in same):
                return f"{each.to} could not answer exactly this; ask otherwise, or go on without"
            if len(same) >= REPEATS - 1:
                return (
                    f"{each.to} was asked exactly this {len(same)} times; ask otherwise, or finish"
                )
        return None

    def _assigned(self, name: str, arguments: Any) -> list[TurnAssignment]:
        if name == FINISH:
            return []
        to = list(self.talk.members) if name == TO_ALL else [arguments["worker"]]
        return [TurnAssignment(member, arguments["message"].strip()) for member in to]


def history_of(talk: Talk) -> list[str]:
    """The tool calls that led to the turns so far, in order."""
    history: list[str] = []
    for batch in rounds_in(talk.spoken):
        is_all = len(batch) == len(talk.members) and len({each.asked for each in batch}) == 1
        history += [TO_ALL] if is_all else [TO_ONE] * len(batch)
    return history


def specs_for(members: list[str]) -> tuple[ToolSpec, ...]:
    """The manager's tools, for these members."""
    message = {
        "type": "string",
        "description": "what they are to do or to answer; they see no more",
    }
    worker = {"type": "string", "enum": members}
    answer = {"type": "string", "description": "the answer to the request, from what was said"}
    return (
        ToolSpec(TO_ALL, "Send a message to every member; all answer.", record(message=message)),
        ToolSpec(
            TO_ONE,
            "Send a message to one member, who answers.",
            record(worker=worker, message=message),
        ),
        ToolSpec(FINISH, "End the work with the answer to the request.", record(answer=answer)),
    )


def _told(calls: Sequence[ToolCall], objections: Sequence[str]) -> Turn:
    if not calls:
        return user(objections[0])
    told = zip(calls, objections, strict=True)
    outputs = (ToolOutput(call.id, call.name, why, is_error=True) for call, why in told)
    return Turn(Role.TOOL, tuple(outputs))
