"""The answer of a request of a pool: composed by a model from what is done by now, or by rule."""

import logging
from collections.abc import Collection
from typing import Any

import msgspec

from chargehand.decisions.coordination.conflicts import ConflictKind
from chargehand.decisions.quorum import count
from chargehand.decisions.rule_answer import answer_of, contradictions_in, done_in, share_done
from chargehand.decisions.system_tasks import ANSWER, ANSWERER
from chargehand.decisions.task_graph import TaskNode, TaskState
from chargehand.engines.brief import Brief
from chargehand.facts.answer import Answer, Gap
from chargehand.facts.board import Match, NoteQuery, Segment
from chargehand.facts.outcome import Done
from chargehand.facts.plan import Task
from chargehand.facts.value import Value, canonical, digest_of
from chargehand.journal.base import Blobs
from chargehand.journal.blob_values import load_value
from chargehand.patterns.pool.insights import KEPT
from chargehand.patterns.pool.plain_dicts import has_failed
from chargehand.patterns.pool.pool_run import PoolRun
from chargehand.patterns.pool.request_split import is_by_rule
from chargehand.patterns.pool.shared_memory import EVERYTHING, SharedMemoryPool
from chargehand.roles.planning_context import PlanningContext
from chargehand.roles.resources import Resources
from chargehand.roles.roster import Roster

log = logging.getLogger("chargehand.pool")

#: tag of the notes that keep composed answers
AGGREGATED = "aggregated"
IMPORTANCE = 0.8


async def answer_form(
    ledger: PoolRun, pool: SharedMemoryPool, resources: Resources, author: str
) -> dict[str, Any]:
    """What the results so far come to, as a plain dict; what a model composed is kept in the pool."""
    refused = await _refused(ledger, pool)
    composed = await AnswerComposer(ledger, pool, resources, author, refused).composed()
    outputs = await _outputs_of(ledger, pool.journal.blobs)
    # No more waiting from here on: more tasks could be done than there are outputs.
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


class AnswerComposer:
    """Has a model compose the answer, once for the same results."""

    def __init__(
        self,
        ledger: PoolRun,
        pool: SharedMemoryPool,
        resources: Resources,
        author: str,
        refused: Collection[str],
    ) -> None:
        self._ledger = ledger
        self._pool = pool
        self._resources = resources
        self._author = author
        self._done = [id_ for id_ in done_in(ledger.schedule.nodes) if id_ not in refused]

    async def composed(self) -> Answer | None:
        """What a model made of exactly these results before, or makes of them now; None: none can."""
        models = self._resources.models(None, "the supervisor")
        if not self._done or is_by_rule(models):
            return None
        rests_on = digest_of(canonical([sorted(self._done), [model.name for model in models]]))
        known = await self._known(rests_on)
        if known is not None:
            return known
        answer = await self._compose()
        if answer is not None:
            await self._keep(answer, rests_on)
        return answer

    async def _compose(self) -> Answer | None:
        from chargehand.roles.aggregate import compose_answer

        request = self._ledger.request
        words, args = "Compose the answer", {"of": self._done}
        system_task = Task(id=ANSWER, description=words, worker=ANSWERER, args=args)
        limits = self._ledger.schedule.limits
        brief = Brief(request, system_task, 1, ANSWERER, {}, None, limits=limits)
        blobs = self._pool.journal.blobs
        # Nothing of the run is changed from here, and nobody listens while it is composed.
        context = PlanningContext(
            self._ledger.live_run,
            Roster([]),
            self._pool.clock.now,
            lambda value: load_value(value, blobs),
        )
        outcome = await compose_answer(brief, context, self._resources)
        if isinstance(outcome, Done):
            return msgspec.convert(outcome.value.read(), Answer)
        log.warning("pool_answer_by_rule run=%s error=%s", request, outcome)
        return None

    async def _known(self, rests_on: str) -> Answer | None:
        query = NoteQuery(tags=(AGGREGATED, self._ledger.request), match=Match.ALL)
        for note in await self._pool.journal.boards.notes(self._pool.name, query):
            if note.metadata.get("rests_on") == rests_on:
                return msgspec.convert(
                    (await load_value(note.stored, self._pool.journal.blobs)).read(), Answer
                )
        return None

    async def _keep(self, answer: Answer, rests_on: str) -> None:
        board = self._pool.board.signed(self._author, self._author)
        await board.post(
            answer,
            tags=[AGGREGATED, self._ledger.request],
            segment=Segment.RESULTS,
            importance=IMPORTANCE,
            metadata={"request_id": self._ledger.request, "rests_on": rests_on},
        )


async def _refused(ledger: PoolRun, pool: SharedMemoryPool) -> dict[str, str]:
    """Results that contradict one that stands, since somebody has settled it so; each with why."""
    tags = ("conflict", ConflictKind.CONTRADICTION.value, ledger.request)
    query = NoteQuery(tags=tags, match=Match.ALL, segments=(Segment.CONFLICTS,), limit=EVERYTHING)
    notes = await pool.journal.boards.notes(pool.name, query)
    outputs = await _outputs_of(ledger, pool.journal.blobs) if notes else {}
    refused: dict[str, str] = {}
    for note in sorted(notes, key=lambda each: each.at):  # what was settled last holds
        kept = str(note.metadata.get(KEPT))
        others = [id_ for id_ in note.metadata.get("tasks", ()) if id_ in outputs]
        if kept not in others:
            continue
        for id_ in others:
            refused.pop(id_, None)
            if len(count({"kept": outputs[kept], "other": outputs[id_]}).groups) > 1:
                refused[id_] = str(note.content)
    return refused


async def _outputs_of(ledger: PoolRun, blobs: Blobs) -> dict[str, Any]:
    """What each task that is done has brought forth."""
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


def _gap(ledger: PoolRun, gap: Gap) -> dict[str, str]:
    """Something that is missing, and why."""
    node = ledger.schedule.nodes[gap.task]
    failure = node.last_failure
    why = gap.why or (str(failure) if failure is not None and has_failed(node) else "")
    if not why and node.state is TaskState.READY:
        task = node.task
        who = f"worker {task.worker!r}" if task.worker else f"nobody with the skill {task.skill!r}"
        why = f"{who} has {'not ' if task.worker else ''}taken it yet"
    return {
        "task_id": gap.task,
        "status": "failed" if has_failed(node) else gap.state,
        "why": why or "it is not done yet",
    }
