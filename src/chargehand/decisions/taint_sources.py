"""Taint: the untrusted sources behind the descriptions, results and failures of a run's tasks."""

from collections.abc import Iterable

from chargehand.decisions.live_run import LiveRun
from chargehand.facts.outcome import Done, Failed


def sources_of(live_run: LiveRun, *tasks: str) -> tuple[str, ...]:
    """The untrusted sources behind the descriptions, results and failures of these tasks."""
    found: dict[str, None] = {}
    for task in tasks:
        for sources in _known_of(live_run, task):
            found.update(dict.fromkeys(sources))
    return tuple(found)


def sources_in(live_run: LiveRun) -> tuple[str, ...]:
    """The untrusted sources behind the request and all tasks of a run."""
    requested = live_run.schedule.requested
    asked = () if requested is None else requested.taint
    return tuple(dict.fromkeys((*asked, *sources_of(live_run, *live_run.schedule.nodes))))


def _known_of(live_run: LiveRun, task: str) -> Iterable[tuple[str, ...]]:
    node, results = live_run.schedule.nodes[task], live_run.results
    yield node.taint
    for failure in (node.last_failure, node.cause):
        if failure is not None:
            yield failure.taint
    if task in results.outputs:
        yield results.outputs[task].taint
        return
    # Its inputs and steps so far: an attempt that was lost could not report its taint itself.
    item = results.item_of(task)
    if item is not None:
        yield item.taint
    for need in node.task.all_needs:
        if need.task in results.outputs:
            yield results.outputs[need.task].taint
    log = results.steps.get(task)
    for record in () if log is None else (*log.before, *log.lineage.values()):
        match record.outcome:
            case Done(value=value):
                yield value.taint
            case Failed(taint=taint):
                yield taint
            case None:
                pass
