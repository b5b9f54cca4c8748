"""Tool rules: in which order, how often and under which conditions a worker's model may call its tools.

The tool loop enforces the rules and shows them to the model. A history is the names of an attempt's tool
calls that were run, in order. If failed calls of required tools should not count, also pass `may_finish`
the calls that succeeded.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr

from chargehand.errors import UsageError
from chargehand.facts.argument_checks import shown

#: states that the search for an end visits; rules that are undecided after so many count as valid
MOST_STATES = 10_000
#: stands for every tool that no rule names
OTHER = ""


class InitRule(Struct, frozen=True, tag="init"):
    """This tool must be called first. If several tools have this rule, any of them may be first."""

    tool: str


class ChildRule(Struct, frozen=True, tag="child"):
    """The next call after a call to this tool must be to one of these tools."""

    tool: str
    children: Sequence[str]

    def __post_init__(self) -> None:
        one = isinstance(self.children, str)
        force_setattr(self, "children", (self.children,) if one else tuple(self.children))


class TerminalRule(Struct, frozen=True, tag="terminal"):
    """A successful call to this tool ends the attempt."""

    tool: str


class MaxCountRule(Struct, frozen=True, tag="max_count"):
    """This tool may be called at most this many times in one attempt."""

    tool: str
    most: int


class RequiredRule(Struct, frozen=True, tag="required"):
    """The worker cannot finish before it has called this tool."""

    tool: str


class ApprovalRule(Struct, frozen=True, tag="approval"):
    """A person must approve each call to this tool."""

    tool: str


Rule: TypeAlias = InitRule | ChildRule | TerminalRule | MaxCountRule | RequiredRule | ApprovalRule
History: TypeAlias = Sequence[str]


class Rules:
    """The rules of one worker, checked against its tools and against each other."""

    def __init__(self, rules: Iterable[Rule], tools: Iterable[str]) -> None:
        """Raises `UsageError` for a rule about a tool that is not there, and for rules that no
        sequence of calls could keep."""
        rules = tuple(rules)
        for rule in rules:
            if not isinstance(rule, Rule):
                raise UsageError(f"rules: {shown(rule)} is not a rule; give InitRule('tool'), or …")
        self._tools = tuple(tools)
        self._all_tools = frozenset(self._tools)
        self._rules = tuple(dict.fromkeys(rules))
        self._inits = self._named(InitRule)
        self._terminals = self._named(TerminalRule)
        self._required = self._named(RequiredRule)
        self._approvals = self._named(ApprovalRule)
        self._children: dict[str, tuple[str, ...]] = {}
        self._most: dict[str, int] = {}
        self._is_undecided = False
        for rule in self._rules:
            self._take(rule)
        self._refuse_contradictions()

    def with_tools(self, tools: Iterable[str]) -> "Rules":
        """The same rules for a worker that has these tools as well."""
        return Rules(self._rules, (*self._tools, *tools))

    def allowed(self, history: History) -> frozenset[str] | str:
        """The tools that may be called next; a single name (`str`) is the tool that must be called next."""
        if not self._rules:
            return self._all_tools
        if not history and len(self._inits) == 1:
            return self._inits[0]
        return frozenset(name for name in self._tools if self.may_call(name, history) is None)

    def may_call(self, name: str, history: History) -> str | None:
        """Why this tool may not be called next, in words for the model; None if it may."""
        if not self._rules:
            return None
        for past in history if self._terminals else ():
            if past in self._terminals:
                return f"{past} has ended the work; call no more tools"
        if not history and self._inits and name not in self._inits:
            return f"call {_either(self._inits)} first"
        if history and name not in self._children.get(history[-1], (name,)):
            last = history[-1]
            return f"after {last}, only {_either(self._children[last])} can be called"
        if history.count(name) >= self._most.get(name, len(history) + 1):
            return f"{name} was called {_times(self._most[name])}, the most allowed"
        if name in self._terminals and (missing := self._missing([*history, name])):
            return f"{name} ends the work, and {_every(missing)} must be called before"
        return None

    def may_finish(self, history: History, succeeded: History | None = None) -> str | None:
        """What must be done before the work may end, in words for the model; None if it may end here.

        With `succeeded`, a required tool counts only if it is among these.
        """
        if due := self._due(history):
            when = f"after {history[-1]}" if history else "first"
            return f"call {_either(due)} {when}, before you finish"
        missing = self._missing(history if succeeded is None else succeeded)
        return f"call {_every(missing)} before you finish" if missing else None

    def _due(self, history: History) -> list[str]:
        """The tools of which one must be called next; empty if nothing is due, or none of them can be called."""
        names = self._children.get(history[-1], ()) if history else self._inits
        return [name for name in names if self.may_call(name, history) is None]

    def ends(self, name: str) -> bool:
        """Whether a call of this tool ends the work."""
        return name in self._terminals

    def needs_approval(self, name: str) -> bool:
        """Whether a person must approve each call of this tool."""
        return name in self._approvals

    def words(self) -> str:
        """The rules in words for the model, one line each; empty if there are none."""
        lines = [f"- Call {_either(self._inits)} first."] if self._inits else []
        lines += [f"- {sentence}" for rule in self._rules if (sentence := _sentence(rule))]
        return "\n".join(lines)

    def _named(self, kind: type[Rule]) -> tuple[str, ...]:
        return tuple(rule.tool for rule in self._rules if isinstance(rule, kind))

    def _missing(self, history: History) -> list[str]:
        return [name for name in self._required if name not in history]

    def _take(self, rule: Rule) -> None:
        names = (rule.tool, *(rule.children if isinstance(rule, ChildRule) else ()))
        for name in names:
            if name not in self._tools:
                raise UsageError(f"a rule names the tool {name!r}, which this worker does not have")
        if isinstance(rule, ChildRule):
            self._take_child(rule)
        elif isinstance(rule, MaxCountRule):
            self._take_count(rule)

    def _take_child(self, rule: ChildRule) -> None:
        if not rule.children:
            raise UsageError(
                f"nothing could follow {rule.tool!r}; use TerminalRule if it is the end"
            )
        if rule.tool in self._children:
            raise UsageError(f"two child rules for {rule.tool!r}; write one with all its children")
        if rule.tool in self._terminals:
            raise UsageError(f"{rule.tool!r} ends the work, so that it cannot have children")
        self._children[rule.tool] = tuple(rule.children)

    def _take_count(self, rule: MaxCountRule) -> None:
        if rule.most < 1:
            raise UsageError(f"{rule.tool!r} may be called {rule.most} times; take the tool away")
        if rule.tool in self._most:
            raise UsageError(f"two numbers of calls for {rule.tool!r}; write one")
        self._most[rule.tool] = rule.most

    def _refuse_contradictions(self) -> None:
        """Raise `UsageError` unless some sequence of calls keeps all rules and can end."""
        reached: set[str] = set()
        for history in self._histories():
            reached.update(history[-1:])
            if (history[-1:] and history[-1] in self._terminals) or self.may_finish(
                history
            ) is None:
                return
        if self._is_undecided:
            return
        if not self._required:
            raise UsageError(
                "after each call another one is due, so that the work could never end; "
                "drop a ChildRule, or add a TerminalRule or a MaxCountRule"
            )
        stuck = [name for name in self._required if name not in reached] or self._required
        raise UsageError(
            f"{_every(stuck)} must be called before the end, but the other rules never let it come "
            "to that; drop or loosen one of them"
        )

    def _histories(self) -> Iterator[tuple[str, ...]]:
        """A history for every state that the rules can tell apart, shortest first."""
        named = {name for rule in self._rules for name in _names_in(rule)}
        choices = [
            *_named_in_order(self._tools, named),
            *([OTHER] if set(self._tools) - named else []),
        ]
        queue: deque[tuple[str, ...]] = deque([()])
        seen = {self._state(())}
        while queue and len(seen) < MOST_STATES:
            history = queue.popleft()
            yield history
            for name in choices:
                longer = (*history, name)
                if self.may_call(name, history) is None and self._state(longer) not in seen:
                    seen.add(self._state(longer))
                    queue.append(longer)
        self._is_undecided = bool(queue)  # then an end is taken to exist

    def _state(self, history: tuple[str, ...]) -> tuple[object, ...]:
        counts = tuple(history.count(name) for name in self._most)
        return history[-1:], counts, tuple(self._missing(history))


def _named_in_order(tools: Sequence[str], named: set[str]) -> list[str]:
    return [name for name in tools if name in named]


def _names_in(rule: Rule) -> tuple[str, ...]:
    return (rule.tool, *rule.children) if isinstance(rule, ChildRule) else (rule.tool,)


def _sentence(rule: Rule) -> str:
    match rule:
        case ChildRule(tool=tool, children=children):
            return f"After {tool}, only {_either(children)} can be called next."
        case TerminalRule(tool=tool):
            return f"{tool} ends your work: call it last."
        case MaxCountRule(tool=tool, most=most):
            return f"Call {tool} at most {_times(most)}."
        case RequiredRule(tool=tool):
            return f"Call {tool} before you finish."
        case ApprovalRule(tool=tool):
            return f"A person approves each call of {tool}; it may take time or be refused."
        case InitRule():
            return ""  # `words` lists these rules together, because any of them may be first


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _either(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _every(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
