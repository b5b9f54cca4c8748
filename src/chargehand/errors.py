"""Every exception chargehand raises, in one tree, branched by who must act.

ChargehandError
├── UsageError                the caller
│   ├── PlanRefused             a plan has faults; all of them are listed
│   ├── NotJSON                 a value that JSON cannot hold
│   ├── NotAwaited              a worker called its brief without `await`
│   ├── UnknownKeyword          an unknown argument; the nearest name is suggested
│   ├── UnknownRun              no run with that id in this journal
│   ├── NotBegun                a run that was submitted and that no supervisor has taken up yet
│   ├── RunEnded                a command to a run that has ended
│   ├── UnknownQuestion         no open question with that id
│   │   └── QuestionTaken         it is already answered
│   ├── EffectsWouldRepeat      a fork or retry that would repeat steps with effects outside
│   ├── KeyConflict             one idempotency key, two different bodies
│   ├── ImportedKey             an idempotency key whose run was imported from a recording
│   ├── RecordingTooLarge       a recording that would unpack to more than is allowed
│   ├── RunDiffers              a run with that id is there, with other events
│   ├── PlanChanged             the plan was changed since it was read
│   ├── ServerRefused           a server has refused a request of its client
│   ├── BlockChanged            the block was written since it was read
│   ├── BlockDenied             a block that this role may not read or write
│   ├── TaskTaken               another worker has this task of a pool, or has done it
│   ├── RosterMismatch          a run needs workers that this supervisor lacks or that changed
│   ├── NeedsRefresh            an evaluation lacks a recorded model reply
│   ├── WrongLoop               one supervisor used from two event loops at once
│   └── ForkedCopy              used in a copy of its process, which os.fork made
├── WorkerError               a worker, which classifies its own failure
│   ├── StepMismatch            a replayed step differs from what was recorded
│   ├── TooManyTurns            the model calls of a task are used up
│   └── UnclearRequest          the request could not be planned; rephrase it
├── ModelError                the model or its provider
│   ├── ModelUnreachable        no connection, or the provider is broken
│   ├── ModelTooSlow            no answer, or an incomplete one, for too long
│   ├── ModelBusy               rate limited; back-pressure, not a failure of the task
│   ├── ModelExhausted          quota or credit is used up
│   ├── ModelDenied             no key, or a wrong one
│   │   └── ModelForbidden        a key that may not use this model
│   ├── ModelRefused            the provider rejects the request
│   │   └── ModelUnknown          it has no such model
│   ├── ModelGarbled            the answer cannot be read
│   ├── InvalidModelReply       a model of one's own returned something else than a reply
│   └── RealModelForbidden      a test was about to call a real model
├── ToolError                 a tool; the model gets the message
├── JournalError              the operator
│   ├── JournalDamaged          bytes were changed or lost
│   ├── JournalVersion          written by another version of chargehand
│   ├── JournalBusy             locked by another program for too long
│   ├── JournalFull             its disk is full
│   ├── JournalReadOnly         may be read but not written
│   ├── JournalUnfit            a location or SQLite build that cannot guarantee durability
│   ├── JournalFailed           the disk reported an error; nothing more is acknowledged
│   └── NotLeading              another process leads this run, or ours has lost its lease
├── ServerUnreachable         the operator; no server answers at that address
├── NoticeNotSent             the operator; a notice was not sent, and the run continues
├── OutOfThreads              the operator; the system starts no more threads for this process
├── RunInterrupted            the person at the keyboard; the run can be resumed
└── InternalError             us; please report it
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct


class ChargehandError(Exception):
    """The root of all errors that chargehand raises."""


class UsageError(ChargehandError):
    """The caller asked for something that cannot be done as asked."""


class Fault(Struct, frozen=True):
    """One thing that is wrong with a plan, and the task it is in."""

    #: see `facts.plan.FAULTS` for all of them
    kind: str
    #: empty when the fault is of the plan as a whole
    task: str
    message: str

    def __str__(self) -> str:
        most = 200  # an id that is too long is a fault itself, and is not told in full
        task = self.task if len(self.task) <= most else f"{self.task[:most]}…"
        return f"task {task!r}: {self.message}" if task else self.message


class PlanRefused(UsageError):
    """A plan has faults, so no task was started; or a change to a plan has faults, so nothing was changed."""

    def __init__(self, faults: Sequence[Fault], kept: str = "nothing was started") -> None:
        self.faults = tuple(faults)
        lines = "".join(f"\n  - {fault}" for fault in self.faults)
        count = "1 fault" if len(self.faults) == 1 else f"{len(self.faults)} faults"
        super().__init__(f"the plan has {count}; {kept}:{lines}")


class NotJSON(UsageError):
    """A value cannot be stored, because JSON cannot hold it."""

    def __init__(self, words: str, *, is_final: bool = False) -> None:
        #: nothing of its type can be stored, so that trying again is pointless
        self.is_final = is_final
        super().__init__(words)


class NotAwaited(UsageError, AttributeError):
    """A worker called its brief without `await`, so the call was never made."""

    is_final = True  # it would do the same again, and what it did meanwhile a second time

    def __init__(self, calls: Sequence[str], *, is_plain: bool = False) -> None:
        self.calls = tuple(calls)
        was = "was" if len(self.calls) == 1 else "were"
        call = f"{self.calls[0].partition('(')[0]}(…)"
        way = f"write `await {call}`"
        if is_plain:
            way = f"make the worker `async def` and {way}, or write `brief.wait({call})`"
        super().__init__(f"{', '.join(self.calls)} {was} not awaited, and so never made; {way}")


class UnknownKeyword(UsageError, TypeError):
    """An argument has an unknown name."""

    def __init__(self, what: str, keyword: str, known: Sequence[str], nearest: str = "") -> None:
        self.keyword = keyword
        self.nearest = nearest
        hint = f"did you mean {nearest!r}?" if nearest else f"it takes {', '.join(known)}"
        super().__init__(f"{what} takes no {keyword!r}; {hint}")


class UnknownRun(UsageError):
    """The journal holds no run with this id."""

    def __init__(self, run: str, why: str = "check the id, or the journal's path") -> None:
        self.run = run
        super().__init__(f"run {run!r} is not in this journal; {why}")


class RunEnded(UsageError):
    """A command would change a run that has ended."""

    def __init__(self, run: str, status: str) -> None:
        self.run = run
        #: succeeded, partial, failed or cancelled
        self.status = status
        super().__init__(
            f"run {run} has ended: {status}; a fork or a retry does its tasks again, in a new run"
        )


class NotBegun(UsageError):
    """A run was submitted but has not started, so there is nothing to read yet."""

    def __init__(self, run: str) -> None:
        self.run = run
        super().__init__(
            f"run {run!r} was submitted and has no events yet, because no server has started it; "
            "to see which crew it needs: chargehand status; to start a server: chargehand serve"
        )


class UnknownQuestion(UsageError):
    """No question with this id is open."""

    def __init__(self, question: str, why: str = "") -> None:
        self.question = question
        if not why and question.count(":") < 2:
            why = "the id of a question is RUN:TASK:NAME; chargehand status and chargehand show list the open questions"
        why = why or "it is already answered, its run has ended, or the id is mistyped"
        super().__init__(f"question {question!r} is not open: {why}")


class QuestionTaken(UnknownQuestion):
    """The question is already answered. The first answer counts."""

    def __init__(self, question: str, by: str, text: str) -> None:
        self.question, self.by, self.text = question, by, text
        UsageError.__init__(
            self,
            f"question {question!r} was already answered by {by or 'another person'}: {text[:200]!r}; "
            "the first answer counts",
        )


class EffectsWouldRepeat(UsageError):
    """A fork or retry would repeat steps that changed something outside."""

    def __init__(self, run: str, effects: Mapping[str, Sequence[str]]) -> None:
        self.run, self.effects = run, dict(effects)
        steps = "; ".join(f"{task}: {', '.join(names)}" for task, names in effects.items())
        super().__init__(
            f"a fork of run {run} would repeat steps that changed something outside ({steps}); "
            'to allow this, pass repeat_effects=True (in HTTP, "repeat_effects": true; on the command line, --repeat-effects)'
        )


class KeyConflict(UsageError):
    """An idempotency key was used before, for something else."""

    def __init__(self, key: str, run: str = "", differs: str = "another body") -> None:
        self.key = key
        #: the run that the key belongs to; empty if it belongs to none
        self.run = run
        #: in words, what the key was used for then and now
        self.differs = differs
        whose = f" for run {run}" if run else ""
        super().__init__(
            f"key {key!r} was used before{whose} with {differs}; use a new key, or send the same again"
        )


class ImportedKey(UsageError):
    """The run of this idempotency key was imported from a recording, which anybody could have written."""

    def __init__(self, key: str, run: str) -> None:
        self.key = key
        self.run = run
        super().__init__(
            f"key {key!r} belongs to run {run!r}, which was imported from a recording; recordings are not signed, "
            f"so it does not answer for the key: use another key, or read the run with chargehand show {run}"
        )


class RecordingTooLarge(UsageError):
    """A recording would unpack to more bytes than are allowed; it was not read."""

    def __init__(self, path: str, size: int, most: int) -> None:
        self.size = size
        self.most = most
        super().__init__(
            f"{path} would unpack to {size:,} bytes, and {most:,} are allowed; it was not read. If you trust it, "
            "pass --max-size 2GB (in Python, max_size=…)"
        )


class RunDiffers(UsageError):
    """A run cannot be copied: the target has a run with the same id but different events."""

    def __init__(self, run: str, place: str, fact: str) -> None:
        self.run = run
        super().__init__(
            f"run {run!r} is already in {place}, with other events ({fact}), so it was not copied; "
            "compare them with chargehand diff, or copy to another journal"
        )


class PlanChanged(UsageError):
    """The plan of a run was changed since it was read, so this change was not made."""

    def __init__(self, run: str, version: int, *, is_on_its_way: bool = False) -> None:
        self.run = run
        #: the one that it has now
        self.version = version
        fact = f"the plan of run {run} is at version {version} by now"
        if is_on_its_way:
            fact = (
                f"another change of version {version} of the plan of run {run} is on its way to the "
                "process that leads the run"
            )
        super().__init__(f"{fact}; read it again and repeat the change")


class ServerRefused(UsageError):
    """A server has refused a request of its client."""

    def __init__(self, message: str, *, status: int = 0, kind: str = "") -> None:
        #: of HTTP
        self.status = status
        #: the name of the error, as the server has it
        self.kind = kind
        super().__init__(message)


class BlockChanged(UsageError):
    """The block has changed since the writer read it; nothing was written."""

    def __init__(self, label: str, expected: int, version: int) -> None:
        self.label = label
        self.expected = expected
        self.version = version
        super().__init__(
            f"block {label!r} is at version {version} and no longer at {expected}; read it again, or "
            "let board.update do so"
        )


class BlockDenied(UsageError, PermissionError):
    """This role may not read or write the block."""

    def __init__(self, label: str, why: str) -> None:
        self.label = label
        super().__init__(f"block {label!r} is not open to you: {why}; ask one of them to do it")


class TaskTaken(UsageError):
    """Another worker has this task of a pool, or has already done it."""

    def __init__(self, task: str, holder: str, since_at: datetime | None, *, is_done: bool) -> None:
        self.task = task
        self.holder = holder
        self.since_at = since_at
        self.is_done = is_done
        since = "" if since_at is None else f" since {since_at:%Y-%m-%d %H:%M:%S} UTC"
        fact = f"was done by {holder}" if is_done else f"is being done by {holder}{since}"
        way_out = "its result is in the pool" if is_done else "take another, or wait for its result"
        super().__init__(f"task {task!r} {fact}; {way_out}")


class RosterMismatch(UsageError):
    """A run cannot continue with these workers."""


class NeedsRefresh(UsageError):
    """An evaluation needs a model reply that is not recorded; refreshing asks the models."""


class WrongLoop(UsageError):
    """A supervisor that works in one event loop was used from another, or its loop was closed while it worked."""


class ForkedCopy(UsageError):
    """Something of a run was used in a copy of its process, which `os.fork` made.

    Only the process itself leads runs. A copy that returns from a worker ends at once, with this message.
    """

    def __init__(self, process: int) -> None:
        self.process = process
        super().__init__(
            f"this is a copy of process {process}, made with os.fork; only process {process} goes on with its "
            "runs and tasks. Let the copy call os._exit() before its code returns, or use subprocess or "
            "multiprocessing; for runs in the copy, make a new Supervisor there"
        )


class WorkerError(ChargehandError):
    """Raised by a worker to classify its own failure.

    `raise WorkerError("quota used up", kind="resource", retry_after=60)`
    """

    #: as for a `ModelError`, where a worker asks models by other means; None: nobody knows
    may_be_paid: bool | None = None
    #: whether the calls that led to it are counted by other means
    is_counted = False
    #: whether the same worker would fail again, so that it is not tried again
    is_final = False

    def __init__(
        self,
        message: str,
        *,
        kind: str = "logic",
        retry_after: timedelta | float | None = None,
    ) -> None:
        self.kind = kind
        self.retry_after = retry_after
        super().__init__(message)


class StepMismatch(WorkerError):
    """A resumed worker asked for a different step than the recorded one."""


class TooManyTurns(WorkerError):
    """A task has used up its model calls (`Limits(turns=…)`) without a result."""

    is_final = True  # the calls are counted over all tries, so the next one could make none


class UnclearRequest(WorkerError):
    """The request could not be turned into a plan; rephrasing it may help."""


class ModelError(ChargehandError):
    """A model or its provider failed; `kind` is the error class."""

    kind = "network"
    #: whether the same request would be refused again, so that no further try is made
    is_final = False
    #: whether the provider may have carried the call out, and charge for it
    may_be_paid = False
    #: models of the chain that were not asked, because the budget was reserved for one call, which may be paid for
    untried = 0

    def __init__(
        self, message: str, *, retry_after: timedelta | float | None = None, status: int = 0
    ) -> None:
        self.retry_after = retry_after
        #: of the HTTP answer; 0: there was none
        self.status = status
        super().__init__(message)


class ModelUnreachable(ModelError):
    """No connection to the provider, or a server error (5xx)."""


class ModelTooSlow(ModelError):
    """The provider did not answer, or stopped in the middle of its answer, for too long."""

    kind = "timeout"
    may_be_paid = True


class ModelBusy(ModelError):
    """The provider asks to slow down (429, overloaded)."""

    kind = "resource"


class ModelExhausted(ModelError):
    """The quota or credit of the account is used up. Waiting does not help."""

    kind = "resource"
    is_final = True


class ModelDenied(ModelError):
    """No key, a wrong key (401), or no access to this model (403)."""

    kind = "denied"
    #: whether the key is of no use at all, so that nobody else need try it
    is_of_key = True


class ModelForbidden(ModelDenied):
    """The key is valid but has no access to this model, or not for this purpose (403)."""

    is_of_key = False


class ModelRefused(ModelError):
    """The provider rejects the request: unknown model, too long, malformed (4xx)."""

    kind = "logic"
    is_final = True


class ModelUnknown(ModelRefused):
    """The provider does not have this model, or no longer has it; or the base URL is wrong (404)."""


class ModelGarbled(ModelError):
    """The reply cannot be read: cut off, malformed, or not as the protocol says."""

    may_be_paid = True


class InvalidModelReply(ModelError):
    """A `Model` of your own returned something that is not a reply. Its code has to be corrected."""

    kind = "logic"
    is_final = True
    may_be_paid = True

    def __init__(self, model: str, method: str, fact: str) -> None:
        self.model = model
        #: ask or stream
        self.method = method
        super().__init__(
            f"{method} of model {model} {fact}; see chargehand.models.base.Model for what it must return"
        )


class RealModelForbidden(ModelError):
    """A test was about to call a real model."""

    kind = "denied"


class ToolError(ChargehandError):
    """A tool failed; the model that called it gets this message."""

    kind = "logic"

    def __init__(
        self, message: str, *, kind: str = "logic", retry_after: timedelta | float | None = None
    ) -> None:
        self.kind = kind
        self.retry_after = retry_after
        super().__init__(message)


class JournalError(ChargehandError):
    """The journal cannot store or read events; the operator has to act."""


class JournalDamaged(JournalError):
    """Bytes of the journal were changed or lost after they had been acknowledged."""


class JournalVersion(JournalError):
    """The journal was written by a version of chargehand that this one cannot read."""


class JournalBusy(JournalError):
    """Another program holds the journal's lock, or this one is short of files, threads or memory: try again."""


class JournalFull(JournalError):
    """The disk of the journal, or of its blobs, is full, or a limit on the size of files is reached."""


class JournalReadOnly(JournalError):
    """The journal can be read but not written."""


class JournalUnfit(JournalError):
    """This location, or this SQLite build, cannot guarantee durability."""


class JournalFailed(JournalError):
    """The disk reported an error. Nothing is acknowledged until the journal is opened again."""


class NotLeading(JournalError):
    """Another process leads the run, or this one has lost its lease."""


class ServerUnreachable(ChargehandError):
    """No server answers at that address."""


class NoticeNotSent(ChargehandError):
    """A notice could not be sent. It is logged; the run continues."""


class OutOfThreads(ChargehandError, RuntimeError):
    """The system starts no more threads for this process."""

    def __init__(
        self,
        words: str = "this process cannot start another thread: its memory (ulimit -v), or the processes and "
        "threads of its user or container (ulimit -u, pids.max), are used up; end processes or raise "
        "the limit, then try again",
    ) -> None:
        super().__init__(words)


def is_thread_shortage(error: BaseException) -> bool:
    """Whether the system has given no thread; Python has no type for it."""
    words = str(error) if type(error) is RuntimeError else ""
    return isinstance(error, OutOfThreads) or words.startswith("can't start new thread")


class RunInterrupted(ChargehandError):
    """The run was stopped gently; all finished work is kept."""

    def __init__(self, run: str, how: str) -> None:
        self.run = run
        super().__init__(f"run {run} was interrupted; {how}")


class InternalError(ChargehandError):
    """A bug in chargehand. Please report it with the trace of the run."""
