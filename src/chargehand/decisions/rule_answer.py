"""The answer by rules: combines a run's results without a model, and lists what is missing."""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace

from chargehand.decisions.deadlines import OUT_OF_TIME
from chargehand.decisions.group_conversation import EVERYONE, SpokenTurn
from chargehand.decisions.quorum import plain
from chargehand.decisions.system_tasks import (
    ANSWER,
    has_choice,
    is_missing,
    is_of_plan,
    is_system_task,
    last_in,
)
from chargehand.decisions.task_and_state_words import state_words
from chargehand.decisions.task_graph import TaskNode, TaskState, items_of, shown_state
from chargehand.facts.answer import Answer, Candidate, Claim, Contradiction, Gap
from chargehand.facts.plan import Strategy
from chargehand.facts.value import Value, canonical

#: characters of a claim
LONGEST_CLAIM = 500
#: characters of an item of `for_each` in a message to people
LONGEST_ITEM = 60
#: characters; longer texts may use different words without contradicting each other
COMPARABLE = 200
MOST_PAIRS = 100
#: the state of a gap that a task with a partial result reports itself
IN_PART = "done in part"

#: returns the output of a done task; called only if the output is needed, because it may be in the blob store
Outputs: TypeAlias = Callable[[str], Any]


def answer_of(
    nodes: Mapping[str, TaskNode],
    outputs: Outputs,
    composed: Answer | None,
    strategy: Strategy = Strategy.MERGE,
    instruction: str = "",
) -> Answer:
    """The answer that a model composed, with the current gaps; if there is none, the answer by rules."""
    if composed is not None:
        return replace(composed, gaps=gaps_in(nodes, strategy))
    return compose(nodes, outputs, strategy, instruction)


def compose(
    nodes: Mapping[str, TaskNode],
    outputs: Outputs,
    strategy: Strategy = Strategy.MERGE,
    instruction: str = "",
) -> Answer:
    """The answer by rules. It is deterministic and says no more than the results."""
    # If a model failed to compose the answer, all results are shown, not only the last ones.
    last = done_in(nodes) if is_uncomposed(nodes) else last_in(nodes)
    done = {id_: outputs(id_) for id_ in last if nodes[id_].state is TaskState.DONE}
    output: Any = next(iter(done.values()), None) if len(last) == 1 else done or None
    if not done and (loose := loose_in(nodes)):  # the best results so far, rather than nothing
        output = done = {id_: outputs(id_) for id_ in loose}
    if (last_turn := _last_turn(nodes)) is not None:
        id_, turn = last_turn
        output = _without_token(turn, outputs(id_))
        done = {id_: output}
    candidates: tuple[Candidate, ...] = ()
    if strategy is Strategy.SELECT and len(done) > 1:
        candidates = _lined_up({id_: done[id_] for id_ in loose_in(nodes)}, instruction)
        done = {candidates[0].task: candidates[0].output}
        output = candidates[0].output
    elif strategy is Strategy.REDUCE and len(last) > 1:
        output = list(done.values()) or None
    differing = tuple(contradictions_in(nodes, outputs, [each.task for each in candidates]))
    return Answer(
        output=output,
        claims=claims_of(done),
        contradictions=differing,
        candidates=candidates,
        gaps=gaps_in(nodes, strategy),
        confidence=share_done(nodes, differing),
    )


def _last_turn(nodes: Mapping[str, TaskNode]) -> tuple[str, SpokenTurn] | None:
    """The newest message to everyone in a group conversation: its task and its turn; None in any other run.

    Later turns that failed change nothing. None also if the newest done task is a manager's answer or a
    reply to only one member.
    """
    for id_ in reversed(list(nodes)):
        node = nodes[id_]
        if _is_usable(node):
            is_to_all = node.task.args.get("reply_to") == EVERYONE
            turn = SpokenTurn.of(node.task) if is_to_all else None
            return None if turn is None else (id_, turn)
    return None


def _without_token(turn: SpokenTurn, said: Any) -> Any:
    """The message of a turn, without the text that ends the conversation."""
    return said.replace(turn.token, "").strip() if isinstance(said, str) and turn.token else said


def loose_in(nodes: Mapping[str, TaskNode]) -> list[str]:
    """The done tasks that no other done task depends on, in plan order."""
    return [
        id_
        for id_, node in nodes.items()
        if _is_usable(node) and not any(map(_is_usable, node.dependents))
    ]


def done_in(nodes: Mapping[str, TaskNode]) -> list[str]:
    """The done tasks of the plan, in plan order."""
    return [id_ for id_, node in nodes.items() if _is_usable(node)]


def _is_usable(node: TaskNode) -> bool:
    return node.state is TaskState.DONE and is_of_plan(node)


def is_uncomposed(nodes: Mapping[str, TaskNode]) -> bool:
    """Whether a model should have composed the answer but failed."""
    answer = nodes.get(ANSWER)
    return answer is not None and answer.state.is_settled and answer.state is not TaskState.DONE


def gaps_in(nodes: Mapping[str, TaskNode], strategy: Strategy = Strategy.MERGE) -> tuple[Gap, ...]:
    """What is missing from the answer: results of tasks, a plan never written, an answer not composed.

    If the answer is selected from several results, failed tasks are no gaps.
    """
    is_chosen = has_choice(nodes, strategy)
    return tuple(
        gap
        for node in nodes.values()
        if not (is_chosen and not is_system_task(node.task.id))
        for gap in _gaps_of(node, nodes)
    )


def _gaps_of(node: TaskNode, nodes: Mapping[str, TaskNode]) -> Iterator[Gap]:
    id_ = node.task.id
    is_counted = is_of_plan(node) or (is_missing(node) and is_system_task(id_))
    if not is_counted:
        return
    if node.state is not TaskState.DONE and (id_ != ANSWER or node.state.is_settled):
        state = shown_state(node, nodes)
        yield Gap(id_, state_words(state), why_not_done(node) or _why_open(node, state, nodes))
    for missing in node.gaps:
        yield Gap(id_, IN_PART, missing)


def why_not_done(node: TaskNode) -> str:
    """Why a task is not done; empty if it is, or if it still may be."""
    if node.cause is not None:
        return str(node.cause)
    if node.state is TaskState.SKIPPED:
        return f"{node.why} was not done" if node.why else _why_stopped(node)
    if node.state is TaskState.CANCELLED:
        return "it was cancelled"
    return ""


def _why_open(node: TaskNode, state: TaskState, nodes: Mapping[str, TaskNode]) -> str:
    """Why a task is not done yet that still may be; `state` is the one that is shown."""
    match state:
        case TaskState.ASKING:
            asked = "one of its items" if node.question is None else repr(cut(node.question.text))
            return f"a person has not answered {asked} yet"
        case TaskState.RETRYING if node.waits_for:
            return f"it waits for its provider: {node.waits_for}"
        case TaskState.WAITING:
            unmet = [nodes[need.task] for need in node.task.all_needs]
            named = [
                f"{each.task.id} ({state_words(shown_state(each, nodes))})"
                for each in unmet
                if not each.state.is_settled
            ]
            return f"it needs {', '.join(named)}" if named else "it has not started yet"
        case TaskState.RUNNING:
            return "it has not ended yet"
        case _ if node.last_failure is not None:
            return f"its last try failed: {node.last_failure}"
        case _:
            return "it has not ended yet" if node.attempt else "it has not started yet"


def _why_stopped(node: TaskNode) -> str:
    is_late = node.stopped in ("", OUT_OF_TIME)
    why = "there was no time left" if is_late else f"the run was stopped: {node.stopped}"
    if node.waits_for and is_late:
        return f"{why} (it waited for its provider: {node.waits_for})"
    return f"{why} (the last try failed: {node.last_failure})" if node.last_failure else why


def share_done(nodes: Mapping[str, TaskNode], differing: Collection[Contradiction] = ()) -> float:
    """The share of the required tasks that is done, from 0 to 1; halved if a required system task failed.

    A result that another one contradicts counts half.
    """
    disputed = {id_ for pair in differing for id_ in (*pair.first.tasks, *pair.second.tasks)}
    planned = [node for node in nodes.values() if is_of_plan(node)]
    required = [node for node in planned if not node.task.optional or node.task.id in disputed]
    own = [node for id_, node in nodes.items() if is_system_task(id_) and node.state.is_settled]
    whole = 0.5 if any(map(is_missing, own)) else 1.0
    if not required:
        return whole if any(node.state is TaskState.DONE for node in planned) else 0.0
    return whole * sum(_share_of(node, nodes, disputed) for node in required) / len(required)


def _share_of(node: TaskNode, nodes: Mapping[str, TaskNode], disputed: Collection[str]) -> float:
    if node.state is not TaskState.DONE:
        return 0.0
    if node.task.for_each is not None and node.gaps:
        items = list(items_of(node, nodes))
        done = [item for item in items if item.state is TaskState.DONE]
        return sum(0.5 if item.gaps else 1.0 for item in done) / max(len(items), 1)
    # A partial result counts half, because its exact share is unknown.
    return 0.5 if node.gaps or node.task.id in disputed else 1.0


def claims_of(outputs: Mapping[str, Any]) -> tuple[Claim, ...]:
    """A claim for each output that is text, supported by its task."""
    return tuple(
        Claim(cut(output), (id_,))
        for id_, output in outputs.items()
        if isinstance(output, str) and output.strip()
    )


def cut(text: str, most: int = LONGEST_CLAIM) -> str:
    """The text on one line, cut to `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def item_in_words(index: int, item: Value) -> str:
    """The index of an item and, in a few words, its value."""
    text = item_text(item)
    return f"item {index} ({text})" if text else f"item {index}"


def item_text(item: Value) -> str:
    """The value of an item in a few words; empty if it is in the blob store."""
    return "" if item.blob else cut(bytes(item.json).decode(), LONGEST_ITEM)


def contradictions_in(
    nodes: Mapping[str, TaskNode], outputs: Outputs, candidates: Collection[str] = ()
) -> Iterator[Contradiction]:
    """Results that differ although their tasks have the same description, arguments and needs.

    Long texts are not compared: they may use different words without contradicting each other. Candidates
    are alternatives, so they contradict nothing.
    """
    for same in _same_tasks(nodes):
        ids = [id_ for id_ in same if id_ not in candidates]
        values = ((id_, outputs(id_)) for id_ in ids)
        yield from itertools.islice(
            _differing([each for each in values if _is_comparable(each[1])]), MOST_PAIRS
        )


def _same_tasks(nodes: Mapping[str, TaskNode]) -> list[list[str]]:
    """Groups of two or more done tasks with the same description, arguments and needs."""
    by_words: dict[str, list[str]] = {}
    for id_ in done_in(nodes):
        by_words.setdefault(nodes[id_].task.description, []).append(id_)
    same: dict[bytes, list[str]] = {}
    for words, ids in by_words.items():
        for id_ in ids if len(ids) > 1 else ():
            task = nodes[id_].task
            same.setdefault(canonical([words, task.args, task.needs]), []).append(id_)
    return [ids for ids in same.values() if len(ids) > 1]


def _differing(results: Sequence[tuple[str, Any]]) -> Iterator[Contradiction]:
    for id_, value in results[1:]:
        first, before = results[0]
        if plain(value) != plain(before):
            yield Contradiction(_claim(first, before), _claim(id_, value))


def _is_comparable(value: Any) -> bool:
    return not isinstance(value, str) or len(value) <= COMPARABLE


def _claim(id_: str, value: Any) -> Claim:
    return Claim(cut(value if isinstance(value, str) else canonical(value).decode()), (id_,))


def _lined_up(done: Mapping[str, Any], instruction: str) -> tuple[Candidate, ...]:
    criterion = f" by {cut(instruction, 200)!r}" if instruction else ""
    why = f"the first in the plan; no model was there to judge{criterion}"
    return tuple(
        Candidate(id_, output, is_chosen=not number, why=why if not number else "")
        for number, (id_, output) in enumerate(done.items())
    )
