"""Plans: immutable graphs of tasks, with their checks, their JSON and their diagrams."""

import difflib
import fnmatch
import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr, replace

from chargehand.errors import Fault, NotJSON, PlanRefused, UsageError
from chargehand.facts.argument_checks import (
    CheckedKeywords,
    Converted,
    SpanOrNone,
    count,
    duration,
    priority,
    shown,
    usually,
)
from chargehand.facts.failure_policy import OnFailure
from chargehand.facts.form_faults import faults_in, form_faults, place_in_plan, repeated_keys
from chargehand.facts.json_schema import fault_of
from chargehand.facts.jupyter_html_hook import notebook_html
from chargehand.facts.limits import Limits, TaskLimits
from chargehand.facts.output_schema import published_schema, shape_of
from chargehand.facts.value import Value, canonical, digest_of

FAULTS = {
    "no_tasks": "the plan is empty",
    "too_many_tasks": "more tasks than the cap",
    "bad_id": "an id that is empty, too long, or has characters that ids may not have",
    "duplicate_id": "two tasks with the same id",
    "unknown_worker": "a worker or skill that the roster does not have",
    "no_worker": "neither a worker nor a skill, or both",
    "dangling_need": "a need for a task that does not exist",
    "self_need": "a task that needs itself",
    "duplicate_need": "two needs whose results would have the same name",
    "cycle": "tasks that need each other in a circle",
    "forward_need": "a need for a task that comes later in the plan (a warning, if asked for)",
    "bad_output": "an invalid or unsupported JSON schema of the result",
    "empty_description": "the description of the task is empty",
    "vague": "a description too vague to be checked (a warning)",
    "nobody_else": "a failure policy with `elsewhere` in a task that names a worker instead of a skill (a warning)",
    "missing_file": "a file that the worker cannot find (a warning)",
    "no_items": "a file pattern in `for_each` that matches no file (a warning)",
    "missing_table": "a table that the worker cannot find (a warning)",
    "bad_for_each": "a `for_each` that is neither a list, a need nor a file pattern, or that has fewer items than `at_least`; or a file pattern, if no worker has file tools",
}

#: files and tables that are named in a fault
SHOWN_NAMES = 20
#: the name of a file in a text: with a usual extension, and not part of a URL
_FILE = re.compile(
    r"(?<![\w/.:@*?-])((?:[\w.-]+/)*[\w-][\w.-]*\."
    r"(?:csv|tsv|jsonl?|ndjson|parquet|md|txt|pdf|html?|xlsx?|docx|log|ya?ml|xml))(?![\w/])",
    re.IGNORECASE,
)
_WRITES = re.compile(
    r"\b(?:writ|creat|sav|produc|export|generat|call|put|stor|compil|render|draft|convert|renam|append|dump|build|"
    r"prepar|output|nam)(?:e|es|ed|ing|s)?\b",
    re.IGNORECASE,
)
#: words of a sentence in which a file need not exist: the task writes it, or checks whether it exists
_EXCUSES = re.compile(
    rf"{_WRITES.pattern}|\bexists?\b|\bwhether\b|\bif (?:there|any)\b", re.IGNORECASE
)
_ENDS = (". ", "; ", ": ", "! ", "? ", ".\n", "\n")
#: characters of a description, and names of files in it, that are checked
LONGEST_CHECKED, MOST_NAMED = 20_000, 50
#: characters of a name in a fault
LONGEST_NAME = 100
#: the name of a table in a text: in quotes or backticks after the word "table"
_TABLE = re.compile(r"\btable\s+['\"`](\w+)['\"`]", re.IGNORECASE)
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}")
#: key of the item in `brief.inputs`
ITEM = "item"
#: key of a file pattern in `for_each`
FILES = "files"
_DOING = (
    r"(?:do|handle|process|fix|improve|continue|help|deal|work|look into|take care|finish|manage|analy[sz]e|"
    r"(?:do |conduct )?(?:some )?research|investigate|explore|proceed|go on|"
    r"perform|write|sort)"
)
_ANYTHING = (
    r"(?:it|this|that|them|things?|stuff|everything|all|up|out|on|with|of|about|into|as needed|further|"
    r"(?:the|some|your|its) (?:rest|task|work|data|request|problem|issue|topic|subject|above|information|"
    r"project|situation|matter|things?|stuff|analysis|research|necessary|needful|next steps?))"
)
#: a description of only such words says neither what the task is about nor what its result is
_VAGUE = re.compile(
    rf"(?i)^\W*(?:(?:please|just|then)\s+)?{_DOING}\b(?:\s+{_ANYTHING}\b)*"
    rf"(?:(?:,|,? (?:and then|and|then)) {_DOING}\b(?:\s+{_ANYTHING}\b)*)*\W*$"
)


class Strategy(StrEnum):
    """How the results of a plan are combined into one answer."""

    MERGE = "merge"  #: all results are combined
    SELECT = "select"  #: the best result is chosen
    REDUCE = "reduce"  #: many or long results are condensed into notes first


class _PlanPart(
    Struct,
    metaclass=CheckedKeywords,
    frozen=True,
    omit_defaults=True,
    repr_omit_defaults=True,
    forbid_unknown_fields=True,
    gc=False,
):
    """Base of the parts of a plan: how they are checked and stored."""


class Need(_PlanPart, frozen=True):
    """A dependency of one task on another, and which part of the output it takes."""

    task: str
    #: if the needed task fails, run anyway; `brief.missing` names what is missing
    optional: bool = False
    #: the part of the output, as keys joined by dots; empty: all of it
    output: str = ""
    #: its key in `brief.inputs`; empty: the id of the needed task
    name: str = ""

    @property
    def key(self) -> str:
        return self.name or self.task


class Task(_PlanPart, frozen=True, kw_only=True):
    """One node of a plan: a goal concrete enough to be checked, its worker, its needs, its limits."""

    id: str
    description: str
    worker: str = ""
    #: instead of `worker`: any worker on the roster with this skill may do the task
    skill: str = ""
    #: an id alone is a required need of that task's whole output
    needs: Sequence[Need | str] = ()
    #: JSON that the plan passes to the worker
    args: dict[str, Any] = {}
    #: the criterion by which the result is accepted
    accept: str = ""
    #: the run can succeed without it
    optional: bool = False
    #: larger is more urgent
    priority: int = 0
    #: counted from the start of the run
    deadline: SpanOrNone = usually(None)
    #: expected duration, if known; otherwise it is learned from past runs
    expect: SpanOrNone = usually(None)
    limits: TaskLimits = TaskLimits()
    #: JSON schema of the result; a Pydantic model or dataclass is converted to its schema
    output: Converted[Any, dict[str, Any] | None] = usually(None)
    #: the failure policy; None: that of its worker, else that of its supervisor
    on_failure: OnFailure | None = None
    #: start a second attempt if one takes far too long; only for work that may be done twice
    hedge: bool = False
    #: run the task once for each item: of a list, of a need (by name) whose output is a list, or of {"files": "*.txt"}
    for_each: list[Any] | str | dict[str, str] | None = None
    #: with `for_each`: how many items must be done; None: at least one, and each item that is not done is a gap
    at_least: int | None = None

    def __post_init__(self) -> None:
        if self.deadline is not None:
            deadline = duration(self.deadline, f"task {self.id!r}: deadline", may_be_zero=True)
            force_setattr(self, "deadline", deadline)
        if self.expect is not None:
            expect = duration(self.expect, f"task {self.id!r}: expect", may_be_zero=True)
            force_setattr(self, "expect", expect)
        if type(self.priority) is not int or self.priority:
            urgent = priority(self.priority, f"task {self.id!r}: priority")
            force_setattr(self, "priority", urgent)
        if self.output is not None and not isinstance(self.output, dict):
            force_setattr(self, "output", shape_of(self.output))
        if type(self.limits) is not TaskLimits:
            raise UsageError(f"task {self.id!r}: limits={shown(self.limits)} must be TaskLimits(…)")
        if self.for_each is not None or self.at_least is not None:
            self._check_for_each()
        if self.needs == ():
            return
        given = [self.needs] if isinstance(self.needs, str) else self.needs
        try:
            needs = tuple(need if isinstance(need, Need) else Need(need) for need in given)
        except TypeError:
            raise UsageError(f"task {self.id!r}: needs must be a list of ids or Needs") from None
        force_setattr(self, "needs", needs)

    def _check_for_each(self) -> None:
        whose, over = f"task {self.id!r}: for_each", self.for_each
        if isinstance(over, tuple):
            force_setattr(self, "for_each", list(over))
        elif over is not None and not isinstance(over, list | str | dict):
            raise UsageError(
                f"{whose}={shown(over)} must be a list, the name of a need, or {{'files': '*.txt'}}"
            )
        if self.at_least is not None:
            if over is None:
                raise UsageError(f"task {self.id!r}: at_least={self.at_least} needs for_each")
            least = count(self.at_least, f"task {self.id!r}: at_least")
            force_setattr(self, "at_least", least)
        needs = [self.needs] if isinstance(self.needs, str) else self.needs
        keys = [each if isinstance(each, str) else getattr(each, "key", "") for each in needs]
        if isinstance(over, str) and over not in keys:  # naming a task here makes it a need
            force_setattr(self, "needs", (*needs, over))

    @property
    def all_needs(self) -> tuple[Need, ...]:
        """`needs` as `Need` objects."""
        return cast("tuple[Need, ...]", self.needs)

    def for_item(self, index: int) -> "Task":
        """The task that runs this one for the item with this index."""
        needs = tuple(need for need in self.all_needs if need.key != self.for_each)
        return replace(self, id=item_id(self.id, index), needs=needs, for_each=None, at_least=None)

    def __hash__(self) -> int:
        return hash(self.id)


def _refuse_unstorable(task: Task) -> None:
    """Raise `NotJSON` that names the task and the argument which cannot be stored, if it is in this task."""
    given: object = task.args  # not checked yet: it may be anything
    args = given.items() if isinstance(given, dict) else ()
    parts = [(f"args[{shown(key)}]: ", part) for key, part in args]
    for place, part in [*parts, ("", task)]:
        try:
            Value.of(part)
        except NotJSON as error:
            words = f"task {shown(task.id)}: {place}{error}"
            raise NotJSON(words, is_final=error.is_final) from None


def item_id(task: str, index: int) -> str:
    """The id of the task for one item of `task`. A task of a plan cannot have such an id."""
    return f"{task}[{index}]"


def item_of(task: str) -> tuple[str, int] | None:
    """The task with `for_each` and the index, if this is the id of an item; else None."""
    if task[-1:] != "]":
        return None
    mapped, _, index = task[:-1].rpartition("[")
    return mapped, int(index)


class Plan(_PlanPart, frozen=True, kw_only=True):
    """The tasks for a request, an immutable graph. A changed plan is a new one with a higher version."""

    goal: str
    tasks: Sequence[Task]
    #: what the final answer should look like
    instruction: str = ""
    strategy: Strategy = Strategy.MERGE
    version: int = 1
    #: untrusted sources that the author of the plan had read; they taint all results of its tasks
    taint: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        is_list = isinstance(self.tasks, Iterable)
        tasks = tuple(self.tasks) if is_list else ()
        if not is_list or not all(isinstance(task, Task) for task in tasks):
            raise UsageError(f"Plan: tasks={shown(self.tasks)} must be a list of Tasks")
        force_setattr(self, "tasks", tasks)

    def _repr_html_(self) -> str | None:
        """The HTML that a notebook shows."""
        return notebook_html(self)

    def check(
        self,
        roster: "Collection[str] | None" = None,
        limits: Limits | None = None,
        *,
        reach: "Mapping[str, Reach] | None" = None,
        in_order: bool = False,
    ) -> "Check":
        """Find all faults of this plan, not only the first.

        `roster` holds the names of workers and skills; without it, workers are not checked. `reach` says
        which files and tables each worker can reach: a task that names any other file or table only
        causes a warning, because the file may not be meant to exist yet. A planner must correct such a
        task. Tasks may be in any order; with `in_order`, a need for a later task is a warning.
        """
        check = _check(self, roster, limits or Limits())
        if reach:
            check = Check(check.faults, (*check.warnings, *self.unreachable(reach)))
        if not in_order:
            return check
        return Check(check.faults, (*check.warnings, *_forward_needs(self.tasks)))

    def unreachable(self, reach: "Mapping[str, Reach]") -> "tuple[Fault, ...]":
        """Warnings for tasks that name a file or a table that their worker cannot reach."""
        return (*_out_of_reach(self.tasks, reach), *_unmatched(self.tasks, reach))

    def refuse_faults(
        self, roster: "Collection[str] | None" = None, limits: Limits | None = None
    ) -> "Check":
        """Raise `PlanRefused` with every fault; if there is none, return the check with its warnings."""
        check = self.check(roster, limits)
        if check.faults:
            raise PlanRefused(check.faults)
        return check

    def to_json(self, *, indent: int | None = 2) -> str:
        data = msgspec.json.encode(self)
        return (msgspec.json.format(data, indent=indent) if indent else data).decode()

    def stored(self) -> "Plan":
        """This plan as a journal would return it. Raises `UsageError` if it cannot be stored."""
        if _is_plain_text(self.goal, self.instruction) and all(map(_is_plain, self.tasks)):
            return self  # most plans: storing them cannot change anything
        try:
            return _decoded(bytes(Value.of(self).json), "this plan cannot be stored")
        except NotJSON:
            for task in self.tasks:
                _refuse_unstorable(task)
            raise

    @classmethod
    def from_json(cls, text: str | bytes) -> "Plan":
        """Read a plan. Raises `UsageError` with all faults and their positions."""
        plan = _decoded(text, "this is not a plan")
        if faults := repeated_keys(text, place_in_plan):
            raise faults_in("this plan", faults)
        return plan

    @staticmethod
    def json_schema() -> dict[str, Any]:
        """The JSON Schema of a plan, for editors and other programs."""
        return published_schema(Plan, "chargehand plan")

    @property
    def digest(self) -> str:
        return digest_of(canonical(self))

    def to_mermaid(self) -> str:
        """The graph as a Mermaid diagram; optional needs are dashed, tasks with `for_each` have double sides."""
        names = {task.id: f"n{number}" for number, task in enumerate(self.tasks)}
        lines = ["flowchart LR"]
        for task in self.tasks:
            each = f", {words}" if (words := each_words(task)) else ""
            label = f"{task.id}{each}: {task.description}"
            if len(label) > 60:
                label = label[:59] + "…"
            box = ("[", "]") if task.for_each is None else ("[[", "]]")  # with double sides
            lines.append(f'    {names[task.id]}{box[0]}"{_mermaid_text(label)}"{box[1]}')
        for task in self.tasks:
            for need in task.all_needs:
                arrow = "-.->" if need.optional else "-->"
                lines.append(f"    {names.get(need.task, 'missing')} {arrow} {names[task.id]}")
        return "\n".join(lines) + "\n"


class Reach(Struct, frozen=True):
    """The files and tables that a worker can reach, by name."""

    files: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    #: False: there are more files than were listed
    is_whole: bool = True
    #: False: the worker has no tools, and only knows what others have read for it
    is_own: bool = True


class Check(Struct, frozen=True):
    """What a plan's check found: faults refuse it, warnings do not."""

    faults: tuple[Fault, ...] = ()
    warnings: tuple[Fault, ...] = ()

    def __bool__(self) -> bool:
        return not self.faults

    def __str__(self) -> str:
        lines = [f"fault: {fault}" for fault in self.faults]
        lines += [f"warning: {warning}" for warning in self.warnings]
        return "\n".join(lines) or "no faults"


def _out_of_reach(tasks: Sequence[Task], reach: Mapping[str, Reach]) -> Iterable[Fault]:
    """Warnings for files and tables that tasks name and their workers cannot reach."""
    written = {name.casefold() for task in tasks for name in _files_written(task.description)}
    spellings: dict[str, set[str]] = {}  # computed once for each worker: there may be many files
    for task in tasks:
        own = reach.get(task.worker)
        if own is None:
            continue
        for name in dict.fromkeys(_files_read(task.description)):
            if not own.files or not own.is_whole or name.casefold() in written:
                continue
            if task.worker not in spellings:
                spellings[task.worker] = _spellings(own.files)
            if not _is_there(name.casefold(), spellings[task.worker], task.description.casefold()):
                yield Fault("missing_file", task.id, _missing("file", name, own.files))
        for name in _TABLE.findall(task.description):
            if own.tables and name.casefold() not in {each.casefold() for each in own.tables}:
                yield Fault("missing_table", task.id, _missing("table", name, own.tables))


def _is_there(name: str, known: set[str], words: str) -> bool:
    """Whether a file has this name, or a longer name with spaces that occurs in the description."""
    if _is_known(name, known):
        return True
    return any(path in words for path in known if path.endswith(f" {name}"))


def who_can_read(task: Task, reach: Mapping[str, Reach]) -> str:
    """The one worker that can reach all files that a task names, if the task's own worker cannot; else empty."""
    own = reach.get(task.worker)
    named = {name.casefold() for name in _files_read(task.description)}
    if own is None or not own.is_whole or not named or _reads_all(named, own):
        return ""
    able = [name for name, each in reach.items() if each.is_own and _reads_all(named, each)]
    return able[0] if len(able) == 1 else ""


def _reads_all(names: Collection[str], reach: Reach) -> bool:
    known = _spellings(reach.files)
    return all(_is_known(name, known) for name in names)


def _unmatched(tasks: Sequence[Task], reach: Mapping[str, Reach]) -> Iterable[Fault]:
    """Warnings for file patterns in `for_each` that match no file: such a task has nothing to do."""
    for task in tasks:
        over = task.for_each
        if not isinstance(over, dict) or not over.get(FILES):
            continue
        # The items of a worker without file tools are listed with the file tools of the crew.
        lists = [reach[task.worker]] if task.worker in reach else list(reach.values())
        files = list(dict.fromkeys(path for each in lists for path in each.files))
        pattern = over[FILES].casefold()
        is_known = any(fits(path.casefold(), pattern) for path in files)
        if not is_known and all(each.is_whole for each in lists):
            words = f"no file fits for_each={over}; " + _there("file", files)
            yield Fault("no_items", task.id, words)


def _files_read(words: str) -> Iterable[str]:
    """The files in a description that must exist."""
    return (name for name, sentence in _files_named(words) if not _EXCUSES.search(sentence))


def _files_written(words: str) -> Iterable[str]:
    return (name for name, sentence in _files_named(words) if _WRITES.search(sentence))


def _files_named(words: str) -> Iterable[tuple[str, str]]:
    """The first files in a description, each with its sentence up to there."""
    for found in itertools.islice(_FILE.finditer(words[:LONGEST_CHECKED]), MOST_NAMED):
        begin = max(words.rfind(mark, 0, found.start()) for mark in _ENDS)
        end = re.match(r"\W*(?:exists?|is there)?", words[found.end() :])
        yield found[1], words[begin + 1 : found.start()] + (end[0] if end else "")


def fits(path: str, pattern: str) -> bool:
    """Whether a pattern like `*.md` or `notes/*` matches a path; a pattern without a slash matches the file name."""
    if pattern.startswith("**/") and fits(path, pattern[3:]):
        return True  # `**/` also matches no folder at all
    name = path if "/" in pattern else path.rpartition("/")[2]
    return fnmatch.fnmatchcase(name, pattern)


def _spellings(paths: Iterable[str]) -> set[str]:
    """Each path, and each of its suffixes that starts with a folder or the file name."""
    known: set[str] = set()
    for path in paths:
        parts = path.casefold().split("/")
        known.update("/".join(parts[first:]) for first in range(len(parts)))
    return known


def _is_known(name: str, known: set[str]) -> bool:
    parts = name.removeprefix("./").split("/")
    return any("/".join(parts[first:]) in known for first in range(len(parts)))


def _missing(kind: str, name: str, there: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, there, n=1)
    meant = f"did you mean {close[0][:LONGEST_NAME]!r}? " if close else ""
    named = name[:LONGEST_NAME]
    return f"it names the {kind} {named!r}, which is not there; {meant}{_there(kind, there)}"


def _there(kind: str, names: Sequence[str]) -> str:
    """The names that exist instead, on one line, whatever characters they contain."""
    if not names:
        return f"there is no {kind} at all"
    cut = [name[:LONGEST_NAME] for name in names[:SHOWN_NAMES]]
    plain = [name if name.isprintable() else repr(name) for name in cut]
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return f"there are: {', '.join(plain)}{more}"


def find_cycle(tasks: Sequence[Task]) -> list[str]:
    """The ids of a cycle of needs, each needing the one before it; empty if there is none."""
    if _is_in_order(tasks):
        return []
    needs: dict[str, list[str]] = {task.id: [] for task in tasks}
    for task in tasks:  # two tasks with one id, which is a fault of its own, count as one here
        own = (need.task for need in task.all_needs if need.task != task.id)
        needs[task.id] += [need for need in own if need in needs]
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1]
        return cycle[1:]
    return []


def _backward_edge(cycle: Sequence[str], tasks: Sequence[Task]) -> tuple[str, str]:
    """In a cycle, the task that is first in the plan, and the task that it needs: most likely the mistake."""
    order = {task.id: place for place, task in enumerate(tasks)}
    pairs = zip(cycle, [cycle[-1], *cycle], strict=False)  # each needs the one before it
    return min(pairs, key=lambda pair: order[pair[0]])


def _is_in_order(tasks: Sequence[Task]) -> bool:
    """Whether every task comes after all tasks that it needs, as in most plans."""
    before: set[str] = set()
    for task in tasks:
        for need in task.all_needs:
            if need.task not in before:
                return False
        before.add(task.id)
    return True


def _check(plan: Plan, roster: Collection[str] | None, limits: Limits) -> Check:
    faults: list[Fault] = []
    warnings: list[Fault] = []
    if not plan.tasks:
        faults.append(Fault("no_tasks", "", "the plan has no tasks; add at least one"))
    if len(plan.tasks) > limits.tasks:
        faults.append(
            Fault(
                "too_many_tasks",
                "",
                f"{len(plan.tasks)} tasks are more than the cap of {limits.tasks}; "
                f"split the plan, or raise Limits(tasks=…)",
            )
        )
    counts = Counter(task.id for task in plan.tasks)
    reported: set[str] = set()
    for task in plan.tasks:
        if counts[task.id] > 1 and task.id not in reported:
            reported.add(task.id)
            message = f"{counts[task.id]} tasks have this id; ids must be unique"
            faults.append(Fault("duplicate_id", task.id, message))
        faults += _faults_of(task, counts, roster)
        if task.description.strip() and is_vague(task.description):
            message = (
                f"{task.description.strip()!r} is too vague to be checked; say what the result is"
            )
            warnings.append(Fault("vague", task.id, message))
        if task.worker and task.on_failure is not None and task.on_failure.hands_to_anybody:
            message = (
                f"its policy says elsewhere, but it names the worker {task.worker!r} and no skill, so that "
                "the same worker tries again; give it a skill, or say elsewhere:NAME"
            )
            warnings.append(Fault("nobody_else", task.id, message))
    cycle = find_cycle(plan.tasks)
    if cycle:
        circle = " → ".join([*cycle, cycle[0]])
        needing, need = _backward_edge(cycle, plan.tasks)
        message = (
            f"tasks need each other in a circle: {circle}; drop one of these needs, "
            f"best that of {need!r} in {needing!r}"
        )
        faults.append(Fault("cycle", cycle[0], message))
    return Check(tuple(faults), tuple(warnings))


def _faults_of(
    task: Task, ids: Mapping[str, int], roster: Collection[str] | None
) -> Iterable[Fault]:
    if not _ID.fullmatch(task.id):
        yield Fault(
            "bad_id",
            task.id,
            "an id is 1 to 100 letters, digits and _ . : - and starts with a letter or digit",
        )
    if not task.description.strip():
        yield Fault(
            "empty_description", task.id, "the description is empty; say what is to be done"
        )
    if bool(task.worker) == bool(task.skill):
        yield Fault("no_worker", task.id, "name either a worker or a skill, and not both")
    elif roster is not None and (task.worker or task.skill) not in roster:
        what = "worker" if task.worker else "skill"
        have = ", ".join(sorted(roster)) or "nobody"
        yield Fault(
            "unknown_worker",
            task.id,
            f"{what} {task.worker or task.skill!r} is not on the roster ({have})",
        )
    yield from faults_of_output(task)
    yield from _faults_of_for_each(task)
    seen: set[str] = set() if task.for_each is None else {ITEM}
    for need in task.all_needs:
        if need.task == task.id:
            yield Fault("self_need", task.id, "it needs itself; drop this need")
        elif need.task not in ids:
            yield Fault("dangling_need", task.id, dangling_words(task, need, ids))
        if need.key in seen:
            yield Fault(
                "duplicate_need",
                task.id,
                f"two needs arrive as {need.key!r}; name one of them"
                if need.key != ITEM or task.for_each is None
                else "a need arrives as 'item', which is the name of the item; name the need",
            )
        seen.add(need.key)


def dangling_words(task: Task, need: Need, known: Collection[str]) -> str:
    """The message for a need that is not in the plan; for a need named by `for_each`, how to name the list."""
    if task.for_each != need.key:
        return f"it needs {need.task!r}, which is not in the plan"
    brings = next((each.task for each in task.all_needs if each.task in known), "TASK")
    return (
        f"for_each={need.key!r} is neither a task of the plan nor the name of a need; name the task that returns "
        f"the list, or name the need: Need({brings!r}, name={need.key!r})"
    )


def _faults_of_for_each(task: Task) -> Iterable[Fault]:
    over = task.for_each
    if isinstance(over, dict) and not (set(over) == {FILES} and over[FILES].strip()):
        message = (
            f"for_each={shown(over)} must be {{'files': PATTERN}}, such as {{'files': '*.txt'}}"
        )
        yield Fault("bad_for_each", task.id, message)
    if isinstance(over, list) and task.at_least is not None and task.at_least > len(over):
        message = (
            f"at_least={task.at_least} is more than the {len(over)} items of for_each; "
            f"name {len(over)} at most"
        )
        yield Fault("bad_for_each", task.id, message)
    if over == "":
        yield Fault("bad_for_each", task.id, "for_each is empty; name a need, or leave it out")


def faults_of_output(task: Task) -> Iterable[Fault]:
    """The fault of a task whose `output` is not a valid JSON schema."""
    why = None if task.output is None else fault_of(task.output)
    if why is not None:
        yield Fault("bad_output", task.id, f"output: {why}")


def _forward_needs(tasks: Sequence[Task]) -> Iterable[Fault]:
    later = {task.id for task in tasks}
    for task in tasks:
        later.discard(task.id)
        for need in task.all_needs:
            if need.task in later:
                message = f"it needs {need.task!r}, which is written after it; put that one first"
                yield Fault("forward_need", task.id, message)


def is_vague(description: str) -> bool:
    """Whether this description is too vague to tell when the task is done."""
    return bool(_VAGUE.match(description.strip()))


def _is_plain(task: Task) -> bool:
    """Whether every value in this task has exactly the type that it is stored as."""
    return (
        type(task) is Task
        and type(task.id) is type(task.description) is type(task.worker) is str
        and type(task.skill) is type(task.accept) is str
        and task.id.isascii()
        and task.description.isascii()
        and task.worker.isascii()
        and task.skill.isascii()
        and task.accept.isascii()
        and not task.args
        and task.output is None
        and task.for_each is None
        and (type(task.optional), type(task.hedge)) == (bool, bool)
        and type(task.limits) is TaskLimits
        and (task.on_failure is None or type(task.on_failure) is OnFailure)
        and not (task.needs and any(map(_is_odd, task.all_needs)))
    )


def _is_odd(need: Need) -> bool:
    is_plain = _is_plain_text(need.task, need.output, need.name)
    return not (is_plain and type(need.optional) is bool)


def _is_plain_text(*texts: str) -> bool:
    for text in texts:  # noqa: SIM110 - no generator, for speed: this runs for every task of every plan
        if type(text) is not str or not text.isascii():
            return False
    return True


def _decoded(text: str | bytes, fact: str) -> Plan:
    try:
        return _decoder.decode(text)
    except UsageError:
        raise
    except msgspec.ValidationError as error:
        raise faults_in(f"{fact}; it", _plan_faults(text) or [str(error)]) from error
    except (ValueError, OverflowError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise UsageError(f"{fact}: {error}") from error


def _plan_faults(text: str | bytes) -> list[str]:
    """All faults of a text that is no plan; none if it is not even JSON, which shows only behind the first fault."""
    try:
        document = msgspec.json.decode(text)
    except (ValueError, OverflowError, RecursionError):
        return []
    return form_faults(document, Plan, place_in_plan)


def each_words(task: Task) -> str:
    """What `for_each` runs over, in a few words; empty if the task has no `for_each`."""
    over = task.for_each
    if over is None:
        return ""
    if isinstance(over, list):
        return f"for each of {len(over):,}"
    return f"for each of {over if isinstance(over, str) else over.get(FILES, '')}"


def _mermaid_text(text: str) -> str:
    escaped = text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return " ".join(escaped.replace(">", "&gt;").split())


_decoder = msgspec.json.Decoder(Plan)
