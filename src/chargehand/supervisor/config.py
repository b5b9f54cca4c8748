"""What a supervisor is made of: frozen values from which its parts are built, here or below another supervisor."""

from collections.abc import Callable

from msgspec import Struct, field
from msgspec.structs import replace

from chargehand.clock import Clock
from chargehand.engines.base import Engine
from chargehand.engines.brief import AttemptHost
from chargehand.engines.local_engine import LocalEngine
from chargehand.engines.text_streams import TextStreams
from chargehand.facts.failure_policy import OnFailure
from chargehand.facts.limits import Limits
from chargehand.facts.retry_policy import RetryPolicy
from chargehand.past_runs import JournalHandle, PastPaces
from chargehand.roles.shared_resources import Resources
from chargehand.roles.system_task_context import SystemTask
from chargehand.runtime import Hooks
from chargehand.supervisor.worker_membership import WorkerPool


class RunDefaults(Struct, frozen=True, kw_only=True):
    """What holds for every run that says nothing else."""

    limits: Limits
    retry: RetryPolicy | None = None
    on_failure: OnFailure | None = None
    #: the worker for a routed request that fits nobody
    default: str = ""
    #: plans in place of a model
    planner: SystemTask | None = None


class SupervisorConfig(Struct, frozen=True, kw_only=True):
    """The parts that a supervisor is handed."""

    workers: WorkerPool
    resources: Resources
    journal: JournalHandle
    clock: Clock
    runs: RunDefaults
    #: makes the engine of a runtime
    engine: Callable[[], Engine] = LocalEngine
    hooks: Hooks = field(default_factory=dict)
    paces: PastPaces = field(default_factory=PastPaces)
    #: shared with the supervisors below
    text_streams: TextStreams = field(default_factory=TextStreams)
    #: it is nested; the supervisor above sends the notices at the end
    is_nested: bool = False

    def below(self, above: Resources, attempt_host: AttemptHost) -> "SupervisorConfig":
        """The same below another supervisor: on its journal and clock, through its gateway."""
        host = attempt_host.nesting
        if host is None:
            journal, clock = self.journal, self.clock
        else:
            is_own = self.journal.path is not None
            journal = self.journal if is_own else JournalHandle(host.journal)
            clock = host.clock
        return replace(
            self,
            resources=self.resources.below(above),
            journal=journal,
            clock=clock,
            text_streams=attempt_host.text_streams or self.text_streams,
            is_nested=True,
        )
