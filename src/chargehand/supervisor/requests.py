"""The request builder: what a caller asks for becomes the first event of a run, or is refused with the reason."""

import logging
import random
import uuid
from collections.abc import Container, Mapping, Sequence
from typing import Any, Protocol, TypedDict, cast, runtime_checkable

from msgspec import Struct

from chargehand.clock import Clock
from chargehand.decisions.run_fork import ForkPlan, with_fork
from chargehand.decisions.schedule import RULES
from chargehand.errors import PlanRefused, UsageError
from chargehand.facts.argument_checks import (
    LONGEST_NAME,
    Duration,
    check_request,
    duration_or_none,
    priority,
    refuse_unknown,
    shown,
    text,
    texts,
)
from chargehand.facts.argument_checks import (
    name as plain_name,
)
from chargehand.facts.events import Approach, BudgetChanged, Event, Pace, RunRequested, RunSteered
from chargehand.facts.failure_policy import ASK, STOP, OnFailure
from chargehand.facts.limits import Limits
from chargehand.facts.on_question import WAITING, Asking, OnQuestion, on_question_of
from chargehand.facts.output_schema import shape_of
from chargehand.facts.plan import Plan, Strategy, Task
from chargehand.facts.value import Value, digest_of
from chargehand.roles.function_worker import FunctionWorker
from chargehand.roles.roster import Roster
from chargehand.roles.shared_resources import Resources
from chargehand.supervisor.config import RunDefaults
from chargehand.terminal_detection import is_interactive

log = logging.getLogger("chargehand")

#: why a run takes no note
NO_MODEL = "its plan was given and it has no model that could change it"


class RunOptions(TypedDict, total=False):
    """Options of one run; all of them are optional."""

    #: larger is more urgent; default 0
    priority: int
    #: from now on, waiting for people included
    deadline: Duration | None
    #: instead of the supervisor's
    limits: Limits | None
    #: asking again with the same key and request gives the same run, whether it has ended or not
    key: str | None
    #: how a request in plain language becomes tasks: stream (default), whole, route or steps
    approach: Approach | str
    #: when routing: the worker for a request that clearly fits no other
    default: str
    #: the type of the answer (a Pydantic model, a dataclass), or a JSON schema that the answer must fit
    output: Any
    #: draft the answer from finished tasks while the last tasks are still running
    drafts: bool
    #: whether a model rewrites tasks that fail because of their description; on by default for requests in plain language
    refine: bool
    #: the run whose answer this request follows up on
    after: str | None
    #: the run whose results are reused where their inputs have not changed
    reuse: str | None
    #: when the budget is used up: stop (default; the answer is composed from the results so far) or ask a person
    on_budget: str
    #: when a person must answer: wait, return, supervisor or fail; see docs/questions.md for the default
    on_question: OnQuestion | str | None
    #: where the crew comes from, so that the run can be resumed by its id alone
    source: dict[str, Any]
    #: whether a person is asked when the request cannot be turned into a plan; otherwise the run fails
    clarify: bool
    #: whether a person approves the plan, and every change to it, before it is carried out; see docs/questions.md
    review: bool
    #: the workers that its plan may name; None: the whole roster
    workers: Sequence[str] | None
    #: the namespace of the run, if several teams share one server: a token sees only runs of its own namespace
    namespace: str


class RunParent(Struct, frozen=True):
    """What a run comes from, beyond the words of its request."""

    #: what the run it goes on from was asked and answered
    earlier: Value = Value()
    #: its id, if that is not free to choose
    run: str = ""
    #: the run whose task it is
    parent: str = ""
    depth: int = 0
    #: untrusted sources that the request itself derives from
    taint: tuple[str, ...] = ()
    #: what it takes over from the run that it is a fork of
    fork: ForkPlan | None = None


@runtime_checkable
class Leads(Protocol):
    """A member of a roster who has others below."""

    def refuse_unpriced(self, resources: Resources) -> None:
        """Raise `UsageError` if somebody below would ask a model whose price nobody knows."""


class RequestBuilder:
    """Knows what can be asked of one supervisor."""

    def __init__(
        self,
        roster: Roster,
        resources: Resources,
        clock: Clock,
        defaults: RunDefaults,
    ) -> None:
        self._roster = roster
        self._on_failure = defaults.on_failure
        policies_of(roster, self._on_failure)  # refuses what names nobody, not with the first run
        self._resources = resources
        self._limits = defaults.limits
        self._clock = clock
        self._has_planner = defaults.planner is not None

    @property
    def crew(self) -> str:
        """The digest of the workers, as a run that was begun with them has it."""
        return self._roster.digest

    def accept(
        self,
        request: str | Plan,
        terms: RunOptions,
        paces: Mapping[str, Pace],
        origin: RunParent = RunParent(),  # noqa: B008 - a value that never changes
    ) -> tuple[RunRequested, Plan | None]:
        """The event that begins the run, and its plan if it came with one. Raises `UsageError` and its kin."""
        limits = terms.get("limits") or self._limits
        workers = tuple(terms.get("workers") or ())
        roster = self._roster.limited_to(workers)
        if limits.money is not None:
            self.refuse_unpriced()
        elif isinstance(request, Plan):
            self.refuse_unpriced_tasks(request)
        deadline = duration_or_none(terms.get("deadline", limits.deadline), "deadline")
        deadline = deadline or limits.deadline
        plan = self._checked(request, limits, roster) if isinstance(request, Plan) else None
        output = terms.get("output")
        shape = None if output is None else shape_of(output)
        approach = self._approach(request, terms)
        now = self._clock.now()
        requested = RunRequested(
            run=origin.run or run_id(terms.get("key"), terms.get("namespace", "")),
            request=request if isinstance(request, str) else (plan or request).goal,
            limits=limits,
            seed=random.SystemRandom().getrandbits(48),
            rules=RULES,
            crew=self._roster.digest,
            members=self._roster.members(self._resources),
            priority=terms.get("priority", 0),
            deadline_at=None if deadline is None else now + deadline,
            parent=origin.parent,
            depth=origin.depth,
            namespace=terms.get("namespace", ""),
            paces=dict(paces),
            approach=approach,
            default=self._default(terms, roster),
            answers=self._composes(plan, shape, approach) or self._answers_as(origin),
            drafts=terms.get("drafts", False),
            refines=self._refines(plan, terms),
            source=terms.get("source", {}),
            asks_budget=_asks_budget(terms),
            clarifies=plan is None and terms.get("clarify", False),
            reviews=terms.get("review", False),
            workers=workers,
            shape=shape,
            after=terms.get("after") or "",
            reuses=terms.get("reuse") or "",
            hedges=plan is not None and any(task.hedge for task in plan.tasks),
            policies=policies_of(roster, self._on_failure, is_limited=bool(workers)),
            earlier=origin.earlier,
            taint=(*origin.taint, *origin.earlier.taint, *(() if plan is None else plan.taint)),
            at=now,
        )
        return requested if origin.fork is None else with_fork(requested, origin.fork), plan

    def _answers_as(self, origin: RunParent) -> bool:
        """Whether a fork has its answer composed because the run that it starts from had."""
        fork = origin.fork
        return fork is not None and fork.requested.answers and self._resources.has_model

    def refuse_unpriced_tasks(self, plan: Plan) -> None:
        """Raise `UsageError` if the cap on money of a task could not be kept."""
        capped = [task for task in plan.tasks if task.limits.money is not None]
        names: set[str] = set()
        for task in capped:
            policies = [each for each in (task.on_failure, self._on_failure) if each is not None]
            names |= {task.worker, *(name for each in policies for name in each.fallbacks)}
            names |= {w.name for w in self._roster if task.skill and task.skill in w.skills}
        if capped:
            self.refuse_unpriced(names)

    def refuse_unpriced(self, only: Container[str] | None = None) -> None:
        """A cap on money means nothing for a model whose price nobody knows, here or below."""
        asking = [worker for worker in self._roster if only is None or worker.name in only]
        choices: dict[str, Any] = {}
        for worker in asking:
            if isinstance(worker, Leads):
                worker.refuse_unpriced(self._resources)
            model = getattr(worker, "model", "")
            if model or (model is None and only is not None):
                choices[f"worker {worker.name!r}"] = model  # None: the supervisor's
        if self._resources.has_model and only is None:
            choices["the supervisor"] = None
        for whose, choice in choices.items():
            model = self._resources.unpriced(choice, whose)
            if model:
                from chargehand.models.prices import unpriced_words

                raise UsageError(unpriced_words(model, whose))

    def refuse_unkept(self, event: Event) -> None:
        """Raise `UsageError` for what is wanted of a run and cannot be had: a cap that could not be kept, a note
        that no model could act on."""
        if isinstance(event, BudgetChanged) and event.money is not None:
            self.refuse_unpriced()
        elif isinstance(event, RunSteered) and not (self._resources.has_model or self._has_planner):
            raise UsageError(f"the run cannot be steered: {NO_MODEL}")

    def checked(self, terms: RunOptions) -> RunOptions:
        """The terms, if each is known and of its kind, as plain values."""
        refuse_unknown(terms, RunOptions.__annotations__, "run")
        given: dict[str, Any] = {**terms}
        for field in ("after", "reuse", "default", "namespace"):
            if given.get(field) is not None:
                given[field] = text(given[field], field, most=LONGEST_NAME)
        if given.get("key") is not None:
            # Without control characters, no key of one namespace is that of another: see `run_id`.
            given["key"] = plain_name(given["key"], "key")
        if "priority" in given:
            given["priority"] = priority(given["priority"], "priority")
        if not isinstance(given.get("limits") or self._limits, Limits):
            raise UsageError(f"limits={shown(given['limits'])} must be a chargehand.Limits")
        for field in ("drafts", "refine", "clarify", "review"):
            if not isinstance(given.get(field, False), bool):
                raise UsageError(f"{field}={shown(given[field])} must be True or False")
        if not isinstance(given.get("source", {}), dict):
            raise UsageError(f"source={shown(given['source'])} must be a dict")
        if given.get("workers") is not None:
            given["workers"] = self._chosen(given["workers"])
        for field in ("source", "output"):
            if isinstance(given.get(field), dict):
                given[field] = Value.of(
                    given[field]
                ).read()  # raises if a journal could not hold it
        return cast("RunOptions", given)

    def _chosen(self, workers: object) -> tuple[str, ...]:
        """The workers that a run is limited to, in the order of the roster."""
        names = texts(workers, "workers")
        have = [worker.name for worker in self._roster]
        for name in names:
            if name not in have:
                raise UsageError(
                    f"workers: {name!r} is not on the roster; there are {', '.join(have)}"
                )
        if not names:
            raise UsageError("workers=[] leaves nobody; name some, or leave it out for the roster")
        if self._has_planner:
            raise UsageError("workers=… is of no use here: this supervisor plans without a model")
        return tuple(name for name in have if name in names)

    def _checked(self, plan: Plan, limits: Limits, roster: Roster) -> Plan:
        plan = plan.stored()
        for task in plan.tasks:
            if task.on_failure is not None:
                refuse_unknown_fallbacks(
                    task.on_failure,
                    roster,
                    f"task {task.id!r}",
                    is_limited=roster is not self._roster,
                )
            if task.hedge:
                self._refuse_unsafe_hedge(task)
        for warning in plan.refuse_faults(roster.names, limits).warnings:
            log.warning("plan_warning %s", warning)
        if any(isinstance(task.for_each, dict) for task in plan.tasks):
            from chargehand.roles.for_each import (
                unlistable_files,
            )  # slow to import, and few need it

            if faults := unlistable_files(plan.tasks, roster):
                raise PlanRefused(faults)
        functions = {each.name for each in self._roster if isinstance(each, FunctionWorker)}
        for task in plan.tasks:
            if task.accept and task.worker in functions:
                log.warning(
                    "plan_warning %s: accept=… is judged by the model of an LLM worker, and %s is a function: "
                    "nothing judges it; check the result in the function",
                    *(task.id, task.worker),
                )
        return plan

    def _refuse_unsafe_hedge(self, task: Task) -> None:
        for worker in self._roster:
            if task.worker != worker.name and task.skill not in worker.skills:
                continue
            # Of a function, whoever wrote the plan has said so; the tools of others say it themselves.
            if not isinstance(worker, FunctionWorker) and not worker.version(self._resources):
                raise UsageError(
                    f"task {task.id!r}: hedge=True is for work that may be done twice, and {worker.name!r} "
                    "leads others, or has tools that are neither pure nor idempotent; drop it"
                )

    def check_words(self, request: str) -> None:
        """Refuse a request in words that no plan could be made of."""
        check_request(request)
        if not self._resources.has_model and not self._has_planner:
            raise UsageError(
                "a request in words needs a planner, and that needs a model: "
                "Supervisor(…, model='openai:gpt-5-mini', 'offline', …), or --model if the crew takes one; or hand over a chargehand.Plan"
            )
        if not list(self._roster):
            raise UsageError("the roster is empty; add workers")

    def _approach(self, request: str | Plan, terms: RunOptions) -> Approach:
        given = terms.get("approach")
        is_reviewed = terms.get("review", False)
        if isinstance(request, Plan):
            if is_reviewed:
                raise UsageError("review=True is for requests in words; you have written this plan")
            if given not in (None, Approach.GIVEN):
                raise UsageError(f"approach={given!r} is for requests in words; this is a plan")
            return Approach.GIVEN
        self.check_words(request)
        choices = [each.value for each in Approach if not each.is_given]
        if given is not None and given not in choices:
            raise UsageError(f"approach={given!r} is none of {', '.join(choices)}")
        if is_reviewed:
            if given not in (None, Approach.WHOLE) or self._has_planner:
                raise UsageError(
                    "review=True needs the whole plan before anything starts: approach='whole', and no planner of your own"
                )
            return Approach.WHOLE
        usual = Approach.STREAM if not self._has_planner else Approach.STEPS
        return Approach(given or usual)

    def _default(self, terms: RunOptions, roster: Roster) -> str:
        default = terms.get("default", "")
        if default and default not in roster.names:
            where = "one of the workers of this run" if terms.get("workers") else "on the roster"
            raise UsageError(f"default={default!r} is not {where}")
        return default

    def _composes(
        self, plan: Plan | None, shape: dict[str, Any] | None, approach: Approach
    ) -> bool:
        """Whether a model is to compose the answer: where somebody asked for more than the results."""
        # The one result is the answer; and whoever plans in place of a model knows where it ends.
        is_asked = approach is not Approach.ROUTE and not self._has_planner
        if plan is not None:
            is_asked = bool(plan.instruction) or plan.strategy is not Strategy.MERGE
        if shape is not None and not self._resources.has_model:
            raise UsageError("an answer of a given type needs a model; Supervisor(…, model=…)")
        return self._resources.has_model and (is_asked or shape is not None)

    def _refines(self, plan: Plan | None, terms: RunOptions) -> bool:
        refine = terms.get("refine")
        if refine and not self._resources.has_model:
            raise UsageError("refine=True needs a model; Supervisor(…, model=…)")
        is_usual = plan is None and not self._has_planner
        return is_usual if refine is None else refine


class QuestionPolicy:
    """What becomes of the questions of runs that say nothing else."""

    def __init__(self, given: OnQuestion | str | None) -> None:
        self._given = given
        if given:
            on_question_of(given)  # refuses what it may not be, not with the first run
        self._is_watched = is_interactive()  # a process does not get a terminal later

    def asking(self, given: OnQuestion | str | None, *, is_kept: bool, is_there: bool) -> Asking:
        """How the questions of a run are treated: as its caller says, else as the supervisor was told."""
        chosen = given or self._given
        return asking_for(
            on_question_of(chosen) if chosen else None,
            is_kept=is_kept,
            is_there=is_there,
            is_watched=self._is_watched,
        )


def asking_for(
    mode: OnQuestion | None, *, is_kept: bool, is_there: bool, is_watched: bool
) -> Asking:
    """How questions are treated: as the caller chose, else by who could bring an answer.

    `is_kept` says whether the run outlives its process, `is_there` whether somebody serves answers,
    `is_watched` whether a person sits at the terminal.
    """
    # Nobody at a terminal can bring a provider back, and what is kept can be resumed when it is.
    waits, returns = OnQuestion.WAIT, OnQuestion.RETURN
    on_outage = waits if is_there else returns if is_kept else OnQuestion.FAIL
    if mode is not None and mode is not OnQuestion.SUPERVISOR:
        why = "on_question='fail'" if mode is OnQuestion.FAIL else ""
        on_outage = mode if mode in (waits, returns) else on_outage
        can_ask = mode is not OnQuestion.FAIL
        return Asking(mode=mode, can_ask=can_ask, why=why, on_outage=on_outage)
    by_model = mode is OnQuestion.SUPERVISOR
    if is_there or (is_kept and is_watched):
        is_usual = is_there and not by_model
        return WAITING if is_usual else Asking(by_model=by_model, on_outage=on_outage)
    why = (
        "nobody can be asked: the journal is in memory. With Supervisor(…, journal='runs.db') the run "
        "returns with its question, to be answered and resumed; on_question='wait' waits for boss.answer(…)"
    )
    return Asking(
        mode=returns if is_kept else OnQuestion.FAIL,
        can_ask=False,
        by_model=by_model,
        is_default=True,
        why="" if is_kept else why,
        on_outage=on_outage,
    )


def _asks_budget(terms: RunOptions) -> bool:
    wish = terms.get("on_budget", STOP)
    if wish not in (STOP, ASK):
        raise UsageError(f"on_budget={wish!r} is neither {STOP!r} nor {ASK!r}")
    return wish == ASK


def policies_of(
    roster: Roster, on_failure: OnFailure | None, *, is_limited: bool = False
) -> dict[str, OnFailure]:
    """What is done when tasks fail, by worker; under the empty name for all who have none of their own."""
    own = {worker.name: getattr(worker, "on_failure", None) for worker in roster}
    policies = {name: policy for name, policy in own.items() if isinstance(policy, OnFailure)}
    for name, policy in policies.items():
        refuse_unknown_fallbacks(policy, roster, f"worker {name!r}", is_limited=is_limited)
    if on_failure is None:
        return policies
    refuse_unknown_fallbacks(on_failure, roster, "the supervisor", is_limited=is_limited)
    return {**policies, "": on_failure}


def refuse_unknown_fallbacks(
    policy: OnFailure, roster: Roster, whose: str, *, is_limited: bool = False
) -> None:
    """Raise `UsageError` if a policy hands tasks to a worker that is not on the roster, or not of the run."""
    names = [worker.name for worker in roster]
    for name in policy.fallbacks:
        if name not in names:
            raise UsageError(
                f"on_failure of {whose}: elsewhere:{name} names no worker; there are {', '.join(names)}"
                f"{' in this run: add it to its workers' if is_limited else ''}"
            )


def request_or_plan(request: str, plan: dict[str, Any] | None) -> str | Plan:
    """What a client of a server wants done: words, or a plan as JSON. Raises `UsageError` unless it is one."""
    if request.strip() and plan:
        raise UsageError("there is a request and a plan; give one of them")
    if not request.strip() and not plan:
        raise UsageError("there is neither a request nor a plan; give one of them")
    return request if plan is None else Plan.from_json(bytes(Value.of(plan).json))


def run_id(key: str | None, namespace: str = "") -> str:
    """A new id, or the one that belongs to a caller's key. Every namespace has its own keys."""
    if key is None:
        return f"r{uuid.uuid4().hex[:15]}"
    own = f"{namespace}\0{key}" if namespace else key
    return f"k{digest_of(own.encode())[:15]}"
