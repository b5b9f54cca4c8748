"""What can go wrong in a trial, how often, and how often it did."""

from collections import Counter
from enum import StrEnum
from random import Random


class FaultKind(StrEnum):
    """One way to break something. The name is what the table of a report shows."""

    CRASH_BEFORE_APPEND = "crash before append"
    CRASH_BETWEEN_APPENDS = "crash between the appends of two runs"
    CRASH_BEFORE_ACTS = "crash after append, before acts"
    CRASH_BETWEEN_ACTS = "crash between two acts"
    CRASH_WHILE_RUNNING = "crash while attempts run"
    STALL = "process stalls past its lease"
    ZOMBIE_APPEND = "append of an old epoch refused"
    RETAKEN = "run taken back while its old attempts still run here"
    DRAIN = "gentle stop of a process"
    JOURNAL_FULL = "journal full for a while"
    CLOCK_FORWARD = "clock set forward at a restart"
    CLOCK_BACK = "clock set back at a restart"

    WORKER_DIED = "worker died, reported"
    WORKER_VANISHED = "worker died, never reported"
    FALSE_ALARM = "living worker reported lost"
    PREEMPTED = "attempt preempted"
    LATE_RESULT = "result comes late"
    DUPLICATE = "message delivered twice"
    DELAYED = "message delayed past others"
    SLOW_WORKER = "slow worker"
    STOP_IGNORED = "stop ignored"
    EFFECT_AFTER_DEATH = "effect lands after its process died"

    FAILS_NETWORK = "fails: network"
    FAILS_TIMEOUT = "fails: timeout"
    FAILS_RESOURCE = "fails: resource"
    FAILS_LOGIC = "fails: logic"
    FAILS_DENIED = "fails: denied"
    FAILS_CANCELLED = "fails: cancelled"
    FAILS_TIME_AND_AGAIN = "fails whoever tries it"
    RETRY_AFTER = "failure asks for a wait"
    STEP_FAILED = "step failed"

    ASKS = "worker asks a person"
    IN_DOUBT = "once step in doubt, person asked"
    ANSWERED_TWICE = "answered twice"
    ANSWERED_BY_DEFAULT = "nobody answers: default or expiry"
    NEVER_ANSWERED = "never answered"

    CANCEL = "run cancelled"
    CANCEL_TWICE = "run cancelled twice"
    CANCEL_AT_COMPLETION = "cancel races completion"
    AMENDMENT = "plan amended"
    BAD_AMENDMENT = "unsound amendment"
    TASK_AFTER_STOP = "task added while stopping"
    RUN_DEADLINE = "run has a deadline"
    TASK_DEADLINE = "task has a deadline"
    SHORT_ACTIVE = "little active time"

    PAUSE = "run paused for a while"
    ANSWER_NOW = "answer demanded early"
    FEW_CALLS = "few calls allowed"
    OVER_BUDGET = "step refused for want of budget"
    PLANNER_GIVES_UP = "planner gives up half way"
    PLAN_NOT_SEALED = "planner ends without sealing its plan"
    NO_OTHER_WAY = "re-planning finds no other way"
    NOT_REWRITTEN = "no better words found"

    POLICY = "failures are dealt with by a policy"
    POLICY_ASKS = "a policy asks a person"
    WAIVED = "run goes on without a task that failed"
    RUN_FAILED = "run is stopped for a task that failed"
    HEDGED = "straggler gets a second attempt"
    HEDGE_WON = "second attempt is done first"
    QUORUM = "several are asked, enough must agree"
    NO_QUORUM = "too few agree"
    ASKED_FOR_MORE = "person asked whether more may be spent"
    BUDGET_CHANGED = "person changes the budget"
    UNCLEAR = "planner asks what is meant"
    PARKED = "attempt parked until a provider can be called"
    STEERED = "person steers the run"
    ELASTIC = "number of places follows the work"
    GREW = "more places"
    SHRANK = "fewer places"
    WORKER_DRAINED = "worker gets nothing for a while"
    WORKER_LEFT = "worker leaves the pool, and comes back"
    WORKER_KILLED = "worker dies with all that it has"
    MAPPED = "task mapped over a list"
    ITEM_LOST = "some items come to nothing"
    TOO_MANY_ITEMS = "more items than allowed"


#: How likely each is at one chance to happen. What stops a whole process is rare, or no run would
#: get anywhere; what befalls a single message can be frequent.
RATES: dict[FaultKind, float] = {
    FaultKind.CRASH_BEFORE_APPEND: 0.02,
    FaultKind.CRASH_BETWEEN_APPENDS: 0.3,
    FaultKind.CRASH_BEFORE_ACTS: 0.02,
    FaultKind.CRASH_BETWEEN_ACTS: 0.15,
    FaultKind.CRASH_WHILE_RUNNING: 0.05,
    FaultKind.STALL: 0.08,
    FaultKind.RETAKEN: 0.8,
    FaultKind.DRAIN: 0.04,
    FaultKind.JOURNAL_FULL: 0.02,
    FaultKind.CLOCK_FORWARD: 0.2,
    FaultKind.CLOCK_BACK: 0.2,
    FaultKind.WORKER_DIED: 0.08,
    FaultKind.WORKER_VANISHED: 0.03,
    FaultKind.FALSE_ALARM: 0.06,
    FaultKind.PREEMPTED: 0.05,
    FaultKind.LATE_RESULT: 0.08,
    FaultKind.DUPLICATE: 0.1,
    FaultKind.DELAYED: 0.1,
    FaultKind.SLOW_WORKER: 0.08,
    FaultKind.STOP_IGNORED: 0.5,
    FaultKind.EFFECT_AFTER_DEATH: 0.5,
    FaultKind.FAILS_NETWORK: 0.06,
    FaultKind.FAILS_TIMEOUT: 0.05,
    FaultKind.FAILS_RESOURCE: 0.05,
    FaultKind.FAILS_LOGIC: 0.12,
    FaultKind.FAILS_DENIED: 0.05,
    FaultKind.FAILS_CANCELLED: 0.03,
    FaultKind.FAILS_TIME_AND_AGAIN: 0.8,
    FaultKind.RETRY_AFTER: 0.3,
    FaultKind.STEP_FAILED: 0.1,
    FaultKind.ASKS: 0.15,
    FaultKind.ANSWERED_TWICE: 0.5,
    FaultKind.ANSWERED_BY_DEFAULT: 0.4,
    FaultKind.NEVER_ANSWERED: 0.2,
    FaultKind.CANCEL: 0.35,
    FaultKind.CANCEL_TWICE: 0.4,
    FaultKind.CANCEL_AT_COMPLETION: 0.02,
    FaultKind.AMENDMENT: 0.6,
    FaultKind.BAD_AMENDMENT: 0.35,
    FaultKind.TASK_AFTER_STOP: 1.0,
    FaultKind.RUN_DEADLINE: 0.25,
    FaultKind.TASK_DEADLINE: 0.12,
    FaultKind.SHORT_ACTIVE: 0.3,
    FaultKind.PAUSE: 0.2,
    FaultKind.ANSWER_NOW: 0.2,
    FaultKind.FEW_CALLS: 0.3,
    FaultKind.PLANNER_GIVES_UP: 0.08,
    FaultKind.PLAN_NOT_SEALED: 0.5,
    FaultKind.NO_OTHER_WAY: 0.5,
    FaultKind.NOT_REWRITTEN: 0.7,
    FaultKind.POLICY: 0.3,
    FaultKind.QUORUM: 0.3,
    FaultKind.BUDGET_CHANGED: 0.3,
    FaultKind.UNCLEAR: 0.3,
    FaultKind.PARKED: 0.06,
    FaultKind.STEERED: 0.3,
    FaultKind.ELASTIC: 0.6,
    FaultKind.WORKER_DRAINED: 0.08,
    FaultKind.WORKER_LEFT: 0.08,
    FaultKind.WORKER_KILLED: 0.2,
}


class Dice:
    """The one source of chance of a trial.

    Each trial switches on its own part of the faults: many faults at once hide each other, and a
    run that is killed all the time never reaches the interesting states.
    """

    def __init__(self, seed: str) -> None:
        self.random = Random(seed)
        #: apart from the rest, so that trials without mapped tasks stay what they were
        self.of_items = Random(f"{seed} items")
        self.maps = self.of_items.random() < 0.5
        self.counts: Counter[FaultKind] = Counter()
        self.is_healed = False
        share = self.random.choice((0.1, 0.4, 0.7, 1.0))
        self._rates = {kind: rate for kind, rate in RATES.items() if self.random.random() < share}

    def hits(self, kind: FaultKind) -> bool:
        """Whether this fault happens now; if so it is counted."""
        rate = self._rates.get(kind)
        if rate is None or self.is_healed or self.random.random() >= rate:
            return False
        self.counts[kind] += 1
        return True

    def note(self, kind: FaultKind) -> None:
        """Count a fault that followed from others."""
        self.counts[kind] += 1

    def between(self, low: int, high: int) -> int:
        """A length of time in microseconds, short ones as likely as long ones."""
        return int(low * (high / low) ** self.random.random())
