"""What a crew can reach, in words: files, tables, resources and blocks by name, for planners; with a sample row for their own workers."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeAlias, assert_never

import msgspec
from msgspec import Struct

from chargehand.engines.brief import Brief
from chargehand.errors import UsageError
from chargehand.facts.outcome import failed_by
from chargehand.facts.plan import Reach
from chargehand.roles.data_fences import fenced
from chargehand.roles.roster import Member, Roster
from chargehand.roles.run_so_far import remembered
from chargehand.sync_async_bridge import in_thread
from chargehand.tools.base import Tool
from chargehand.tools.data_catalog import (
    FileEntry,
    Material,
    ResourceEntry,
    TableEntry,
    lists_files,
)
from chargehand.tools.redaction import NOTHING_SECRET, Redactor

log = logging.getLogger("chargehand")

#: bytes of all names together in a prompt: at most 2,000 tokens
MOST_BYTES = 5_600
#: the same in the prompt of a worker, for what its own tools reach
OWN_BYTES = 2_800
LONGEST_NAME = 120
MOST_COLUMNS = 24
#: of what is not named: folders that are, and entries that are looked at for a shorter one
MOST_FOLDERS, MOST_SKIPPED = 12, 500
#: of files that belong together
MOST_PATTERNS = 20
#: seconds that all tools together have to say what they hold
PATIENCE = 20.0
#: said of the blocks of a run; of workers, those see them that use the board
BLOCKS = "Blocks on the board of this run:"
_WORD = re.compile(r"[^\W_]{3,}|\d+")
#: letters by which words are compared: "delivered" finds "deliveries"
STEM = 5


class MaterialHolder(Struct, frozen=True):
    """Workers that can reach the same things, and what that is."""

    workers: tuple[str, ...]
    material: Material
    #: the tools that say so, if what they say is untrusted
    taint: tuple[str, ...] = ()
    #: False: they have no tools for files, whatever else they can reach
    lists_files: bool = True
    #: the names of their tools, where those say more than their descriptions
    tools: tuple[str, ...] = ()


class BlockEntry(Struct, frozen=True):
    """A block on the board of the run."""

    label: str
    version: int


Entry: TypeAlias = FileEntry | TableEntry | ResourceEntry | BlockEntry


async def material_of(roster: Roster) -> list[MaterialHolder]:
    """What each worker of a crew can reach at this moment. Files are read in a thread."""
    tools = {
        worker.name: [each for each in getattr(worker, "toolbox", ()) if _tells(each)]
        for worker in roster
    }
    return await _held_in_time(tools) if any(tools.values()) else []


def _tells(tool: Tool) -> bool:
    return tool.holds is not None or tool.is_announced


async def reach_of(roster: Roster, redactor: Redactor = NOTHING_SECRET) -> dict[str, Reach]:
    """By worker: the names of the files and tables that it can reach, without secrets.

    An LLM worker without tools reaches nothing by itself: it may be told of what the others reach.
    """
    own = {
        worker: Reach(
            _without_secrets(_paths_in(holder.material), redactor),
            _without_secrets(tuple(table.name for table in holder.material.tables), redactor),
            holder.material.is_whole,
        )
        for holder in await material_of(roster)
        if holder.lists_files
        for worker in holder.workers
    }
    bare = [worker.name for worker in roster if _has_no_tools(worker)] if own else []
    is_known = all(worker.name in own or worker.name in bare for worker in roster)
    return own | dict.fromkeys(bare, _of_all(own.values(), is_known=is_known))


def _has_no_tools(worker: Member) -> bool:
    toolbox = getattr(
        worker, "toolbox", None
    )  # functions, and whatever is no LLM worker, have none
    return toolbox is not None and not len(toolbox)


def _of_all(reaches: Iterable[Reach], *, is_known: bool) -> Reach:
    """What several workers reach together; not all of it if of others it is not known."""
    together = list(reaches)
    return Reach(
        tuple(dict.fromkeys(path for each in together for path in each.files)),
        tuple(dict.fromkeys(name for each in together for name in each.tables)),
        is_known and all(each.is_whole for each in together),
        is_own=False,
    )


def _without_secrets(names: tuple[str, ...], redactor: Redactor) -> tuple[str, ...]:
    # All at once, for there may be ten thousand, and hardly ever a secret among them.
    together = "\n".join(names)
    return names if redactor.text(together) == together else tuple(map(redactor.text, names))


def _paths_in(material: Material) -> tuple[str, ...]:
    files = [file.path for file in material.files]
    tables = [table.path for table in material.tables if table.path]
    return tuple(dict.fromkeys([*files, *tables, *(each.uri for each in material.resources)]))


async def remembered_material(
    brief: Brief,
    roster: Roster,
    request: str,
    redactor: Redactor = NOTHING_SECRET,
    blocks: Sequence[BlockEntry] = (),
) -> "MaterialWords":
    """What the crew can reach, as a system task saw it first. What is made of it is tainted."""
    if not _has_holders(roster) and not blocks:
        return MaterialWords()

    async def look() -> MaterialWords:
        return await seen_by_planner(roster, request, redactor, blocks)

    return await _told(brief, look)


async def blocks_of(brief: Brief) -> list[BlockEntry]:
    """The blocks on the board of a run, for those who change its plan. Their labels taint what is made of them."""
    try:
        board = brief.board
    except UsageError:
        return []  # its host has no boards
    labels = await board.labels()
    return [BlockEntry(each.label, each.version) for each in labels if each.version]


class MaterialWords(Struct, frozen=True):
    """What a planner is told of the material, and whose words that is."""

    words: str = ""
    taint: tuple[str, ...] = ()
    #: of files that belong together, such as `reviews/*.txt`
    patterns: tuple[str, ...] = ()

    @property
    def fenced(self) -> str:
        return fenced("material", self.words) if self.words else ""


async def seen_by_planner(
    roster: Roster,
    request: str,
    redactor: Redactor = NOTHING_SECRET,
    blocks: Sequence[BlockEntry] = (),
) -> MaterialWords:
    """What the crew can reach, for a plan that is written outside of any run."""
    holders = await material_of(roster)
    taint = dict.fromkeys(source for holder in holders for source in holder.taint)
    words = redactor.text(in_words(holders, request, MOST_BYTES, blocks=blocks))
    patterns = _without_secrets(_patterns_of(holders), redactor)
    return MaterialWords(words, tuple(taint), patterns)


def _patterns_of(holders: Sequence[MaterialHolder]) -> tuple[str, ...]:
    """Patterns for the files of one kind in one folder, where there are several; those with most files first."""
    alike: dict[str, int] = {}
    for path in dict.fromkeys(file.path for holder in holders for file in holder.material.files):
        folder, _, name = path.rpartition("/")
        stem, dot, ending = name.rpartition(".")
        if stem and ending.isalnum() and folder.isprintable():
            pattern = f"{folder}/*{dot}{ending}" if folder else f"*{dot}{ending}"
            alike[pattern] = alike.get(pattern, 0) + 1
    ranked = sorted((pattern for pattern in alike if alike[pattern] > 1), key=lambda p: -alike[p])
    return tuple(pattern for pattern in ranked if len(pattern) <= LONGEST_NAME)[:MOST_PATTERNS]


async def told_to_worker(
    brief: Brief, tools: Iterable[Tool], redactor: Redactor = NOTHING_SECRET
) -> str:
    """What a worker's own tools can reach, with a row of each table."""
    own = [tool for tool in tools if tool.holds is not None]
    if not own:
        return ""

    async def look() -> MaterialWords:
        holders = await _held_in_time({"": own})
        taint = dict.fromkeys(source for holder in holders for source in holder.taint)
        words = in_words(holders, brief.task.description, OWN_BYTES, has_samples=True)
        return MaterialWords(redactor.text(words), tuple(taint))

    return (await _told(brief, look)).fenced


async def _told(brief: Brief, look: Callable[[], Awaitable[MaterialWords]]) -> MaterialWords:
    # Remembered: a resumed attempt must say to its model what it said before.
    told = msgspec.convert(await remembered(brief, "material", look), MaterialWords)
    if told.words:
        brief.distrust(*told.taint)
    return told


def _has_holders(roster: Roster) -> bool:
    return any(_tells(tool) for worker in roster for tool in getattr(worker, "toolbox", ()))


async def _held_in_time(tools: "dict[str, list[Tool]]") -> list[MaterialHolder]:
    """What the tools hold, asked in a thread; nothing, with a warning, if that takes too long."""
    try:
        async with asyncio.timeout(PATIENCE):
            found: list[MaterialHolder] = await in_thread(_held, tools)
            return found
    except TimeoutError:
        names = ", ".join(dict.fromkeys(tool.name for own in tools.values() for tool in own))
        log.warning("material_not_read tools=%s; it took longer than %g s", names, PATIENCE)
        return []


def _held(tools: "dict[str, list[Tool]]") -> list[MaterialHolder]:
    """What the tools of each worker hold, workers with the same together; each source is asked once."""
    asked: dict[Callable[[], Material], Material] = {}
    groups: dict[tuple[object, ...], list[str]] = {}
    for worker, own in tools.items():
        for tool in own:
            if tool.holds is not None and tool.holds not in asked:
                asked[tool.holds] = _asked(tool)
        sources = dict.fromkeys(tool.holds for tool in own if tool.holds is not None)
        announced = [tool.name for tool in own if tool.is_announced]
        if sources or announced:
            groups.setdefault((*sources, *announced), []).append(worker)
    return [_holder(workers, tools[workers[0]], asked) for workers in groups.values()]


def _holder(
    workers: Sequence[str], own: Sequence[Tool], asked: Mapping[Callable[[], Material], Material]
) -> MaterialHolder:
    sources = list(dict.fromkeys(tool.holds for tool in own if tool.holds is not None))
    held = [asked[source] for source in sources]
    material = Material(
        tuple(file for each in held for file in each.files),
        tuple(table for each in held for table in each.tables),
        all(each.is_whole for each in held),
        tuple(resource for each in held for resource in each.resources),
    )
    # The name of a tool was approved with its definition, so it taints nothing.
    taint = [
        f"tool:{tool.name}"
        for tool in own
        if tool.untrusted and tool.holds is not None and asked[tool.holds] != Material()
    ]
    return MaterialHolder(
        tuple(workers),
        material,
        tuple(dict.fromkeys(taint)),
        any(map(lists_files, sources)),
        tuple(tool.name for tool in own if tool.is_announced),
    )


def _asked(tool: Tool) -> Material:
    """What a tool says that it holds; nothing, with a warning, if it cannot say."""
    assert tool.holds is not None  # noqa: S101 - for the type checker
    try:
        found = tool.holds()
        if isinstance(found, Material):
            return found
        raise TypeError(f"holds returned {type(found).__name__}, not a Material")  # noqa: TRY301 - said as the others
    except (Exception, SystemExit) as error:  # noqa: BLE001 - nobody's plan fails for it
        log.warning("material_not_read tool=%s error=%s", tool.name, failed_by(error).message)
        return Material()


def in_words(
    holders: Sequence[MaterialHolder],
    about: str,
    most: int,
    *,
    has_samples: bool = False,
    blocks: Sequence[BlockEntry] = (),
) -> str:
    """Names of what can be reached, those first that fit what it is about, in so many bytes at most."""
    wanted = {word[:STEM] for word in _WORD.findall(about.casefold())}
    parts: list[str] = []
    if blocks:
        parts.append(_listed(BLOCKS, blocks, wanted, most // 4, has_samples=False))
        most -= most // 4
    for holder in holders:
        who = " and ".join(holder.workers)
        held = holder.material
        kinds: list[tuple[str, Sequence[Entry]]] = [
            (f"Tables that {who or 'your tools'} can query:", held.tables),
            (f"Files that {who or 'your tools'} can read:", held.files),
            (f"Resources that {who or 'your tools'} can read:", held.resources),
        ]
        present = [each for each in kinds if each[1]]
        room = most // len(holders) // max(1, len(present) + bool(holder.tools))
        parts += [
            _listed(head, entries, wanted, room, has_samples=has_samples)
            for head, entries in present
        ]
        if holder.tools:
            parts.append(_tools_in_words(who, holder.tools, room))
    return "\n".join(parts)


def _tools_in_words(who: str, tools: Sequence[str], room: int) -> str:
    line = f"Tools that {who} can call: {', '.join(tools)}"
    return line if len(line) <= room else f"{line[: room - 1]}…"


def _listed(
    head: str,
    entries: Sequence[Entry],
    wanted: Collection[str],
    room: int,
    *,
    has_samples: bool,
) -> str:
    """The entries that fit, those first that have most words of the request; then how many there are besides."""

    def rank(entry: Entry) -> int:
        text = _sought_in(entry).casefold()
        return -sum(word in text for word in wanted)

    left = room - len(head) - 200  # for what is said of the rest
    shown: list[str] = []
    rest: list[str] = []
    ranked = sorted(entries, key=rank)  # stable: otherwise as they were found
    for entry in ranked:
        line = f"- {_words_of(entry, has_samples=has_samples)}"
        left -= len(line.encode()) + 1
        if left < 0:
            left += len(line.encode()) + 1
            if len(rest) > MOST_SKIPPED:
                break
            # A long one hides no short one behind it.
            rest.append(entry.path if isinstance(entry, FileEntry | TableEntry) else "")
            continue
        shown.append(line)
    hidden = len(ranked) - len(shown)
    more = [_counted(rest, hidden)] if hidden else []
    return "\n".join([head, *shown, *more])


def _sought_in(entry: Entry) -> str:
    match entry:
        case FileEntry():
            return entry.path
        case TableEntry():
            return f"{entry.name} {entry.path} {' '.join(name for name, _ in entry.columns)}"
        case ResourceEntry():
            return f"{entry.uri} {entry.name}"
        case BlockEntry():
            return entry.label
        case _:
            assert_never(entry)


def _counted(paths: Sequence[str], count: int) -> str:
    folders: dict[str, int] = {}
    for path in filter(None, paths):
        folder = path.rpartition("/")[0] or "."
        folders[folder] = folders.get(folder, 0) + 1
    most = sorted(folders.items(), key=lambda each: -each[1])[:MOST_FOLDERS]
    where = f", in {', '.join(_name(folder) for folder, _ in most)}" if most else ""
    return f"and {count} more{where}"[:200]


def _words_of(entry: Entry, *, has_samples: bool) -> str:
    match entry:
        case FileEntry():
            return f"{_name(entry.path)} ({_size(entry.bytes)})"
        case ResourceEntry():
            about = ", ".join(_name(each) for each in (entry.name, entry.kind) if each)
            return f"{_name(entry.uri)} ({about})" if about else _name(entry.uri)
        case BlockEntry():
            return f"{_name(entry.label)} (version {entry.version})"
        case _:
            return _table_in_words(entry, has_samples=has_samples)


def _table_in_words(table: TableEntry, *, has_samples: bool) -> str:
    columns = ", ".join(_name(f"{name} {kind}") for name, kind in table.columns[:MOST_COLUMNS])
    more = ", …" if len(table.columns) > MOST_COLUMNS else ""
    rows = "" if table.rows is None else f"; {table.rows} rows"
    sample = f"; first: {_name(table.sample)}" if has_samples and table.sample else ""
    failed = f"; cannot be read: {_name(table.error)}" if table.error else ""
    inside = f"{columns}{more}{rows}{sample}{failed}".removeprefix("; ")
    of = f" of {_name(table.path)}" if table.path else ""
    return f"{_name(table.name)}{of} ({inside})" if inside else f"{_name(table.name)}{of}"


def _name(name: str) -> str:
    """A name on one line, whatever is in it."""
    plain = "".join(each if each.isprintable() else "?" for each in name)
    return plain if len(plain) <= LONGEST_NAME else f"{plain[: LONGEST_NAME - 1]}…"


def _size(count: int) -> str:
    if count < 1_000:
        return f"{count} bytes"
    return f"{count / 1_000:.0f} kB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"
