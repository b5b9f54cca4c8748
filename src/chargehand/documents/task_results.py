"""The results of a run, task by task, for documents of runs without a complete answer."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from chargehand.documents.document_sections import Block, Bullets, Cell, Paragraph, Section, Table
from chargehand.presentation.display_text import one_line
from chargehand.result import RunResult, TaskResult

#: most rows of a table or points of a list, most characters of a cell, deepest nesting
_MOST_ROWS, _MOST_CELL, _DEEPEST = 100, 400, 3
_OPENING = (
    "There is no complete answer. These are the results of the tasks that were done. Their figures were not looked up "
    "in their sources."
)


def task_results(result: RunResult) -> list[Block]:
    """The results of a run as blocks of a document. If the answer is text, only that text.

    Use it if the typed result of a run is missing, for example because the run exceeded its budget:

        if not isinstance(result.output, Report):
            return Document("Report", task_results(result), result=result)
    """
    if isinstance(result.answer.output, str) and result.answer.output.strip():
        return [result.answer.output]
    done = [each for each in result.tasks.values() if each.output is not None]
    if not done:
        return ["There is no answer, and no task was done."]
    return [_OPENING, *(block for each in done for block in _blocks_of_task(each))]


def _blocks_of_task(task: TaskResult) -> Iterator[Block]:
    yield Section(one_line(task.task.description, 120))
    yield from _blocks_of(task.output, 0)


def _blocks_of(value: Any, depth: int) -> Iterator[Block]:
    value = _read(value)
    if depth >= _DEEPEST:
        yield _in_words(value)
    elif isinstance(value, Mapping):
        yield from _blocks_of_fields(value, depth)
    elif isinstance(value, list):
        yield from _blocks_of_list([_read(each) for each in value], depth)
    else:
        yield _in_words(value) if not isinstance(value, str) else value


def _blocks_of_fields(fields: Mapping[str, Any], depth: int) -> Iterator[Block]:
    values = {name: _read(value) for name, value in fields.items()}
    plain = {name: each for name, each in values.items() if _is_plain(each)}
    if plain:
        yield Table(["", ""], [[str(name), _cell(each)] for name, each in plain.items()])
    for name, each in values.items():
        if name not in plain:
            yield Paragraph([f"{name}:"])
            yield from _blocks_of(each, depth + 1)


def _blocks_of_list(values: Sequence[Any], depth: int) -> Iterator[Block]:
    found = [each for each in values if each is not None]  # items that are not done have no result
    shown = found[:_MOST_ROWS]
    if shown and all(isinstance(each, Mapping) for each in shown):
        columns = list(dict.fromkeys(str(name) for each in shown for name in each))
        yield Table(columns, [[_cell(each.get(name, "")) for name in columns] for each in shown])
    elif shown and all(_is_plain(each) for each in shown):
        yield Bullets([_in_words(each) for each in shown])
    else:
        for each in shown:
            yield from _blocks_of(each, depth + 1)
    if len(found) > len(shown):
        yield f"… and {len(found) - len(shown)} more."
    if len(values) > len(found):
        yield f"Missing: {len(values) - len(found)} of {len(values)}."


def _read(value: Any) -> Any:
    """Parse a text that is a JSON object or array, as LLM workers write it; other values are unchanged."""
    if not isinstance(value, str) or value.strip()[:1] not in ("{", "["):
        return value
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return found if isinstance(found, Mapping | list) else value


def _is_plain(value: Any) -> bool:
    """Whether a value fits into a table cell or a list point."""
    is_line = isinstance(value, str) and "\n" not in value.strip()
    return is_line or value is None or isinstance(value, bool | int | float)


def _cell(value: Any) -> Cell:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return one_line(_in_words(value), _MOST_CELL)


def _in_words(value: Any, depth: int = 0) -> str:
    """A value as readable text, such as `clause: 3.2, line: 17`."""
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case str():
            return value
        case Mapping() if depth < _DEEPEST:
            return ", ".join(f"{name}: {_in_words(e, depth + 1)}" for name, e in value.items())
        case list() if depth < _DEEPEST:
            return "; ".join(_in_words(each, depth + 1) for each in value)
        case _:
            return str(value)
