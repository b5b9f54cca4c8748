"""Shows the progress of a supervisor's runs on stderr, for scripts: `show_progress(boss)`."""

import sys

from chargehand.facts.events import KINDS, Event
from chargehand.presentation.display_text import clean
from chargehand.presentation.nested_paths import NestedPaths
from chargehand.presentation.progress_lines import ProgressLines
from chargehand.presentation.run_status import nested_in
from chargehand.supervisor import Supervisor


def show_progress(boss: Supervisor) -> Supervisor:
    """Print each change in the runs of `boss` and in their nested runs, as `chargehand run` does; returns `boss`.

    boss = show_progress(ch.Supervisor(workers, model="openai:gpt-5-mini"))
    result = boss.run_sync("…")
    """
    paths = NestedPaths()
    _listen(boss, "", paths)
    for where, nested in nested_in(boss):
        _listen(nested, where, paths)
    return boss


def _listen(boss: Supervisor, where: str, paths: NestedPaths) -> None:
    runs: dict[str, ProgressLines] = {}

    def hear(run: str, event: Event) -> None:
        paths.hear(run, event)
        if run not in runs:
            runs[run] = ProgressLines(_say, paths.of(run, where).whole)
        runs[run].hear(event)

    boss.on(*KINDS.values())(hear)


def _say(words: str) -> None:
    print(clean(words), file=sys.stderr, flush=True)
