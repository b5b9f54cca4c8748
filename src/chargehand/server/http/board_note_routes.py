"""The route for notes, which workers and people have written on the board of a run."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from msgspec import Struct
from starlette.responses import Response

from chargehand.facts.board import Note, NoteQuery, board_of_run
from chargehand.server.http.api_context import ApiContext, Caller
from chargehand.server.http.error_bodies import json_response
from chargehand.server.http.event_json import preview_words
from chargehand.server.http.openapi_schemas import returns
from chargehand.server.http.run_cache import PostedBy

#: most notes in a reply, and most bytes of a note's content
MOST_NOTES, MOST_CONTENT = 500, 16_000


class NoteView(Struct, frozen=True, kw_only=True):
    """A note on the board of a run."""

    #: its number on the board; newer notes have larger numbers
    seq: int
    at: datetime
    author: str
    segment: str
    tags: tuple[str, ...]
    importance: float
    metadata: dict[str, Any]
    #: the task whose attempt wrote the note; empty if it was written outside the run
    task: str
    attempt: int | None
    #: untrusted sources that the note derives from
    taint: tuple[str, ...]
    size: int
    #: of a large note, only the beginning, as text
    content: Any
    truncated: bool


class NoteList(Struct, frozen=True):
    """Notes, newest first."""

    notes: list[NoteView]
    #: whether there are older notes that match
    has_more: bool


def note_routes(api: ApiContext) -> APIRouter:
    """Create the route for a server."""
    router = APIRouter(prefix="/runs/{run}/notes", tags=["board"])

    @router.get("", **returns(NoteList))
    async def notes(
        run: str,
        grant: Caller,
        author: Annotated[str, Query(max_length=200)] = "",
        tag: Annotated[str, Query(max_length=200)] = "",
        segment: Annotated[str, Query(max_length=200)] = "",
        limit: Annotated[int, Query(ge=1, le=MOST_NOTES)] = 100,
    ) -> Response:
        """The notes on the board of a run, newest first, without what happened to the run."""
        record = await api.runs.find(run, grant.namespace)
        query = NoteQuery(
            author=author,
            tags=(tag,) if tag else (),
            segments=(segment,) if segment else (),
            limit=limit + 1,
        )
        found = await api.boss.journal.boards.notes(board_of_run(run), query)
        views = [_note_view(note, record.posted) for note in found[:limit]]
        return json_response(NoteList(views, len(found) > limit))

    return router


def _note_view(note: Note, posted: Mapping[tuple[int, datetime], PostedBy]) -> NoteView:
    stored = note.stored
    size = stored.size if stored.blob else len(stored.json)
    is_cut = bool(stored.blob) or size > MOST_CONTENT
    by = posted.get((note.seq, note.at))
    return NoteView(
        seq=note.seq,
        at=note.at,
        author=note.author,
        segment=note.segment,
        tags=note.tags,
        importance=note.importance,
        metadata=note.metadata,
        task="" if by is None else by.task,
        attempt=None if by is None else by.attempt,
        taint=note.taint,
        size=size,
        content=_beginning(note) if is_cut else note.content,
        truncated=is_cut,
    )


def _beginning(note: Note) -> str:
    """The beginning of a large note; empty if its content is in a blob."""
    return "" if note.stored.blob else preview_words(note.stored, MOST_CONTENT)
