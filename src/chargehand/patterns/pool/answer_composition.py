"""The answer to a request of a pool, composed from the finished tasks by a model or by rule."""

import logging
from collections.abc import Collection
from typing import Any

import msgspec

from chargehand.decisions.coordination.conflicts import ConflictKind
from chargehand.decisions.quorum import count
from chargehand.decisions.rule_answer import (
    answer_of,
    contradictions_in,
    done_in,
    share_done,
    why_not_done,
)
from chargehand.decisions.system_tasks import ANSWER, ANSWERER
from chargehand.decisions.task_graph import TaskNode, TaskState
from chargehand.engines.brief import Brief
from chargehand.facts.answer import Answer, Gap
from chargehand.facts.board import Match, NoteQuery, Segment
from chargehand.facts.outcome import Done, Outcome
from chargehand.facts.plan import Task
from chargehand.facts.value import Value, canonical, digest_of
from chargehand.journal.base import Blobs, load_value
from chargehand.patterns.pool.leaderless_run import LeaderlessRun, has_failed
from chargehand.patterns.pool.model_config import is_by_rule
from chargehand.patterns.pool.shared_memory import EVERYTHING, KEPT, SharedMemoryPool
from chargehand.roles.roster import Roster
from chargehand.roles.shared_resources import Resources
from chargehand.roles.system_task_context import PlanningContext

log = logging.getLogger("chargehand.pool")

#: tag of the notes that contain composed answers
AGGREGATED = "aggregated"
IMPORTANCE = 0.8


async def answer_form(
    ledger: LeaderlessRun, pool: SharedMemoryPool, resources: Resources, author: str
) -> dict[str, Any]:
    """The answer from the results so far, as a plain dict; an answer composed by a model is stored in the pool."""
    refused = await _refused(ledger, pool)
    composed = await _composed(ledger, pool, resources, author, refused)
    outputs = await _outputs_of(ledger, pool.journal.blobs)
    # No `await` from here on: otherwise more tasks could finish, whose outputs are missing.
    every = ledger.schedule.nodes
    nodes = {id_: node for id_, node in every.items() if id_ not in refused}
    answer = answer_of(
        nodes,
        outputs.__getitem__,
        composed,
        ledger.schedule.strategy,
        ledger.schedule.instruction,
    )
    differing = list(contradictions_in(every, outputs.__getitem__))
    return {
        "request_id": ledger.request,
        "status": ledger.schedule.state.value,
        "final_result": answer.output,
        "results": [_result(nodes[task], outputs[task]) for task in done_in(nodes)],
        "gaps": [_gap(ledger, gap) for gap in answer.gaps],
        "contradictions": [str(pair) for pair in answer.contradictions],
        "refused": [{**_result(every[id_], outputs[id_]), "why": refused[id_]} for id_ in refused],
        "confidence": min(answer.confidence, share_done(every, differing)),
        "by": answer.by,
    }


async def _composed(
    ledger: LeaderlessRun,
    pool: SharedMemoryPool,
    resources: Resources,
    author: str,
    refused: Collection[str],
) -> Answer | None:
    """The stored or new answer of a model for exactly these results; None if no model can compose it."""
    request, models = ledger.request, resources.models(None, "the supervisor")
    done = [id_ for id_ in done_in(ledger.schedule.nodes) if id_ not in refused]
    if not done or is_by_rule(models):
        return None
    rests_on = digest_of(canonical([sorted(done), [model.name for model in models]]))
    query = NoteQuery(tags=(AGGREGATED, request), match=Match.ALL)
    for note in await pool.journal.boards.notes(pool.name, query):
        if note.metadata.get("rests_on") == rests_on:
            known = await load_value(note.stored, pool.journal.blobs)
            return msgspec.convert(known.read(), Answer)
    outcome = await _compose(ledger, pool, resources, done)
    if not isinstance(outcome, Done):
        log.warning("pool_answer_by_rule run=%s error=%s", request, outcome)
        return None
    answer = msgspec.convert(outcome.value.read(), Answer)
    await pool.board.signed(author, author).post(
        answer,
        tags=[AGGREGATED, request],
        segment=Segment.RESULTS,
        importance=IMPORTANCE,
        metadata={"request_id": request, "rests_on": rests_on},
    )
    return answer


async def _compose(
    ledger: LeaderlessRun, pool: SharedMemoryPool, resources: Resources, done: list[str]
) -> Outcome:
    from chargehand.roles.aggregate import compose_answer

    task = Task(id=ANSWER, description="Compose the answer", worker=ANSWERER, args={"of": done})
    limits = ledger.schedule.limits
    brief = Brief(ledger.request, task, 1, ANSWERER, {}, None, limits=limits)
    # Composing changes nothing in the run, and reports no progress.
    context = PlanningContext(ledger.live_run, Roster([]), pool.clock.now, pool.journal.blobs)
    return await compose_answer(brief, context, resources)


async def _refused(ledger: LeaderlessRun, pool: SharedMemoryPool) -> dict[str, str]:
    """Results that lost a conflict that was resolved, each with the reason."""
    tags = ("conflict", ConflictKind.CONTRADICTION.value, ledger.request)
    query = NoteQuery(tags=tags, match=Match.ALL, segments=(Segment.CONFLICTS,), limit=EVERYTHING)
    notes = await pool.journal.boards.notes(pool.name, query)
    outputs = await _outputs_of(ledger, pool.journal.blobs) if notes else {}
    refused: dict[str, str] = {}
    for note in sorted(notes, key=lambda each: each.at):  # the last resolution wins
        kept = str(note.metadata.get(KEPT))
        others = [id_ for id_ in note.metadata.get("tasks", ()) if id_ in outputs]
        if kept not in others:
            continue
        for id_ in others:
            refused.pop(id_, None)
            if len(count({"kept": outputs[kept], "other": outputs[id_]}).groups) > 1:
                refused[id_] = str(note.content)
    return refused


async def _outputs_of(ledger: LeaderlessRun, blobs: Blobs) -> dict[str, Any]:
    """The output of each finished task."""
    values, loaded = ledger.live_run.results.outputs, dict[str, Value]()
    while missing := [
        value for value in values.values() if value.blob and value.blob not in loaded
    ]:
        for value in missing:
            loaded[value.blob] = await load_value(value, blobs)
    return {task: loaded.get(value.blob, value).read() for task, value in values.items()}


def _result(node: TaskNode, output: Any) -> dict[str, Any]:
    return {
        "task_id": node.task.id,
        "agent_id": node.worker,
        "description": node.task.description,
        "result": output,
    }


def _gap(ledger: LeaderlessRun, gap: Gap) -> dict[str, str]:
    """A missing result, with the reason."""
    node = ledger.schedule.nodes[gap.task]
    failure = node.last_failure
    why = why_not_done(node) or (str(failure) if failure is not None and has_failed(node) else "")
    if node.question is not None:
        ways = "reassign_task or an answer" if has_failed(node) else "an answer"
        why += f"{'; ' if why else ''}it waits for {ways} to {node.question.id}"
    if not why and node.state is TaskState.READY:
        task = node.task
        who = (
            f"worker {task.worker!r}" if task.worker else f"no worker with the skill {task.skill!r}"
        )
        why = f"{who} has {'not ' if task.worker else ''}taken it yet"
        if node.losses:
            why = f"worker {node.worker!r} had started it, but its process was closed or is gone"
    return {
        "task_id": gap.task,
        "status": "failed" if has_failed(node) else gap.state,
        "why": why or gap.why,
    }
