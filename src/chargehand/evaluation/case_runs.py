"""Runs the cases of a suite one after another, with recorded replies or with the models themselves."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from chargehand.crews.crew import Crew
from chargehand.crews.default_crew import default_crew
from chargehand.crews.python_references import load, python_crew
from chargehand.crews.toml_crews import toml_crew
from chargehand.decisions.trace import Trace
from chargehand.decisions.trace_types import StepKind
from chargehand.errors import ModelError, PlanRefused, UsageError, WorkerError
from chargehand.evaluation.answer_checks import GivenAnswer, judged, misses_of
from chargehand.evaluation.plan_scores import PlanTask, score
from chargehand.evaluation.recorded_replies import ModelRecording, RecordedModel, ReplySession
from chargehand.evaluation.suite_file import Case, CrewEntry, Suite
from chargehand.facts.events import RunStatus
from chargehand.facts.outcome import ONE_CALL, Question
from chargehand.facts.plan import Task
from chargehand.models.base import Model
from chargehand.models.open_model import open_model
from chargehand.models.prices import price_of
from chargehand.result import RunResult
from chargehand.roles.shared_resources import ModelChoice
from chargehand.supervisor import Supervisor
from chargehand.supervisor_factory import supervisor_of
from chargehand.sync_async_bridge import in_thread

TOOL_STEP = "tool "
#: prefix of models whose replies are in a file
WRITTEN = "written:"
#: the tool by which an LLM worker says that it cannot do a task; not a tool of the crew
_NO_TOOLS = {"cannot"}


class CaseResult(Struct, frozen=True, kw_only=True):
    """The result of one case with one crew and one model. A metric is None if the case does not measure it."""

    case: str
    crew: str
    #: empty: the crew's own model
    model: str
    repeat: int
    #: whether the first draft of the plan was accepted
    accepted_first: bool | None = None
    accepted: bool | None = None
    node_f1: float | None = None
    edge_f1: float | None = None
    routing: bool | None = None
    isolation: bool | None = None
    right: bool | None = None
    calls: int = 0
    #: prompt tokens of all calls; None if the model does not count tokens
    prompt_tokens: int | None = None
    #: in dollars; None if the price of a model is not known
    cost: float | None = 0.0
    #: total time of the model calls when they were recorded
    seconds: float = 0.0
    #: what is wrong with the result, in words
    misses: tuple[str, ...] = ()
    plan: tuple[PlanTask, ...] = ()
    answer: str = ""


class _Outcome(NamedTuple):
    """The outcome of a case before it is measured."""

    #: None if no plan was accepted
    plan: tuple[PlanTask, ...] | None
    #: model calls for the plan
    drafts: int
    #: tools that were called
    tools: tuple[str, ...] = ()
    #: None if the request was only planned
    given: GivenAnswer | None = None
    why: str = ""


async def run_cases(
    suite: Suite, *, refresh: bool = False, progress: Callable[[CaseResult], None] = lambda _: None
) -> list[CaseResult]:
    """Run each case with each crew, model and repeat of the suite.

    With `refresh`, calls the models and replaces the recording at the end. Otherwise, opens no model, and raises
    `NeedsRefresh` if a reply is not recorded.
    """
    recording = ModelRecording(suite.recording, refresh=refresh, note=suite.options.note)
    if recording.is_metered:
        # Importing the price list takes a second, which must not block the event loop of a run.
        await in_thread(price_of, "openai:gpt-5-mini", ONE_CALL)
    results = []
    for crew in suite.crews:
        for model in suite.options.models or ("",):
            for case in suite.cases:
                for repeat in range(suite.options.repeats):
                    session = recording.session(repeat)
                    result = await _CaseRun(suite, crew, model, case, session).result(repeat)
                    results.append(result)
                    progress(result)
    if refresh:
        recording.write(is_whole=suite.is_whole)
    return results


class _CaseRun:
    def __init__(
        self, suite: Suite, crew: CrewEntry, model: str, case: Case, session: ReplySession
    ) -> None:
        self._suite = suite
        self._crew = crew
        self._model = model
        self._case = case
        self._session = session

    async def result(self, repeat: int) -> CaseResult:
        case, session = self._case, self._session
        with TemporaryDirectory(prefix="chargehand-eval-") as folder:
            # In a thread, because a function that makes a crew may block, for example to start an MCP server.
            crew = await in_thread(self._crew_of)
            boss = self._supervisor(crew, Path(folder) / "runs.db")
            async with boss:
                is_plan = self._suite.options.mode == "plan"
                outcome = await (self._planned(boss) if is_plan else self._carried_out(boss))
        session.refuse_missing()
        measured = CaseResult(
            case=case.id,
            crew=self._crew.name,
            model=self._model,
            repeat=repeat,
            calls=session.calls,
            prompt_tokens=session.prompt_tokens or None,
            cost=session.cost,
            seconds=round(session.seconds, 3),
            plan=outcome.plan or (),
            answer="" if outcome.given is None else outcome.given.said,
        )
        measured = _with_plan_scores(measured, case, outcome)
        if outcome.given is None or case.checks is None:
            return measured
        misses = [*misses_of(case.checks, outcome.given)]
        if case.checks.judge:
            misses += await self._judged(case.checks.judge, outcome.given)
        return msgspec.structs.replace(
            measured, right=not misses, misses=(*measured.misses, *misses)
        )

    async def _judged(self, question: str, given: GivenAnswer) -> list[str]:
        judge = self._stand_in(self._suite.options.judge)
        try:
            objection = await judged(judge, question, self._case.request, given)
        except ModelError:
            self._session.refuse_missing()
            raise
        return [objection] if objection else []

    async def _planned(self, boss: Supervisor) -> _Outcome:
        try:
            plan = await boss.plan(self._case.request)
        except (WorkerError, PlanRefused, ModelError) as error:
            return _Outcome(None, self._session.calls, why=str(error))
        return _Outcome(tuple(map(_seen, plan.tasks)), self._session.calls)

    async def _carried_out(self, boss: Supervisor) -> _Outcome:
        case = self._case
        schema = None if case.checks is None else case.checks.schema
        result = await boss.run(
            case.request,
            approach=self._suite.options.approach,
            output=load(case.output, self._suite.folder) if case.output else schema,
            on_question="return" if case.answers else "fail",
            clarify=False,
        )
        while result.questions:
            is_answered = [await self._is_answered(boss, each) for each in result.questions]
            result = await boss.resume(
                result.id, on_question="return" if all(is_answered) else "fail"
            )
        return _outcome_of(result)

    async def _is_answered(self, boss: Supervisor, question: Question) -> bool:
        for text in filter(question.accepts, self._case.answers):
            await boss.answer(question.id, text, by="suite")
            return True
        return False

    def _supervisor(self, crew: Crew | Supervisor, journal: Path) -> Supervisor:
        if isinstance(crew, Supervisor):
            if self._crew.prompts:
                raise UsageError(
                    f"crew {self._crew.name!r} is a finished Supervisor: give it its prompts in {self._crew.file}"
                )
            boss = crew
            boss.keep_in(journal)
        else:
            if self._crew.prompts:
                crew = replace(crew, prompts=self._suite.folder / self._crew.prompts)
            boss = supervisor_of(crew, self._choice(crew))
        boss.replace_models(self._stand_in)
        return boss

    def _crew_of(self) -> Crew | Supervisor:
        folder, file = self._suite.folder, self._crew.file
        files = [folder / each for each in self._case.files]
        if not file:
            return default_crew(files)
        if file.endswith(".toml"):
            return toml_crew(folder / file, files or [folder], stand_in=self._session.model)
        offered = {"model": self._model or None, "files": files}
        crew, taken = python_crew(str(folder / file), offered)
        if self._model and isinstance(crew, Supervisor) and "model" not in taken:
            raise UsageError(
                f"crew {self._crew.name!r} is a finished Supervisor with a model of its own; leave [suite] models out, "
                f"or make {file} a function with a parameter named model"
            )
        return crew

    def _choice(self, crew: Crew) -> ModelChoice:
        if not self._model and crew.model is None:
            raise UsageError(
                f"crew {self._crew.name!r} names no model; give the suite some: [suite] models = […]"
            )
        return self._model or crew.model or ""

    def _stand_in(self, model: str | Model) -> Model:
        if isinstance(model, RecordedModel):
            return model
        if not isinstance(model, str):
            return self._session.model(model.name, lambda: model)
        if model.startswith(WRITTEN):
            place = self._suite.folder / model.removeprefix(WRITTEN)
            return self._session.written(model, partial(open_model, f"{WRITTEN}{place}"))
        is_own = ".py:" in model
        opened = (
            partial(_loaded, model, self._suite.folder) if is_own else partial(open_model, model)
        )
        return self._session.model(model, opened)


def _loaded(reference: str, folder: Path) -> Model:
    found: Any = load(reference, folder)
    return open_model(found)


def _outcome_of(result: RunResult) -> _Outcome:
    trace = result.trace
    plans = [each for each in trace.plans if each.version == 1 or each.how in ("streamed", "step")]
    has_plan = bool(plans) and (plans[0].how != "streamed" or plans[0].sealed_at is not None)
    tasks = [each.task for version in plans for each in version.added]
    drafts = sum(
        step.kind is StepKind.MODEL
        for attempt in trace.attempts
        if attempt.task == "@plan"
        for step in attempt.steps
    )
    is_failed = result.status is RunStatus.FAILED
    return _Outcome(
        plan=tuple(map(_seen, tasks)) if has_plan else None,
        drafts=drafts,
        tools=tuple(_tools_in(trace)),
        given=GivenAnswer(result.answer, is_failed or bool(result.answer.gaps)),
        why="" if has_plan else result.trace.failed.get("@plan", result.reason),
    )


def _tools_in(trace: Trace) -> Sequence[str]:
    """The tools that were called in this run and in its nested runs, each once."""
    called = [
        step.name.removeprefix(TOOL_STEP)
        for attempt in trace.attempts
        for step in attempt.steps
        if step.kind is StepKind.TOOL
    ]
    called += [name for child in trace.children for name in _tools_in(child)]
    return [name for name in dict.fromkeys(called) if name not in _NO_TOOLS]


def _seen(task: Task) -> PlanTask:
    return PlanTask(
        task.id, task.description, task.worker, tuple(need.task for need in task.all_needs)
    )


def _with_plan_scores(result: CaseResult, case: Case, outcome: _Outcome) -> CaseResult:
    """Add the metrics for plan, routing and tools. A request that should be refused needs no plan."""
    plan, misses = outcome.plan, []
    has_no_plan = case.checks is not None and case.checks.refuses and case.plan is None
    found: dict[str, Any] = {}
    if not has_no_plan:
        found["accepted"] = plan is not None
        found["accepted_first"] = plan is not None and outcome.drafts <= 1
        if plan is None:
            misses.append(f"no plan was accepted: {outcome.why}")
        elif outcome.drafts > 1:
            misses.append(f"the plan was accepted at try {outcome.drafts}")
    if case.plan is not None:
        scored = score(plan or (), case.plan) if plan else None
        found["node_f1"] = scored.node_f1 if scored else 0.0
        found["edge_f1"] = scored.edge_f1 if scored else 0.0
    if case.workers is not None:
        used = {task.worker for task in plan or ()}
        found["routing"] = used == set(case.workers)
        if not found["routing"]:
            wanted = ", ".join(sorted(case.workers)) or "no worker"
            got = ", ".join(sorted(used)) or "no worker"
            misses.append(f"the plan uses {got} instead of {wanted}")
    if case.tools is not None and outcome.given is not None:
        others = [name for name in outcome.tools if name not in case.tools]
        found["isolation"] = not others
        misses += [f"the tool {name} was called" for name in others]
    return msgspec.structs.replace(result, **found, misses=tuple(misses))
