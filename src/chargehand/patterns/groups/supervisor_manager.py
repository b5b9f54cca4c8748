"""The supervising manager: a model that assigns work to members with tools, and is held to tool rules."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from chargehand.decisions.tool_rules import InitRule, MaxCountRule, Rule, Rules, TerminalRule
from chargehand.errors import WorkerError
from chargehand.facts import argument_checks as checks
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
from chargehand.patterns.groups.managers import NAME, Act, TurnAssignment
from chargehand.patterns.groups.messages import REPEATS, Spoken, Talk, rounds_in
from chargehand.roles.json_output import objection_to, record
from chargehand.roles.model_calls import REPAIRS, ModelCaller, refuse_unusable
from chargehand.roles.prompts import prompt
from chargehand.roles.resources import ModelChoice
from chargehand.roles.worker_refusal import reason_in

TO_ALL, TO_ONE, FINISH = "assign_to_all", "assign_to_one", "finish"
MOST_CALLS = 10
RULES: tuple[Rule, ...] = (InitRule(TO_ALL), InitRule(TO_ONE), TerminalRule(FINISH))


class SupervisorManager:
    """A model that leads the group with three tools: assign to all, assign to one, finish.

    The engine holds it to its rules, whatever it wants: it must assign first; each way to assign is
    used at most `max_count` times; it can finish only when every member was heard, or could not
    answer; the same words to the same member a third time are refused. Calls that break a rule change
    nothing and are told back to it, twice; then the run ends with what there is.
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
        if talk.is_closed:
            return None
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
    """One decision of a manager: what it may call now, and what its calls come to."""

    manager: str
    talk: Talk
    rules: Rules

    def open_tools(self) -> tuple[ToolSpec, ...]:
        """The tools that may be called now, as the model sees them."""
        history = history_of(self.talk)
        return tuple(
            spec
            for spec in specs_for(list(self.talk.members))
            if self._objection_to(spec.name, history) is None
        )

    def judge(self, calls: Sequence[ToolCall]) -> tuple[Act | None, list[str]]:
        """What these calls come to, if all of them may be made; else what is wrong with each."""
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
        """What is wrong with what it says: nothing at all, or the same again and again."""
        words = arguments["answer" if name == FINISH else "message"].strip()
        if not words:
            return f"{name}: the words are empty; say what you mean"
        if name == FINISH and reason_in(words) is not None:
            return (
                f"{FINISH}: this is no answer; answer from what was said, and name what is missing"
            )
        for each in self._assigned(name, arguments):
            same = [s for s in self.talk.spoken if _is_same(s, each)]
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
    """The tools that led to what was said, in order."""
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


def _is_same(spoken: Spoken, assignment: TurnAssignment) -> bool:
    return (spoken.speaker, spoken.asked) == (assignment.to, assignment.message)
