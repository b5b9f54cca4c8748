"""Watches a trial and keeps what broke."""

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

from msgspec.json import encode as json_of

from chargehand.decisions.live_run import LiveRun
from chargehand.decisions.task_graph import TaskNode
from chargehand.facts.events import Effect, encode
from tests.simulation.attempt import Attempt
from tests.simulation.invariants import AFTER_APPEND, BY_KIND, EVERY_ENTRY
from tests.simulation.ledger import Entry, Stream
from tests.simulation.report import Breach
from tests.simulation.scenario import StepScript
from tests.simulation.sight import AFTER_ROUND, Sight
from tests.simulation.story import RunStory

#: entries that a breach is reported with
TOLD = 25

T = TypeVar("T")
P = ParamSpec("P")


class Broken(Exception):
    """Ends a trial: what follows a breach is not worth looking at."""


class Observer:
    """Reads only what is journaled and what really happened; judges by the rules in `invariants`."""

    def __init__(self) -> None:
        self.stories: dict[str, RunStory] = {}
        self.step = 0
        self.events = 0
        self.breaches: list[Breach] = []
        self._trace = hashlib.blake2b(digest_size=16)
        self._last: deque[Entry | str] = deque(maxlen=TOLD)
        self._touched: dict[str, int] = {}

    @property
    def digest(self) -> str:
        return self._trace.hexdigest()

    def note(self, what: str) -> None:
        """Put something that is not journaled into the trace."""
        self._trace.update(what.encode())
        self._last.append(what)

    def saw(self, run: str, entries: Sequence[Entry]) -> None:
        """Judge what was appended, entry by entry, then as a whole."""
        story = self.stories.setdefault(run, RunStory(run))
        for entry in entries:
            self._trace.update(entry.hash)
            self._last.append(entry)
            self.events += 1
            for rule in EVERY_ENTRY:
                self._judge(rule.__name__, rule(story, entry))
            for rule in BY_KIND.get(type(entry.event), ()):
                self._judge(rule.__name__, rule(story, entry))
            story.take(entry)
        if entries:
            story.note_group(entries[-1].event.at)
            for check in AFTER_APPEND:
                self._judge(check.__name__, check(story))

    def saw_effect(self, attempt: Attempt, step: StepScript, *, is_late: bool = False) -> None:
        """Judge something that was just done to the outside world, or was sent there long ago."""
        self.note(f"{attempt.id} touches the world by {step.name} {step.ordinal}, {step.effect}")
        count = self._touched[step.key] = self._touched.get(step.key, 0) + 1
        record = self.stories[attempt.run].steps.get(step.key)
        if step.effect in (Effect.ONCE, Effect.KEYED):
            is_intended = record is not None and attempt.number in record.attempts
            self._judge("i12_no_effect_without_intent", "" if is_intended else str(attempt.id))
        if record is None:
            return
        if step.effect is Effect.ONCE and count > 1 + record.permissions:
            self._judge(
                "i14_once_means_once", f"{attempt.id} did {step.name} for the {count}. time"
            )
        holder = self.stories[attempt.run].find(attempt.task).open
        is_holder = holder is not None and holder.number == attempt.number
        if record.is_done and is_holder and not is_late:
            complaint = f"{attempt.id} did {step.name} {step.ordinal} again, which had its result"
            self._judge("i14_finished_steps_are_not_paid_twice", complaint)

    def saw_round(self, sight: Sight) -> None:
        for rule in AFTER_ROUND:
            self._judge(rule.__name__, rule(sight))

    def judge(self, rule: Callable[P, str], *args: P.args, **kwargs: P.kwargs) -> None:
        """Put a rule to something, which it may complain of."""
        self._judge(getattr(rule, "__name__", "a rule"), rule(*args, **kwargs))

    def compare(self, live_run: LiveRun, stream: Stream) -> None:
        """A fold of the journal must be the live state, and looking at it must not change it."""
        again = LiveRun(stream.run)
        again.replay(stream.history())
        live, folded = portrait(live_run), portrait(again)
        if live != folded:
            difference = next(
                (f"live {a}, folded {b}" for a, b in zip(live, folded, strict=False) if a != b),
                "one has more",
            )
            self.breach("i19_fold_is_live_state", f"{stream.run}: {difference}")
        self._judge("i25_the_account_knows_of_all", _ignorance(live_run, self.stories[stream.run]))
        commands = again.schedule.outstanding()
        is_still = commands == again.schedule.outstanding() and portrait(again) == folded
        self._judge("i20_asking_changes_nothing", "" if is_still else "outstanding() has effects")

    def watch(self, rule: str, do: Callable[[], T]) -> T:
        """Do something of which any exception is a breach."""
        try:
            return do()
        except Broken:
            raise
        except Exception as error:
            self.breach(rule, f"{type(error).__name__}: {error} ({_place_of(error)})", error)
            raise

    def breach(self, rule: str, complaint: str, cause: Exception | None = None) -> None:
        self.breaches.append(
            Breach(rule, self.step, complaint, tuple(_told(entry) for entry in self._last))
        )
        raise Broken(complaint) from cause

    def _judge(self, rule: str, complaint: str) -> None:
        if complaint:
            self.breach(rule, complaint)


_PARTS: tuple[str, ...] = vars(TaskNode)["__slots__"]
_NODE_PARTS = [part for part in _PARTS if part not in ("task", "dependents", "question")]


def portrait(live_run: LiveRun) -> list[str]:
    """Everything a run's leader knows, in words that can be compared."""
    schedule, results = live_run.schedule, live_run.results
    told = {
        name: value
        for name, value in vars(schedule).items()
        if name not in ("_graph", "_retry", "nodes")
    }
    amendments = told["_amendments"]
    told["_amendments"] = amendments.replans, sorted(map(sorted, amendments.earlier))
    told["requested"] = None if schedule.requested is None else encode(schedule.requested)
    lines = [f"{name}={value!r}" for name, value in told.items()]
    for id_, node in schedule.nodes.items():
        parts = [f"{part}={getattr(node, part)!r}" for part in _NODE_PARTS]
        waiting = [dependent.task.id for dependent in node.dependents]
        asked = json_of(node.question).decode()
        lines += [f"{id_} {part}" for part in (*parts, f"{waiting=}", f"{asked=}")]
    lines += [f"output {task}={value.digest}" for task, value in results.outputs.items()]
    lines += [f"steps {task}={json_of(log).decode()}" for task, log in results.steps.items()]
    if live_run.account is not None:
        # Not who waits for it: like tickets, those are of the process and not of the run.
        for part in ("spent", "reserved", "_open", "_keeps_back"):
            lines.append(f"account {part}={getattr(live_run.account, part)!r}")
    return [*lines, f"answers {results.answers}", f"usage {results.usage}"]


def _ignorance(live_run: LiveRun, story: RunStory) -> str:
    """What the account of a run forgot: it may fear too much, and never know too little."""
    account = live_run.account
    if account is None:
        return "" if story.limits.calls is None else "a run with a cap has no account"
    if account.spent.calls < story.purse.spent:
        return f"{story.purse.spent} calls were spent, the account knows of {account.spent.calls}"
    if account.reserved.calls < story.purse.reserved:
        return f"{story.purse.reserved} calls are reserved, the account knows of fewer"
    is_over = story.finished is not None and account.reserved.calls != 0
    return f"at the end {account.reserved.calls} calls are reserved" if is_over else ""


def _told(entry: Entry | str) -> str:
    if isinstance(entry, str):
        return entry
    head = f"{entry.run} {entry.seq} by {entry.author} in {entry.epoch}"
    text = encode(entry.event).decode()
    return f"{head}: {text if len(text) < 260 else text[:260] + '…'}"


def _place_of(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "nowhere"
    code = trace.tb_frame.f_code
    return f"{code.co_name}, line {trace.tb_lineno}"
