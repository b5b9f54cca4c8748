"""How long things will take: what past runs taught about each worker, and what hangs on a task."""

from collections.abc import Iterable, Mapping

from chargehand.facts.events import Pace
from chargehand.facts.plan import Task

_REMEMBERED = 200
#: older attempts fade once a worker has this many


def learn(known: Mapping[str, Pace], seen: Iterable[tuple[str, Pace]]) -> dict[str, Pace]:
    """What is known of each worker after these runs, newer ones weighing as much as older ones."""
    paces = dict(known)
    for worker, pace in seen:
        before = paces.get(worker)
        if before is None:
            paces[worker] = Pace(min(pace.count, _REMEMBERED), pace.mean)
            continue
        count = before.count + pace.count
        mean = (before.mean * before.count + pace.mean * pace.count) / count
        paces[worker] = Pace(min(count, _REMEMBERED), mean)
    return paces


class Estimates:
    """Expected seconds of each task. Without any knowledge every task counts the same: one hop."""

    def __init__(self, paces: Mapping[str, Pace]) -> None:
        self._seconds = {worker: pace.mean.total_seconds() for worker, pace in paces.items()}
        known = [seconds for seconds in self._seconds.values() if seconds > 0]
        self._unknown = sum(known) / len(known) if known else 1.0

    def seconds(self, task: Task) -> float:
        if task.expect is not None:
            return task.expect.total_seconds()
        return self._seconds.get(task.worker or task.skill, self._unknown)
