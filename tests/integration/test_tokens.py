"""Tokens: what models write for tasks, streamed to those who asked for it and to nobody else."""

import asyncio
import base64
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import pytest

import chargehand as ch
from chargehand.engines.text_streams import MOST_WAITING, TextStreams
from chargehand.errors import ModelUnreachable, UsageError
from chargehand.facts.events import AttemptStarted, RunFinished, StepFinished
from chargehand.models.base import ModelReply, ModelRequest
from chargehand.tools.redaction import RedactedStream, Redactor

WORDS = "The first page is about ships, and the second about the sea."
SECRET = "sk-live/4f9a=7c1e+2b8d"


def crew(*said: str, **options: object) -> ch.Supervisor:
    model = ch.ScriptedModel([*said])
    return ch.Supervisor([ch.Worker("writer", "Writes", model=model)], **options)  # type: ignore[arg-type]  # as given by a test


def one_task() -> ch.Plan:
    return ch.Plan(goal="Write", tasks=[ch.Task(id="w", description="Write", worker="writer")])


def text_of(pieces: list[ch.TaskPiece]) -> str:
    text = ""
    for piece in pieces:
        text = piece.text if piece.begins_anew else text + piece.text
    return text


async def test_tokens_of_a_worker_come_between_the_events_of_its_call() -> None:
    """The pieces add up to the reply, and none is in the journal."""
    boss = crew(WORDS)
    heard = [each async for each in boss.stream(one_task(), tokens=True)]
    pieces = [each for each in heard if isinstance(each, ch.TaskPiece)]
    assert len(pieces) > 3
    assert text_of(pieces) == WORDS
    assert {(piece.task, piece.attempt, piece.call) for piece in pieces} == {("w", 1, 1)}
    ended = next(i for i, each in enumerate(heard) if isinstance(each, StepFinished))
    assert heard.index(pieces[-1]) < ended
    assert isinstance(heard[-1], RunFinished)
    stored = [entry.event async for entry in boss.journal.read(heard[0].run)]  # type: ignore[union-attr]  # `RunRequested`
    assert stored == [each for each in heard if not isinstance(each, ch.TaskPiece | ch.AnswerPiece)]


async def test_nothing_is_streamed_unless_it_is_asked_for() -> None:
    """Without a reader, a worker's model is asked for its whole reply at once."""

    class Whole(ch.ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelReply]:
            raise AssertionError(f"nobody listens to {request}")
            yield

    boss = ch.Supervisor([ch.Worker("writer", "Writes", model=Whole([WORDS]))])
    heard = [each async for each in boss.stream(one_task())]
    assert not any(isinstance(each, ch.TaskPiece) for each in heard)
    assert isinstance(heard[-1], RunFinished)
    assert heard[-1].status == "succeeded", heard[-1]
    with pytest.raises(UsageError, match="tokens"):
        await anext(boss.stream(one_task(), tokens="yes"))  # type: ignore[call-overload]


async def test_a_reply_that_broke_off_is_taken_back() -> None:
    """Readers drop what they have of a call that begins anew."""

    class Breaking(ch.ScriptedModel):
        tries = 0

        async def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelReply]:
            self.tries += 1
            if self.tries == 1:
                yield "Half a sen"
                raise ModelUnreachable("the line is gone")
            async for piece in super().stream(request):
                yield piece

    boss = ch.Supervisor([ch.Worker("writer", "Writes", model=Breaking([WORDS]))])
    heard = [each async for each in boss.stream(one_task(), tokens=True)]
    pieces = [each for each in heard if isinstance(each, ch.TaskPiece)]
    assert pieces[0].text == "Half a sen"
    assert [piece.begins_anew for piece in pieces[:3]] == [False, True, False]
    assert text_of(pieces) == WORDS


async def test_a_watcher_in_the_leading_process_gets_tokens_and_the_answer(tmp_path: Path) -> None:
    """The model goes on only once its first piece was heard. Another process gets the events alone."""
    go_on = asyncio.Event()

    class Waiting(ch.ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelReply]:
            async for piece in super().stream(request):
                yield piece
                await go_on.wait()

    writer = ch.Worker("writer", "Writes", model=Waiting([WORDS]))
    journal = tmp_path / "runs.db"
    async with ch.Supervisor([writer], journal=journal) as boss:
        run = await boss.submit(one_task())
        heard = []
        async for each in boss.watch(run.id, tokens=True):
            heard.append(each)
            if isinstance(each, ch.TaskPiece):
                go_on.set()
        result = await run.wait()
    async with ch.Supervisor([writer], journal=journal) as other:
        seen = [each async for each in other.watch(run.id, tokens=True)]
    assert seen == [each for each in heard if not isinstance(each, ch.TaskPiece | ch.AnswerPiece)]
    pieces = [each for each in heard if isinstance(each, ch.TaskPiece)]
    assert text_of(pieces) == WORDS
    began = next(i for i, each in enumerate(heard) if isinstance(each, AttemptStarted))
    assert heard.index(pieces[0]) > began, "a piece must not overtake the start of its attempt"
    assert isinstance(heard[-1], RunFinished)
    assert result.tasks["w"].output == WORDS


async def test_tokens_of_a_nested_run_are_found_under_its_own_id() -> None:
    """The supervisor at the top passes them on; the run above streams none of them."""
    inner = crew(WORDS, name="inner", plan_for=lambda _: one_task())
    boss = ch.Supervisor([inner])
    plan = ch.Plan(goal="Go", tasks=[ch.Task(id="n", description="Go", worker="inner")])
    pieces: list[object] = []

    @inner.on(ch.events.RunRequested)
    def begun(run: str, _: ch.events.RunRequested) -> None:
        boss.text_streams.add(run, queue, tokens=True)

    queue: asyncio.Queue[object] = asyncio.Queue()
    heard = [each async for each in boss.stream(plan, tokens=True)]
    while not queue.empty():
        pieces.append(queue.get_nowait())
    assert not any(isinstance(each, ch.TaskPiece) for each in heard)
    assert text_of([each for each in pieces if isinstance(each, ch.TaskPiece)]) == WORDS


async def test_a_slow_reader_misses_pieces_of_tasks_and_nothing_else() -> None:
    """What is dropped is counted, and pieces of the answer are kept."""
    streams = TextStreams()
    with streams.reading("r", tokens=True) as queue, streams.reading("r", tokens=False) as other:
        for _ in range(MOST_WAITING + 10):
            streams.say("r", ch.TaskPiece(task="w", attempt=1, call=1, text="word "))
        answer = ch.AnswerPiece(text="42", at=datetime.now(UTC))
        streams.say("r", answer)
        assert queue.qsize() == MOST_WAITING + 1
        while not queue.empty():
            last = queue.get_nowait()
        assert last is answer
        streams.say("r", ch.TaskPiece(task="w", attempt=1, call=1, text="end"))
        assert queue.get_nowait() == ch.TaskPiece(
            task="w", attempt=1, call=1, text="end", skipped=50
        )
        assert other.qsize() == 1
    assert not streams.wants_tokens("r")


FORMS = (
    SECRET,
    quote(SECRET, safe=""),
    SECRET.encode().hex().upper(),
    base64.b64encode(b"x" + SECRET.encode() + b"yz").decode(),
    "\n".join(base64.b64encode(SECRET.encode()).decode()[i : i + 7] for i in range(0, 32, 7)),
    "".join(f"\\u{ord(c):04x}" for c in SECRET),
    "".join(f"&#{ord(c)};" for c in SECRET),
)


@pytest.mark.parametrize("form", FORMS)
def test_a_secret_across_pieces_is_redacted_as_if_it_came_whole(form: str) -> None:
    """However the text is cut, what is shown is the redacted text, in any encoding of the secret."""
    redactor = Redactor({"KEY": SECRET, "OTHER": "hunter2hunter2"})
    chance = random.Random(form)
    text = f"Before sk-live it {form} and sk-li after, hunter2h 100% \\u12 &am"
    whole = redactor.text(text)
    assert "redacted: KEY" in whole
    for _ in range(60):
        stream, shown, at = RedactedStream(redactor), "", 0
        while at < len(text):
            step = chance.choice((1, 2, 3, 5, 20))
            shown += stream.take(text[at : at + step])
            at += step
        assert shown + stream.rest() == whole


def test_text_without_secrets_is_not_held_back() -> None:
    """Only what may be the beginning of a secret waits."""
    stream = RedactedStream(Redactor({"KEY": SECRET}))
    assert stream.take("The ship sails on. ") == "The ship sails on. "
    assert stream.take("Now sk-li") == "Now "
    assert stream.take("fe is short.") == "sk-life is short."
    assert RedactedStream(Redactor({})).take("any sk-li") == "any sk-li"


def test_one_secret_within_another_is_not_shown_in_part() -> None:
    """The shorter one comes first; what follows it is a part of the longer."""
    redactor = Redactor({"SHORT": "abcdef1", "LONG": "abcdef123456789"})
    stream = RedactedStream(redactor)
    text = "it is abcdef123456789 here, and abcdef1 there. " * 12
    pieces = [stream.take(text[i : i + 3]) for i in range(0, len(text), 3)]
    assert len(list(filter(None, pieces))) > 1
    assert "".join(pieces) + stream.rest() == redactor.text(text)


async def test_a_worker_that_says_a_secret_streams_its_name() -> None:
    """The pieces come through the redactor of the supervisor."""
    boss = crew(f"the key is {SECRET} indeed", secrets={"KEY": SECRET})
    pieces = [
        each
        async for each in boss.stream(one_task(), tokens=True)
        if isinstance(each, ch.TaskPiece)
    ]
    assert text_of(pieces) == "the key is [redacted: KEY] indeed"
    assert not any(SECRET[:8] in piece.text for piece in pieces)


async def test_a_cached_reply_is_streamed_too() -> None:
    """A call that is not made again costs nothing, whether anybody listens or not."""
    settings = ch.ModelSettings(temperature=0)
    model = ch.ScriptedModel([WORDS])
    boss = ch.Supervisor([ch.Worker("writer", "Writes", model=model, settings=settings)])
    await boss.run(one_task())
    pieces = [
        each
        async for each in boss.stream(one_task(), tokens=True)
        if isinstance(each, ch.TaskPiece)
    ]
    assert text_of(pieces) == WORDS
    assert len(model.requests) == 1
