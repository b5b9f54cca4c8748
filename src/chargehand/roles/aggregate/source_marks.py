"""Marks: the ids of tasks in square brackets, by which a model says what a statement rests on."""

import re
from collections.abc import Iterable, Mapping

#: whatever stands in brackets; most of it is no mark
INSIDE = r"\[(?P<inside>[^\[\]\n]{1,400})\]"

_GROUP = re.compile(rf"[ \t]*{INSIDE}")
_BETWEEN = re.compile(r"[\s,;&+]+")
_FILLERS = {"and", "task", "tasks", "see"}
_LINE = re.compile(r":\d+$")
_DIGITS = re.compile(r"\d+")


class SourceMarks:
    """Tells marks from other words in brackets: citations of files, links, remarks."""

    def __init__(self, known: Mapping[str, tuple[str, ...]]) -> None:
        #: ids that may be named, and the tasks that each stands for
        self._known = known
        self._shapes = {_DIGITS.sub("0", id_) for id_ in known if _DIGITS.search(id_)}

    def read(self, inside: str) -> tuple[str, ...] | None:
        """The tasks that these words between brackets name; None: they are no mark.

        An id that does not exist but looks like those that do is a mark that names nothing.
        """
        words = [word for word in _BETWEEN.split(inside) if word]
        ids = [word for word in words if word in self._known or word.lower() not in _FILLERS]
        if not ids or not all(map(self._is_id, ids)):
            return None
        return self.tasks_of(ids)

    def tasks_of(self, ids: Iterable[str]) -> tuple[str, ...]:
        """The tasks that these ids stand for, each once; what is unknown stands for nothing."""
        found = (self._known.get(id_) or self._known.get(_LINE.sub("", id_), ()) for id_ in ids)
        return tuple(dict.fromkeys(task for tasks in found for task in tasks))

    def part(self, text: str) -> tuple[str, tuple[str, ...], list[str]]:
        """The text without its marks, the tasks they name, and what else stands in brackets."""
        tasks: list[str] = []
        others: list[str] = []

        def strip(group: re.Match[str]) -> str:
            named = self.read(group["inside"])
            if named is None:
                others.append(group["inside"])
                return group[0]
            tasks.extend(named)
            return ""

        bare = _GROUP.sub(strip, text).strip()
        return bare, tuple(dict.fromkeys(tasks)), others

    def tasks_in(self, text: str) -> tuple[str, ...]:
        """The tasks that the marks in this text name."""
        return self.part(text)[1]

    def _is_id(self, word: str) -> bool:
        # A model may add the line that it read: [t1:3].
        bare = _LINE.sub("", word)
        return (
            word in self._known
            or bare in self._known
            or _DIGITS.sub("0", word) in self._shapes
            or _DIGITS.sub("0", bare) in self._shapes
        )
