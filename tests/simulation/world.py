"""One trial: processes that come and go over one journal, people, and mischief."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from random import Random

from chargehand.decisions.live_run import LiveRun
from chargehand.decisions.quorum import VOTE
from chargehand.decisions.system_tasks import COLLECTOR, LISTER, hedged, is_hedge
from chargehand.facts.events import (
    Approach,
    AttemptFinished,
    Event,
    HedgeDue,
    PersonAsked,
    PlanAdopted,
    PlanAmended,
    PlanOpened,
    PlanSealed,
    RunRequested,
    TaskAdded,
    TaskFailed,
)
from chargehand.facts.failure_policy import Recourse
from chargehand.facts.outcome import Done, NeedsInput
from tests.simulation.attempt import (
    NO_INSTANT,
    Attempt,
    Script,
    Work,
    work,
)
from tests.simulation.changes import Standing, draw_change
from tests.simulation.faults import Dice, FaultKind
from tests.simulation.ledger import LEASE, Entry, Ledger
from tests.simulation.mapped import collect, list_items
from tests.simulation.observer import Broken, Observer
from tests.simulation.people import People
from tests.simulation.process import Process
from tests.simulation.report import Mode, Report
from tests.simulation.scenario import (
    SECOND,
    Order,
    draw_fate,
    draw_scenario,
    draw_steps,
    draw_thoughts,
)
from tests.simulation.stage import Stage
from tests.simulation.story import RunStory
from tests.simulation.supervision import Wish, supervise

HOUR = 3600 * SECOND
#: steps after which a healed trial that has not come to rest never will
LONGEST = 20_000
#: what is under way when the faults heal has arrived after this
SLOWEST_MESSAGE = 100 * SECOND


def run_trial(seed: int, mode: Mode = Mode.SAFETY, steps: int = 250) -> Report:
    """Play one schedule of faults. In liveness mode they heal after `steps`, else it ends there."""
    world = World(seed, mode)
    with suppress(Broken):  # the observer has it
        world.play(steps)
    return world.report()


class World:
    """Everything outside the kernels, and the one thread that moves it all."""

    def __init__(self, seed: int, mode: Mode) -> None:
        self._seed = seed
        self._mode = mode
        self._dice = Dice(f"{seed} {mode}")
        self._scenario = draw_scenario(self._dice)
        self._observer = Observer()
        self._ledger = Ledger(self._saw)
        self._stage = Stage(self._dice, self._ledger, self._observer, self._scenario.crew)
        self._people = People(self._stage, self._wake)
        self._orders = {order.run: order for order in self._scenario.orders}
        self._processes: list[Process] = []
        self._lives = 0
        self._changes = 0

    def play(self, steps: int) -> None:
        for _ in range(self._scenario.processes):
            self._start_process(0)
        for order in self._scenario.orders:
            self._expect(order)
        self._stage.later(self._dice.between(SECOND, 3 * SECOND), self._make_mischief)
        observer = self._observer
        while observer.step < steps and self._stage.step():
            observer.step += 1
        if self._mode is Mode.LIVENESS:
            self._heal()
            while self._stage.step():
                observer.step += 1
                if observer.step > steps + LONGEST:
                    observer.breach("i43_every_run_ends", "the trial does not come to rest")
            for run in self._orders:
                self._check_end(run)
        self._check_chain()

    def histories(self) -> dict[str, list[Event]]:
        """By run: its events, as a process reads them that knows nothing yet."""
        return {run: stream.history() for run, stream in self._ledger.streams.items()}

    def report(self) -> Report:
        return Report(
            seed=self._seed,
            mode=self._mode,
            steps=self._observer.step,
            events=self._observer.events,
            digest=self._observer.digest,
            faults=self._dice.counts,
            ended=Counter(self._ending(run) for run in self._orders),
            system_tasks=Counter(
                "plan again"
                if system_task.startswith("@plan:")
                else system_task[1:].partition(":")[0]
                for story in self._observer.stories.values()
                for system_task in story.system_tasks
            ),
            breaches=tuple(self._observer.breaches),
        )

    # requests

    def _expect(self, order: Order) -> None:
        later, dice = self._stage.later, self._dice
        later(order.submitted, lambda: self._submit(order))
        self._people.watch(order)
        for _ in range(3):
            if dice.hits(FaultKind.AMENDMENT):
                at = order.submitted + dice.between(SECOND // 10, 20 * SECOND)
                later(at, lambda: self._amend(order.run))

    def _submit(self, order: Order) -> None:
        """Ask until the request is durable, as a client does that gets no acknowledgement."""
        stream = self._ledger.streams.get(order.run)
        if stream is not None and stream.entries:
            return
        is_led = stream is not None and self._ledger.is_held(stream.owner, self._stage.now)
        process = self._any_process()
        if process is not None and not is_led:
            process.begin(order.run, lambda at: _request(order, at))
            self._give_plan(process, order)
        self._stage.later(15 * SECOND, lambda: self._submit(order))

    def _give_plan(self, process: Process, order: Order) -> None:
        """Hand over the plan, or what of it is not in the journal yet, if nobody is to plan it."""
        if order.approach is not Approach.GIVEN:
            return
        story = self._observer.stories.get(order.run) or RunStory(order.run)
        if story.is_sealed or story.stop:
            return
        if not order.is_streamed:
            process.hear(order.run, PlanAdopted(plan=order.plan, at=NO_INSTANT))
            return
        if not story.has_plan:
            process.hear(order.run, PlanOpened(goal=order.plan.goal, at=NO_INSTANT))
        delay = 0
        for task in order.plan.tasks:
            if task.id not in story.tasks:
                delay += self._dice.between(1000, 2 * SECOND)
                self._stream(process, order.run, TaskAdded(task=task, at=NO_INSTANT), delay)
        self._stream(process, order.run, PlanSealed(at=NO_INSTANT), delay + SECOND)

    def _stream(self, process: Process, run: str, event: Event, delay: int) -> None:
        epoch = process.epochs[run]

        def tell() -> None:
            story = self._observer.stories.get(run)
            is_stopping = story is not None and bool(story.stop)
            if process.epochs.get(run) != epoch:
                return
            if not is_stopping or self._dice.hits(FaultKind.TASK_AFTER_STOP):
                process.hear(run, event)

        self._stage.later(delay, tell)

    def _amend(self, run: str) -> None:
        leader, story = self._leader(run), self._observer.stories.get(run)
        if leader is None or story is None or not story.is_sealed or story.finished is not None:
            return
        self._changes += 1
        standing = Standing(
            version=story.version,
            settled=tuple(id_ for id_, task in story.planned.items() if task.ending),
            unsettled=tuple(id_ for id_, task in story.planned.items() if not task.ending),
            lost=tuple(id_ for id_, t in story.planned.items() if t.ending not in ("", "done")),
            needs={
                id_: tuple(need.task for need in task.task.all_needs)
                for id_, task in story.planned.items()
            },
            fresh_id=f"a{self._changes}",
        )
        change = draw_change(self._dice, self._scenario.crew, standing)
        amended = PlanAmended(
            version=change.version,
            added=change.added,
            removed=change.removed,
            replaced=change.replaced,
            at=NO_INSTANT,
        )
        leader.hear(run, amended)

    # processes

    def _start_process(self, offset: int) -> None:
        self._lives += 1
        process = Process(
            self._stage,
            f"p{self._lives}",
            offset,
            self._work_of,
            self._people.cancel,
            self._mourn,
            self._take_back,
        )
        self._processes.append(process)
        self._look_for_orphans()

    def _mourn(self, process: Process) -> None:
        self._processes.remove(process)
        offset = 0
        if self._dice.hits(FaultKind.CLOCK_FORWARD):
            offset = self._dice.between(SECOND, 3 * HOUR)
        elif self._dice.hits(FaultKind.CLOCK_BACK):
            offset = -self._dice.between(SECOND, HOUR)
        delay = self._dice.between(SECOND // 10, 20 * SECOND)
        self._stage.later(delay, lambda: self._start_process(offset))
        self._stage.later(LEASE, self._look_for_orphans)

    def _look_for_orphans(self, by: Process | None = None) -> None:
        for run in self._ledger.orphans(self._stage.now):
            process = by if by is not None and by.is_able else self._any_process()
            if process is None:
                continue  # the next one to start looks again
            if not process.knows_better(run):
                self._stage.later(SECOND, self._look_for_orphans)
                continue
            process.take_over(run)
            self._give_plan(process, self._orders[run])

    def _take_back(self, process: Process, run: str) -> None:
        """Now and then, who has just lost a run leads it again at once, old attempts still there."""
        leader = self._leader(run)
        if leader is None or leader.is_busy_writing or not self._dice.hits(FaultKind.RETAKEN):
            return

        def swap() -> None:
            if leader.is_able and not leader.is_busy_writing and run in leader.epochs:
                leader.release(run)
            self._look_for_orphans(process)

        self._stage.later(0, swap)

    def _any_process(self) -> Process | None:
        able = [process for process in self._processes if process.is_able]
        return self._dice.random.choice(able) if able else None

    def _leader(self, run: str) -> Process | None:
        for process in self._processes:
            if run in process.epochs and process.is_able:
                return process
        return None

    def _wake(self, run: str) -> None:
        leader = self._leader(run)
        if leader is not None:
            leader.turn_in(self._dice.random.choice((0, 100_000)))

    # mischief

    def _make_mischief(self) -> None:
        dice = self._dice
        if dice.is_healed or all(
            self._ending(run) not in ("open", "parked") for run in self._orders
        ):
            return
        for process in list(self._processes):
            if dice.hits(FaultKind.CRASH_WHILE_RUNNING):
                process.die()
            elif process.is_able and dice.hits(FaultKind.STALL):
                process.stall()
                self._stage.later(LEASE, self._look_for_orphans)
                self._stage.later(dice.between(LEASE // 2, 3 * LEASE), process.wake)
            elif process.is_able and dice.hits(FaultKind.DRAIN):
                process.drain()
            elif process.is_able:
                self._trouble_workers(process)
        if not self._ledger.is_full and dice.hits(FaultKind.JOURNAL_FULL):
            self._ledger.is_full = True
            self._stage.later(dice.between(SECOND, 30 * SECOND), self._make_room)
        self._stage.later(dice.between(SECOND // 2, 4 * SECOND), self._make_mischief)

    def _trouble_workers(self, process: Process) -> None:
        """Have one of them come and go, or die."""
        dice, later = self._dice, self._stage.later
        worker = dice.random.choice(self._scenario.crew.places).worker
        if worker in process.away:
            return
        if process.shop.has(worker) and dice.hits(FaultKind.WORKER_KILLED):
            process.shop.lose(worker)
        elif dice.hits(FaultKind.WORKER_DRAINED):
            process.dismiss(worker, for_good=False)
        elif dice.hits(FaultKind.WORKER_LEFT):
            process.dismiss(worker, for_good=True)
            grace = dice.between(SECOND // 10, 5 * SECOND)
            later(grace, lambda: process.part_with(worker))
        if worker in process.away:
            later(dice.between(SECOND, 60 * SECOND), lambda: process.bring_back(worker))

    def _make_room(self) -> None:
        self._ledger.is_full = False

    def _heal(self) -> None:
        self._dice.is_healed = True
        self._make_room()
        for process in list(self._processes):
            if process.is_stalled:
                process.wake()
            process.shop.notice_the_dead()
            for worker in list(process.away):
                process.bring_back(worker)
            process.turn_in(0)
        self._stage.later(LEASE, self._look_for_orphans)
        self._stage.later(LEASE + SLOWEST_MESSAGE, self._check_leases)

    # workers

    def _work_of(self, attempt: Attempt, live_run: LiveRun) -> Work:
        # A second attempt is of the same program.
        name = hedged(attempt.task) if is_hedge(attempt.task) else attempt.task
        random = Random(f"{self._seed} {attempt.run} {name}")
        task, outputs = live_run.schedule.nodes[attempt.task].task, live_run.results.outputs
        if attempt.worker == LISTER:
            return list_items(attempt, task.args["task"], self._dice)
        if attempt.worker == COLLECTOR:
            return collect(attempt, task, self._dice)
        if attempt.is_system_task:
            wish = Wish(self._orders[attempt.run], self._scenario.crew)
            thoughts = draw_thoughts(random, attempt.run, attempt.task)
            return supervise(attempt, task.args, wish, thoughts, self._dice)
        given = {need.task: outputs[need.task] for need in task.all_needs if need.task in outputs}
        counts, is_free = task.worker == VOTE, task.hedge or name != attempt.task
        script = Script(
            steps=() if counts else draw_steps(random, attempt.run, attempt.task, is_free=is_free),
            inputs={
                need.key: given[need.task].digest if need.task in given else None
                for need in task.all_needs
            },
            words=task.description,
            fate=None if counts else draw_fate(random),
            votes={id_: value.read()["says"] for id_, value in given.items()} if counts else None,
            agree=task.args.get("agree", 0),
        )
        return work(attempt, script, self._dice)

    def _saw(self, run: str, entries: Sequence[Entry]) -> None:
        self._observer.saw(run, entries)
        for entry in entries:
            event = entry.event
            if isinstance(event, AttemptFinished) and isinstance(event.outcome, NeedsInput):
                self._people.ponder(run, event.task, event.outcome.question)
            elif isinstance(event, PersonAsked):
                self._people.ponder(run, event.task, event.question)
            kind = _kind_of(event)
            if kind is not None:
                self._dice.note(kind)

    # the end

    def _ending(self, run: str) -> str:
        story = self._observer.stories.get(run)
        if story is None:
            return "open"
        if story.finished is not None:
            return story.finished.status.value
        return "parked" if story.idle_since is not None else "open"

    def _check_end(self, run: str) -> None:
        ending = self._ending(run)
        if ending == "open":
            self._observer.breach("i43_every_run_ends", f"{run} has neither ended nor does it wait")
        if ending == "parked":
            tasks = self._observer.stories[run].everything()
            if not any(task.question and task.question.patience is None for task in tasks):
                self._observer.breach("i43_every_run_ends", f"{run} waits, but for nobody")

    def _check_leases(self) -> None:
        for run, story in self._observer.stories.items():
            if story.finished is not None:
                continue
            leader = self._leader(run)
            for task in story.opened():
                assert task.open is not None
                held = leader and leader.shop.attempts.get((run, task.task.id, task.open.number))
                if not held or held.is_dead:
                    complaint = f"{task.task.id} of {run} is called running, and nobody runs it"
                    self._observer.breach("i45_what_runs_is_held", complaint)

    def _check_chain(self) -> None:
        for run, stream in self._ledger.streams.items():
            link = bytes(16)
            for entry in stream.entries:
                header = f"{run} {entry.seq} {entry.epoch} {entry.author}".encode()
                link = hashlib.blake2b(link + header + entry.data, digest_size=16).digest()
                if link != entry.hash:
                    self._observer.breach("i18_the_chain_holds", f"{run} at {entry.seq}")


def _kind_of(event: Event) -> FaultKind | None:
    """What else a report tells of, as it came about by itself."""
    match event:
        case PersonAsked():
            return FaultKind.POLICY_ASKS
        case TaskFailed(then=Recourse.WITHOUT):
            return FaultKind.WAIVED
        case TaskFailed(then=Recourse.FAIL_RUN):
            return FaultKind.RUN_FAILED
        case HedgeDue():
            return FaultKind.HEDGED
        case AttemptFinished(outcome=Done()) if is_hedge(event.task):
            return FaultKind.HEDGE_WON
        case _:
            return None


def _request(order: Order, at: datetime) -> RunRequested:
    deadline = order.limits.deadline
    return RunRequested(
        run=order.run,
        request="",
        limits=order.limits,
        seed=order.seed,
        rules=1,
        crew="",
        priority=order.priority,
        deadline_at=None if deadline is None else at + deadline,
        paces=order.paces,
        approach=order.approach,
        answers=order.answers,
        drafts=order.drafts,
        refines=order.refines,
        hedges=order.hedges,
        asks_budget=order.asks_budget,
        policies=order.policies,
        shape=order.shape,
        at=at,
    )
