"""The system task behind `@answer`: from the results of a run to the one answer that its caller gets."""

from msgspec import convert, json
from msgspec.structs import replace

from chargehand.decisions.system_tasks import ANSWER, DRAFT
from chargehand.engines.brief import Brief
from chargehand.errors import InternalError, ModelError, WorkerError
from chargehand.facts.answer import Answer
from chargehand.facts.outcome import Done, Outcome, failed_by
from chargehand.facts.plan import Strategy
from chargehand.facts.value import Value
from chargehand.roles.aggregate.answer_prompts import AnswerPrompts
from chargehand.roles.aggregate.answer_stream import AnswerStream
from chargehand.roles.aggregate.answer_writer import Merger
from chargehand.roles.aggregate.best_result import Selector
from chargehand.roles.aggregate.condense_long_results import Reducer
from chargehand.roles.aggregate.context_limit import LimitedModelCaller, clipped, context_of
from chargehand.roles.aggregate.results import TaskResults, gather
from chargehand.roles.data_fences import with_notes, words_of
from chargehand.roles.durable_model_calls import DurableModelCaller
from chargehand.roles.json_reply_check import objection_to
from chargehand.roles.shared_resources import Resources
from chargehand.roles.system_task_context import PlanningContext

#: the request may take this part of the context, and what is told of an earlier run that part
_REQUEST_SHARE, _EARLIER_SHARE = 4, 8


async def compose_answer(brief: Brief, seat: PlanningContext, resources: Resources) -> Outcome:
    """Compose the answer from what is done. Its gaps are left out: they are read from the schedule.

    What cannot be composed is a failure like any other; whoever listened is told to forget it.
    """
    is_draft = brief.task.id != ANSWER
    # A draft is looked at when it is whole.
    voice = AnswerStream((lambda _: None) if is_draft else seat.say)
    try:
        answer = await _compose(brief, seat, resources, voice)
    except (WorkerError, ModelError) as error:
        voice.take_back()
        return failed_by(error)
    except BaseException:
        voice.take_back()
        raise
    voice.settle(answer.text)
    return Done(Value.of(answer, brief.taint))


async def _compose(
    brief: Brief, seat: PlanningContext, resources: Resources, voice: AnswerStream
) -> Answer:
    schedule = seat.live_run.schedule
    requested = schedule.requested
    if requested is None:
        raise InternalError("an answer is being composed in a run that was not requested")
    material = await gather(brief, seat, context_of(resources))
    if not material.outputs:
        raise WorkerError("no task is done: there is nothing to answer from", kind="denied")
    context = context_of(resources)
    # A draft is written while notes may still come, so only the answer itself knows them all.
    notes = seat.live_run.results.notes if brief.task.id == ANSWER else ()
    earlier = (await seat.bring(requested.earlier)).read()
    words = AnswerPrompts(
        request=clipped(with_notes(requested.request, notes), context // _REQUEST_SHARE),
        instruction=schedule.instruction,
        earlier="" if earlier is None else clipped(words_of(earlier), context // _EARLIER_SHARE),
        draft=clipped(await _draft(brief, seat), context // _EARLIER_SHARE),
        missing=material.told_gaps(),
        prompts=resources.prompts,
    )
    caller = LimitedModelCaller(DurableModelCaller(brief, resources))
    reducer, shape = Reducer(brief, caller, words), requested.shape

    async def merged(results: TaskResults) -> Answer:
        merger = Merger(caller, words, reducer, results, voice)
        return await (merger.in_words() if shape is None else merger.in_shape(shape))

    if schedule.strategy is not Strategy.SELECT:
        return await merged(material)
    answer = await Selector(caller, words, material).choose()
    if shape is None or objection_to(json.encode(answer.output).decode(), shape)[1] is None:
        return answer
    chosen = next(candidate.task for candidate in answer.candidates if candidate.is_chosen)
    return replace(await merged(material.only(chosen)), candidates=answer.candidates)


async def _draft(brief: Brief, seat: PlanningContext) -> str:
    """What the answer was before the last results came in."""
    drafts = [
        value for id_, value in seat.live_run.results.outputs.items() if id_.startswith(DRAFT)
    ]
    if not drafts:
        return ""
    value = await seat.bring(drafts[-1])
    brief.distrust(*value.taint)
    return convert(value.read(), Answer).text
