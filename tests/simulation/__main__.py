"""Many trials from the command line; exits with 1 if any invariant broke."""

import argparse
import sys
from collections import Counter

from tests.simulation import FaultKind, Mode, Report, run_trial

#: broken trials that are told in full
SHOWN = 5


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default="0:200", help="first:last, the last not included")
    parser.add_argument("--mode", choices=[*Mode, "both"], default="both")
    parser.add_argument("--steps", type=int, default=250, help="until the end, or until all heals")
    parser.add_argument("--fail-fast", action="store_true", help="end with the first breach")
    options = parser.parse_args(arguments)
    first, _, last = options.seeds.partition(":")
    seeds = range(int(first), int(last) if last else int(first) + 1)
    modes = list(Mode) if options.mode == "both" else [Mode(options.mode)]
    tally = Tally()
    for seed in seeds:
        # With both modes each seed plays one of them, so that the number of trials is the range's.
        mode = modes[seed % len(modes)]
        report = run_trial(seed, mode, options.steps)
        tally.add(report)
        if options.fail_fast and report.breaches:
            break
    say(f"seeds {seeds.start}:{seeds.stop} mode {options.mode} steps {options.steps}")
    say(tally.told())
    return 1 if tally.broken else 0


class Tally:
    """What many trials came to."""

    def __init__(self) -> None:
        self.trials = self.steps = self.events = 0
        self.faults: Counter[FaultKind] = Counter()
        self.ended: Counter[str] = Counter()
        self.system_tasks: Counter[str] = Counter()
        self.broken: list[Report] = []

    def add(self, report: Report) -> None:
        self.trials += 1
        self.steps += report.steps
        self.events += report.events
        self.faults += report.faults
        self.ended += report.ended
        self.system_tasks += report.system_tasks
        if report.breaches:
            self.broken.append(report)

    def told(self) -> str:
        lines = [f"{self.trials} trials, {self.steps} steps, {self.events} events"]
        lines += [f"  runs {ending}: {count}" for ending, count in sorted(self.ended.items())]
        lines += [
            f"  duties {system_task}: {count}"
            for system_task, count in sorted(self.system_tasks.items())
        ]
        lines += [f"  {kind.value:<40} {self.faults[kind]:>7}" for kind in FaultKind]
        rules = Counter(report.breaches[0].invariant for report in self.broken)
        for rule, count in rules.most_common():
            seeds = [f"{r.seed} {r.mode}" for r in self.broken if r.breaches[0].invariant == rule]
            lines.append(f"broken: {rule}: {count} times, seeds {', '.join(seeds[:8])}")
        lines += [str(report) for report in self.broken[:SHOWN]]
        lines.append(f"{len(self.broken)} of {self.trials} trials broke an invariant")
        return "\n".join(lines)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
