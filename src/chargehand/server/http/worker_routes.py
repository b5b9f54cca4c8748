"""Routes for workers: what each worker does in which process, and the load of model providers."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import APIRouter
from msgspec import Struct, field
from starlette.responses import Response

from chargehand.decisions.dispatch import WorkerLoad
from chargehand.decisions.task_graph import TaskState
from chargehand.decisions.trace_types import AttemptSpan
from chargehand.errors import UsageError
from chargehand.journal.base import BEATS, Process
from chargehand.models.provider_queue import ProviderLoad
from chargehand.roles.roster import Member
from chargehand.server.http.api_context import ApiContext, Caller, CrewAdmin
from chargehand.server.http.error_bodies import Refusal, json_response
from chargehand.server.http.login_crew_token_routes import model_of
from chargehand.server.http.openapi_schemas import returns
from chargehand.server.http.run_cache import RunRecord
from chargehand.supervisor import Supervisor
from chargehand.supervisor.crew_offers import CrewOffer, offer_of

#: missed heartbeats after which a process counts as late, or as lost
LATE, LOST = 2, 5
#: period of the figures of a worker
WINDOW = timedelta(minutes=10)
#: seconds for which a lost process that leads nothing is still shown
SHOWN_LOST = 3600.0
#: most recent attempts of a worker that are returned
MOST_RECENT = 200


class WorkerView(Struct, frozen=True, kw_only=True):
    """A worker in one process, and what it does now."""

    name: str
    #: its process
    node: str
    here: bool
    #: idle, busy, draining, resting (its circuit breaker is open), late or lost (its process); null if not known
    state: str | None
    model: str
    #: number of slots; null if not known here
    capacity: int | None
    active: int | None
    #: running attempts: run, task and attempt
    busy: list[Any]
    task: str
    run: str
    #: attempts in unfinished runs and in runs that ended in the last ten minutes
    done: int
    failed: int
    tokens: int
    #: tokens of model calls that ended in the last minute
    tokens_per_minute: float
    #: model calls of the last ten minutes that waited for their provider, and the seconds of these waits
    rate_waits: int
    rate_wait_seconds: float
    #: number of ready tasks that wait for this worker
    queue: int
    #: seconds since its process last renewed its lease; null if not known
    heartbeat_age: float | None
    #: attempts of the last ten minutes: began_at, ended_at, outcome
    recent: list[Any]


class ServerView(Struct, frozen=True, kw_only=True):
    """A process that serves the journal, or leads a run of it."""

    node: str
    #: null if no longer known
    pid: int | None
    host: str | None
    #: since when it serves; null if it does not serve or this is not known
    since: datetime | None
    #: alive, late (two missed heartbeats) or lost (five missed heartbeats, or known to be dead)
    state: str
    heartbeat_age: float | None
    workers: list[str]
    leads: list[str]
    here: bool


class WorkersView(Struct, frozen=True):
    """Workers by process, the processes, and the model providers that this process calls."""

    workers: list[WorkerView]
    servers: list[ServerView]
    providers: list[ProviderLoad]


class WorkerName(Struct, frozen=True):
    """The worker that was changed."""

    name: str


class WorkFigures(Struct):
    """The work of one worker in the runs that one process leads."""

    busy: list[dict[str, Any]] = field(default_factory=list)
    done: int = 0
    failed: int = 0
    tokens: int = 0
    tokens_per_minute: float = 0.0
    rate_waits: int = 0
    rate_wait_seconds: float = 0.0
    queue: int = 0
    recent: list[dict[str, Any]] = field(default_factory=list)


def worker_routes(api: ApiContext) -> APIRouter:
    """Create the routes for a server."""
    router = APIRouter(prefix="/workers", tags=["server"])

    @router.get("", **returns(WorkersView))
    async def workers(grant: Caller) -> Response:
        """What each worker does now, which processes serve the journal, and what waits at providers."""
        return json_response(await _workers_view(api, grant.namespace))

    @router.post("/{name}/drain", **returns(WorkerName, 202))
    async def drain(name: str, grant: CrewAdmin) -> Response:  # noqa: ARG001 - the route needs a token
        """Give a worker of this server nothing new; it finishes what it has."""
        _known(api.boss, name)
        await api.boss.drain(name)
        return json_response(WorkerName(name), 202)

    @router.post("/{name}/join", **returns(WorkerName, 202))
    async def join(name: str, grant: CrewAdmin) -> Response:  # noqa: ARG001 - the route needs a token
        """Give a worker that was drained work again."""
        worker = _known(api.boss, name)
        try:
            await api.boss.join(worker)
        except UsageError:
            raise UsageError(f"worker {name!r} is on the roster already") from None
        return json_response(WorkerName(name), 202)

    return router


def _known(boss: Supervisor, name: str) -> Member:
    worker = boss.roster.get(name)
    if worker is None:
        raise Refusal(404, "UnknownWorker", f"there is no worker {name[:100]!r}")
    return worker


async def _workers_view(api: ApiContext, namespace: str) -> WorkersView:
    now = datetime.now(UTC)
    records = await api.runs.recent_runs(namespace, now - WINDOW)
    work = figures_of(records, now)
    here = api.boss.journal.leases.node
    servers: list[ServerView] = []
    workers: list[WorkerView] = []
    for process in await api.boss.journal.processes.known():
        offer = offer_of(process)
        server = _server_view(process, offer, _led_by(process.node, records), here)
        is_old = server.heartbeat_age is None or server.heartbeat_age > SHOWN_LOST
        is_idle = not server.leads and (offer is None or (server.state == "lost" and is_old))
        if is_idle and not server.here:
            continue
        servers.append(server)
        own = {name: each for (node, name), each in work.items() if node == process.node}
        workers += _here(api.boss, server, own) if server.here else _there(server, offer, own)
    known = {server.node for server in servers}
    gone = dict.fromkeys(each.node for each in records if each.ended_at is None and each.node)
    servers += [_lost_view(node, _led_by(node, records)) for node in gone if node not in known]
    ordered = sorted(servers, key=lambda each: (not each.here, each.since or now))
    return WorkersView(
        sorted(workers, key=lambda each: not each.here), ordered, api.boss.provider_loads()
    )


def _led_by(node: str, records: Iterable[RunRecord]) -> list[str]:
    return [each.run for each in records if each.node == node and each.ended_at is None]


def liveness(process: Process, beat: float | None) -> tuple[str, float | None]:
    """Whether a process is alive, late or lost, and the seconds since its last heartbeat, if known."""
    left = process.lease_left
    if left is None or beat is None:
        return "alive" if process.is_alive else "lost", None
    age = max(BEATS * beat - left, 0.0)
    if process.is_dead or age >= LOST * beat:
        return "lost", age
    return "late" if age >= LATE * beat else "alive", age


def figures_of(
    records: Iterable[RunRecord], now: datetime
) -> Mapping[tuple[str, str], WorkFigures]:
    """The work of workers, by the node that leads the run and the name of the worker."""
    found: dict[tuple[str, str], WorkFigures] = {}
    for record in records:
        if not record.node:
            continue  # no process leads it
        for span in record.spans.attempts:
            own = found.setdefault((record.node, span.worker), WorkFigures())
            _add_attempt(own, record, span, now)
        if record.ended_at is None:
            for node in record.live_run.schedule.nodes.values():
                if node.state is TaskState.READY and node.task.worker:
                    found.setdefault((record.node, node.task.worker), WorkFigures()).queue += 1
    return found


def _add_attempt(own: WorkFigures, record: RunRecord, span: AttemptSpan, now: datetime) -> None:
    own.done += span.ending == "done"
    own.failed += span.ending in ("failed", "lost")
    own.tokens += span.usage.tokens_in + span.usage.tokens_out
    if span.ended_at is None and record.ended_at is None:
        own.busy.append({"run": record.run, "task": span.task, "attempt": span.attempt})
    if span.ended_at is not None and span.ended_at < now - WINDOW:
        return
    began, ended, how = span.began_at, span.ended_at, span.ending
    own.recent.append({"began_at": began, "ended_at": ended, "outcome": how})
    del own.recent[:-MOST_RECENT]
    for step in span.steps:
        if step.ended_at is None or step.ended_at < now - WINDOW:
            continue
        if step.waited > 0:
            own.rate_waits += 1
            own.rate_wait_seconds += step.waited
        if step.ended_at >= now - timedelta(minutes=1):
            own.tokens_per_minute += step.usage.tokens_in + step.usage.tokens_out


def _here(
    boss: Supervisor, server: ServerView, work: Mapping[str, WorkFigures]
) -> Iterable[WorkerView]:
    for load in boss.worker_loads():
        member = boss.roster.get(load.name)
        own = work.get(load.name) or WorkFigures()
        held = set(load.held)
        # An attempt may have ended although its end is not in the journal yet.
        busy = [each for each in own.busy if (each["run"], each["task"], each["attempt"]) in held]
        yield _worker_view(
            server,
            own,
            name=load.name,
            state=_state_of(load) if server.state == "alive" else server.state,
            model="" if member is None else model_of(member),
            capacity=load.capacity,
            active=load.active,
            busy=busy,
        )


def _there(
    server: ServerView, offer: CrewOffer | None, work: Mapping[str, WorkFigures]
) -> Iterable[WorkerView]:
    """The workers of another process, as far as the journal shows them."""
    members = {} if offer is None else offer.members
    seen = [name for name, own in work.items() if own.busy or own.queue]
    for name in dict.fromkeys([*members, *seen]):
        own = work.get(name) or WorkFigures()
        # Only the other process knows whether the worker is idle or draining.
        state = "busy" if own.busy else None
        yield _worker_view(
            server,
            own,
            name=name,
            state=state if server.state == "alive" else server.state,
            model=members.get(name, {}).get("model", ""),
            capacity=None,
            active=None,
            busy=own.busy,
        )


def _worker_view(
    server: ServerView, own: WorkFigures, *, busy: list[dict[str, Any]], **facts: Any
) -> WorkerView:
    return WorkerView(
        node=server.node,
        here=server.here,
        busy=busy,
        task=busy[0]["task"] if busy else "",
        run=busy[0]["run"] if busy else "",
        done=own.done,
        failed=own.failed,
        tokens=own.tokens,
        tokens_per_minute=own.tokens_per_minute,
        rate_waits=own.rate_waits,
        rate_wait_seconds=own.rate_wait_seconds,
        queue=own.queue,
        heartbeat_age=server.heartbeat_age,
        recent=own.recent,
        **facts,
    )


def _state_of(load: WorkerLoad) -> str:
    if load.is_draining:
        return "draining"
    if load.is_resting:
        return "resting"
    return "busy" if load.active else "idle"


def _server_view(
    process: Process, offer: CrewOffer | None, leads: list[str], here: str
) -> ServerView:
    state, age = liveness(process, None if offer is None else offer.beat)
    return ServerView(
        node=process.node,
        pid=process.pid,
        host=process.host,
        since=None if offer is None else offer.since,
        state=state,
        heartbeat_age=age,
        workers=[] if offer is None else list(offer.members or offer.names),
        leads=leads,
        here=process.node == here,
    )


def _lost_view(node: str, leads: list[str]) -> ServerView:
    """A process that has ended and is no longer known, but whose run was not taken over."""
    return ServerView(
        node=node,
        pid=None,
        host=None,
        since=None,
        state="lost",
        heartbeat_age=None,
        workers=[],
        leads=leads,
        here=False,
    )
