"""Whatever a model sends and whatever a tool does, `call` gives a clean result or a `ToolError`."""

import asyncio
import base64
import builtins
import contextlib
import gc
import json
import re
import resource
import subprocess
import sys
import threading
import time
import traceback
import urllib.parse
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import date, timedelta
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from chargehand.errors import JournalFull, ModelBusy, ToolError, UsageError
from chargehand.facts.value import Value
from chargehand.sync_async_bridge import MOST_IDLE
from chargehand.tools.base import Tool, ToolContext, tool
from chargehand.tools.redaction import Redactor
from chargehand.tools.tool_output import ToolResult
from chargehand.tools.toolbox import Toolbox

HERE = ToolContext()


async def refused(called: Tool, arguments: str = "{}", context: ToolContext = HERE) -> ToolError:
    with pytest.raises(ToolError) as caught:
        await called.call(context, arguments)
    return caught.value


# Every class of exception: F1


class BadWords(Exception):
    """An exception that fails when it is asked for its words."""

    def __str__(self) -> str:
        raise ValueError("no words")


class Bare(BaseException):
    """No `Exception`."""


class Odd(Exception):
    """Asks for a wait that no clock can hold."""

    retry_after = float("inf")


def every_exception() -> Iterator[BaseException]:
    needs = {
        "UnicodeDecodeError": ("utf-8", b"x", 0, 1, "bad"),
        "UnicodeEncodeError": ("utf-8", "x", 0, 1, "bad"),
        "UnicodeTranslateError": ("x", 0, 1, "bad"),
        "BaseExceptionGroup": ("many", [Bare("one")]),
        "ExceptionGroup": ("many", [ValueError("one")]),
    }
    for name, kind in sorted(vars(builtins).items()):
        if isinstance(kind, type) and issubclass(kind, BaseException):
            yield kind(*needs.get(name, ("the words",)))
    yield from (BadWords(), Bare("bare"), Odd("odd"), asyncio.CancelledError("by itself"))
    yield from (ToolError("bad kind", kind="nonsense"), ModelBusy("busy"), JournalFull("full"))


EVERY = [pytest.param(error, id=type(error).__name__) for error in every_exception()]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize("error", EVERY)
async def test_f1_any_exception_becomes_a_tool_error(error: BaseException, is_async: bool) -> None:
    def plain() -> None:
        """Fail."""
        raise error

    async def later() -> None:
        """Fail."""
        raise error

    failure = await refused(tool(name="fails")(later if is_async else plain))
    assert str(failure)
    assert failure.__cause__ is None
    assert failure.__context__ is None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError("slow"), "timeout"),
        (PermissionError("no"), "denied"),
        (ConnectionResetError("gone"), "network"),
        (MemoryError(), "resource"),
        (SystemExit(3), "logic"),
        (ModelBusy("busy", retry_after=timedelta(seconds=9)), "resource"),
        (ToolError("mine", kind="denied"), "denied"),
    ],
)
async def test_f1_the_failure_has_the_class_of_the_exception(
    error: BaseException, kind: str
) -> None:
    @tool
    def fails() -> None:
        """Fail."""
        raise error

    failure = await refused(fails)
    assert failure.kind == kind
    assert failure.retry_after == getattr(error, "retry_after", None)


async def test_f1_the_words_name_tool_and_type_and_a_note_tells_where() -> None:
    @tool
    def fails() -> None:
        """Fail."""
        raise ValueError("the file is empty")

    failure = await refused(fails)
    assert str(failure) == "fails failed: ValueError: the file is empty"
    assert "in fails" in failure.__notes__[0]


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
async def test_f1_a_stream_that_breaks_is_a_failure_not_half_a_result(is_async: bool) -> None:
    def plain() -> Iterator[str]:
        """Break."""
        yield "half"
        raise KeyboardInterrupt

    async def later() -> AsyncIterator[str]:
        """Break."""
        yield "half"
        raise SystemExit(1)

    failure = await refused(tool(name="breaks")(later if is_async else plain))
    assert "half" not in str(failure)


async def test_cancellation_passes_through() -> None:
    started = asyncio.Event()

    @tool
    async def waits() -> None:
        """Wait."""
        started.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(waits.call(HERE, ""))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_hanging_plain_tool_is_given_up_and_holds_up_nobody() -> None:
    release = threading.Event()

    @tool(timeout=timedelta(milliseconds=30))
    def hangs() -> None:
        """Hang."""
        release.wait(30)

    @tool
    def works() -> int:
        """Work."""
        return 1

    failures = await asyncio.gather(*(refused(hangs) for _ in range(3 * MOST_IDLE)))
    assert {failure.kind for failure in failures} == {"timeout"}
    assert (await works.call(HERE, "")).value == 1
    release.set()


async def test_a_timed_out_generator_in_a_thread_stops_at_its_next_piece() -> None:
    ended = threading.Event()

    @tool(timeout=timedelta(milliseconds=50))
    def drips() -> Iterator[str]:
        """Drip."""
        try:
            while True:
                time.sleep(0.01)
                yield "."
        finally:
            ended.set()

    assert (await refused(drips)).kind == "timeout"
    assert await asyncio.to_thread(ended.wait, 5)


def test_a_hanging_tool_does_not_keep_the_program_from_ending() -> None:
    code = """
import asyncio, time
from datetime import timedelta
from chargehand.tools.base import ToolContext, tool
@tool(timeout=timedelta(milliseconds=10))
def hangs() -> None:
    "Hang."
    time.sleep(60)
try: asyncio.run(hangs.call(ToolContext(), ""))
except Exception as error: print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert "took longer" in done.stdout


# Huge output: F2

GIGABYTE = 1024**3
CHUNK = "x" * 65_536


def plain_stream() -> Iterator[str]:
    """Give a gigabyte."""
    for _ in range(GIGABYTE // len(CHUNK)):
        yield CHUNK


async def async_stream() -> AsyncIterator[str]:
    """Give a gigabyte."""
    for _ in range(GIGABYTE // len(CHUNK)):
        yield CHUNK


def json_stream() -> Iterator[dict[str, str]]:
    """Give a gigabyte."""
    for _ in range(GIGABYTE // len(CHUNK)):
        yield {"x": CHUNK}


@pytest.mark.parametrize("stream", [plain_stream, async_stream, json_stream])
@pytest.mark.parametrize("has_spool", [False, True], ids=["", "spooled"])
async def test_f2_a_gigabyte_is_cut_and_marked_without_growing(
    stream: Callable[[], Any], has_spool: bool
) -> None:
    kept: list[int] = []

    async def spool(whole: bytes) -> str:
        kept.append(len(whole))
        return "blob-1"

    context = ToolContext(spool=spool if has_spool else None)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await tool(name="stream")(stream).call(context, "")
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert growth < 64 * 1024, f"{growth} kB"
    assert result.is_truncated
    assert len(result.text.encode()) <= 64 * 1024
    assert "[cut: " in result.text[-200:]
    assert result.spooled == ("blob-1" if has_spool else "")
    assert all(size <= 8 * 1024**2 + 1 for size in kept)


async def test_f2_large_data_is_cut_with_its_full_size_named_and_spooled_whole() -> None:
    kept: list[bytes] = []

    async def spool(whole: bytes) -> str:
        kept.append(whole)
        return "blob-2"

    @tool(limit=500)
    def big() -> dict[str, str]:
        """Give much."""
        return {"é": "ü" * 4_000}

    result = await big.call(ToolContext(spool=spool), "")
    assert json.loads(kept[0]) == {"é": "ü" * 4_000}
    assert result.text.endswith(
        f"[cut: this is the beginning of {len(kept[0])} bytes; kept as blob-2]"
    )
    assert len(result.text.encode()) <= 500


async def test_f2_a_full_blob_store_does_not_undo_what_the_tool_did() -> None:
    async def spool(whole: bytes) -> str:
        raise JournalFull("no room")

    @tool(limit=300)
    def big() -> str:
        """Give much."""
        return "x" * 1_000

    result = await big.call(ToolContext(spool=spool), "")
    assert result.is_truncated
    assert result.spooled == ""


# Secrets are F12

CANARIES = {
    "PLAIN": "canary-8f3a91",
    "ODD": 'p@ss w/"ord"+&<é>\\x',
    "LONG": "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n-----END KEY-----",
    "DIGITS": "4929123456781234",
}


def forms_of(secret: str) -> Iterator[str]:
    """The secret as text, and as it is commonly encoded, also inside of something longer."""
    raw = secret.encode()
    yield secret
    yield urllib.parse.quote(secret, safe="")
    yield urllib.parse.quote(secret)
    yield urllib.parse.quote_plus(secret)
    yield re.sub("%..", lambda escape: escape[0].lower(), urllib.parse.quote(secret, safe=""))
    yield "".join(f"%{byte:02x}" for byte in raw)
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield repr(secret)[1:-1]
    yield raw.hex()
    yield raw.hex().upper()
    for before in (b"", b"a", b"ab", b"user:", b"Basic x"):
        for after in (b"", b"z", b"zz"):
            whole = before + raw + after
            yield base64.b64encode(whole).decode()
            yield base64.urlsafe_b64encode(whole).decode()
            yield base64.encodebytes(whole).decode()
            yield urllib.parse.quote(base64.b64encode(whole).decode(), safe="")
            yield json.dumps(base64.encodebytes(whole).decode())


def leaks(text: str) -> list[str]:
    """Canaries that can be got out of a text by decoding what looks encoded in it."""
    readable = [text, urllib.parse.unquote(text), urllib.parse.unquote_plus(text)]
    squeezed = text.replace("\\n", "").translate({ord(c): None for c in "\r\n "})
    one_alphabet = urllib.parse.unquote(squeezed).replace("+", "-").replace("/", "_")
    for word in re.findall(r"[A-Za-z0-9_-]{8,}=*", one_alphabet):
        for start in range(4):
            piece = word[start:].rstrip("=")
            piece = piece[: len(piece) // 4 * 4]
            readable.append(base64.urlsafe_b64decode(piece).decode(errors="replace"))
    return [name for name, secret in CANARIES.items() if any(secret in text for text in readable)]


@pytest.mark.parametrize("name", CANARIES)
async def test_f12_no_form_of_a_secret_is_in_a_result_or_an_error(name: str) -> None:
    @tool
    def echo(context: ToolContext, text: str) -> Any:
        """Echo."""
        context.progress(text)
        return {"said": [f"<<{text}>>"], text: 1}

    @tool
    def fails(context: ToolContext, text: str) -> None:
        """Fail."""
        raise RuntimeError(f"<<{text}>>") from ValueError(text)

    heard: list[str] = []
    context = ToolContext(secrets=CANARIES, report=heard.append)
    for form in forms_of(CANARIES[name]):
        arguments = json.dumps({"text": form})
        result = await echo.call(context, arguments)
        await asyncio.sleep(0)
        failure = await refused(fails, arguments, context)
        journaled = "".join(traceback.format_exception(failure))
        for sink in (result.text, json.dumps(result.value), str(failure), journaled, *heard):
            assert leaks(sink) == [], form
            assert CANARIES[name] not in sink
        assert "redacted" in result.text or "withheld" in result.text, form


async def test_f12_a_secret_in_a_refused_argument_is_not_echoed() -> None:
    @tool
    def add(number: int) -> int:
        """Add."""
        return number

    context = ToolContext(secrets=CANARIES)
    failure = await refused(add, json.dumps({"number": CANARIES["PLAIN"]}), context)
    assert CANARIES["PLAIN"] not in str(failure)
    failure = await refused(add, f'{{"number": {CANARIES["PLAIN"]}', context)
    assert CANARIES["PLAIN"] not in str(failure)


@pytest.mark.parametrize("offset", range(0, 60, 3))
async def test_f12_a_cut_leaves_no_half_of_a_secret(offset: int) -> None:
    secret = CANARIES["LONG"]

    @tool(limit=600)
    async def streams() -> AsyncIterator[str]:
        """Give the secret around the limit."""
        yield "x" * (600 - offset)
        yield secret
        yield "y" * 5_000

    result = await streams.call(ToolContext(secrets=CANARIES), "")
    assert "BEGIN" not in result.text
    assert "-----" not in result.text


async def test_f12_a_number_can_be_a_secret() -> None:
    @tool
    def card() -> dict[str, int]:
        """Give a card."""
        return {"number": int(CANARIES["DIGITS"]), "other": 7}

    result = await card.call(ToolContext(secrets=CANARIES), "")
    assert result.value == {"number": "[redacted: DIGITS]", "other": 7}


def test_f12_secrets_are_not_shown_with_the_context() -> None:
    context = ToolContext(secrets=CANARIES)
    assert not any(secret in repr(context) for secret in CANARIES.values())


def test_a_secret_too_short_to_be_kept_out_is_refused() -> None:
    with pytest.raises(UsageError, match="shorter than 6 characters"):
        ToolContext(secrets={"PIN": "1234"})


def test_granted_secrets_are_added_to_those_that_are_known() -> None:
    context = ToolContext(secrets={"A": "granted-one"}, redactor=Redactor({"A": "another-one"}))
    text = context.redactor.text("granted-one another-one")
    assert "one" not in text.replace("redacted", "")


@given(st.text(max_size=200), st.text(min_size=6, max_size=12))
def test_f12_redaction_always_removes_the_secret(text: str, secret: str) -> None:
    try:
        secret.encode()
    except UnicodeEncodeError:
        return
    cleaned = Redactor({"S": secret}).text(f"{text}{secret}{text}")
    assert secret not in cleaned.replace("[redacted: S]", "\0")


# Arguments


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Inner(BaseModel):
    x: int
    tags: list[str] = []


@tool(effect="pure")
def everything(
    text: str,
    schema: int = 0,
    model_config: bool = False,
    when: date | None = None,
    colour: Colour = Colour.RED,
    inner: Optional[Inner] = None,  # noqa: UP045 - the older spelling works too
    kind: Annotated[Literal["a", "b"], Field(description="from Annotated")] = "a",
    ratio: Annotated[float, Field(ge=0, le=1)] = 0.5,
    many: list[Inner] = [],  # noqa: B006 - copied by Pydantic
) -> str:
    """Take everything.

    Args:
        kind: from the docstring
        ratio: a part of one
    """
    return f"{text} {schema} {when} {colour} {inner} {kind} {ratio} {many} {model_config}"


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
NAMES = st.sampled_from([*everything.spec.parameters["properties"], "unknown"])


@settings(max_examples=300)
@given(st.text(max_size=60) | JSONS.map(json.dumps) | st.dictionaries(NAMES, JSONS).map(json.dumps))
def test_whatever_a_model_sends_only_tool_errors_escape(arguments: str) -> None:
    with contextlib.suppress(ToolError):
        assert isinstance(asyncio.run(everything.call(HERE, arguments)).value, str)


def test_names_that_pydantic_uses_itself_can_be_parameters() -> None:
    properties = everything.spec.parameters["properties"]
    assert properties["schema"] == {"type": "integer", "default": 0}
    assert properties["kind"]["description"] == "from Annotated"
    assert properties["ratio"]["description"] == "a part of one"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"text": "a"', "not JSON: Expecting ',' delimiter at character 12"),
        ('{"text": "a"} and more', "not JSON: Extra data"),
        ("{'text': 'a'}", "not JSON: Expecting property name"),
        ('{"text": NaN}', "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[1]", "one JSON object like {…}, not a list"),
        ('"text"', "not a string"),
        ("null", "not null"),
        ("{}", "'text' is missing; add it"),
        ('{"text": 5}', "'text': Input should be a valid string; you gave 5"),
        ('{"text": "a", "ratio": 2}', "'ratio': Input should be less than or equal to 1"),
        ('{"text": "a", "inner": {"x": "y"}}', "'inner.x': Input should be a valid integer"),
        ('{"text": "a", "rato": 1}', "did you mean 'ratio'?"),
    ],
)
async def test_bad_arguments_are_told_so_that_they_can_be_mended(
    arguments: str, words: str
) -> None:
    failure = await refused(everything, arguments)
    assert words in str(failure)
    assert failure.kind == "logic"


async def test_no_arguments_at_all_are_an_empty_object() -> None:
    @tool
    def ping() -> str:
        """Ping."""
        return "pong"

    assert (await ping.call(HERE, "")).value == "pong"
    assert "it takes none" in str(await refused(ping, '{"x": 1}'))


GOOGLE = """Do it.

More words.

Args:
    one (int): the first
        goes on: here
    two: the second

Returns:
    nothing: at all
"""
NUMPY = """Do it.

Parameters
----------
one : int
    the first
    goes on: here
two
    the second

Returns
-------
str
    nothing
"""
SPHINX = """Do it.

:param int one: the first
    goes on: here
:param two: the second
:returns: nothing
"""


@pytest.mark.parametrize("words", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_each_style_of_docstring_is_read(words: str) -> None:
    def do(one: int, two: str) -> None: ...

    do.__doc__ = words
    spec = tool(do).spec
    assert spec.description == "Do it."
    assert spec.parameters["properties"]["one"]["description"] == "the first goes on: here"
    assert spec.parameters["properties"]["two"]["description"] == "the second"


def stars(*args: int) -> None:
    """Bad."""


def double_stars(**kwargs: int) -> None:
    """Bad."""


def by_place(a: int, /) -> None:
    """Bad."""


def untyped(a) -> None:  # type: ignore[no-untyped-def]  # what is refused
    """Bad."""


def unknown_type(a: "Nowhere") -> None:  # type: ignore[name-defined]  # noqa: F821 - what is refused
    """Bad."""


def no_schema(a: threading.Thread) -> None:
    """Bad."""


def no_words(a: int) -> None: ...


@pytest.mark.parametrize(
    "function", [stars, double_stars, by_place, untyped, unknown_type, no_schema, no_words]
)
def test_a_function_that_cannot_be_a_tool_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match=function.__name__):
        tool(function)


@pytest.mark.parametrize(
    "terms",
    [
        {"effect": "sometimes"},
        {"timeout": timedelta(0)},
        {"limit": 10},
        {"name": "not a name"},
        {"name": "x" * 65},
    ],
)
def test_terms_that_make_no_sense_are_refused(terms: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        tool(**terms)(plain_stream)


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match="two tools are called 'everything'"):
        Toolbox([everything, everything])
    with pytest.raises(UsageError, match="is not a tool"):
        Toolbox([no_words])  # type: ignore[list-item]  # what is refused


# Results


@pytest.mark.parametrize("bad", [b"bytes", object(), float("nan"), {1, object()}, "\ud800"])
async def test_a_result_that_json_cannot_hold_is_a_failure(bad: object) -> None:
    @tool
    def gives() -> object:
        """Give."""
        return bad

    assert "JSON" in str(await refused(gives))


async def test_a_result_can_be_stored_as_a_step_and_read_back() -> None:
    import msgspec

    @tool(untrusted=True)
    def gives() -> dict[str, Any]:
        """Give."""
        return {"when": date(2024, 1, 2), "n": [1, None]}

    result = await gives.call(HERE, "")
    stored = Value.of(result).read()
    assert msgspec.convert(stored, ToolResult) == result
    assert result.value == {"when": "2024-01-02", "n": [1, None]}


@pytest.mark.parametrize("is_wrapped", [False, True])
async def test_a_result_of_a_plain_tool_is_read_in_its_thread_and_once(*, is_wrapped: bool) -> None:
    loop = asyncio.get_running_loop()
    asked: list[bool] = []

    class Slow:
        def model_dump(self, *, mode: str) -> object:
            gate = threading.Event()
            loop.call_soon_threadsafe(gate.set)
            asked.append(gate.wait(5))
            return {"the loop got on": asked[-1]}

    @tool(effect="pure")
    def look() -> Any:
        """Look for it."""
        return ToolResult(Slow()) if is_wrapped else Slow()

    assert (await look.call(HERE, "{}")).value == {"the loop got on": True}
    assert asked == [True]


async def test_a_tool_can_give_a_result_with_a_taint_of_its_own() -> None:
    @tool(untrusted=True)
    def gives() -> ToolResult:
        """Give."""
        return ToolResult("page", taint=("web:example.org",))

    assert (await gives.call(HERE, "")).taint == ("tool:gives", "web:example.org")


async def test_progress_from_a_thread_is_heard_on_the_loop() -> None:
    heard: list[tuple[str, bool]] = []
    home = threading.current_thread()

    def hear(text: str) -> None:
        heard.append((text, threading.current_thread() is home))

    @tool
    def works(context: ToolContext) -> None:
        """Work."""
        context.progress("half")

    await works.call(ToolContext(report=hear), "")
    await asyncio.sleep(0)
    assert heard == [("half", True)]


def test_a_destination_may_depend_on_the_arguments() -> None:
    @tool(destination=lambda values: str(values["host"]))
    def send(host: str) -> None:
        """Send."""

    assert send.destination_of('{"host": "example.org"}') == "example.org"
    with pytest.raises(ToolError):
        send.destination_of("{}")
    assert everything.destination_of("{}") is None


async def test_many_calls_at_once_share_threads_and_lose_nothing() -> None:
    @tool
    def double(n: int) -> int:
        """Double."""
        return 2 * n

    calls = [double.call(HERE, json.dumps({"n": n})) for n in range(200)]
    assert [result.value for result in await asyncio.gather(*calls)] == [2 * n for n in range(200)]
    gc.collect()


def test_importing_the_base_does_not_import_pydantic() -> None:
    code = "import sys, chargehand.tools.base, chargehand.tools.toolbox; print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# Python without docstrings or assertions


def optimised(level: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """A run of the default crew in a process of its own."""
    (folder / "prices.csv").write_text("product,price\nbag,35\numbrella,15\n")
    command = [
        sys.executable,
        level,
        "-m",
        "chargehand",
        "run",
        "What does the cheapest product cost?",
    ]
    more = ["--files", str(folder), "--model", "offline", "--journal", str(folder / "runs.db")]
    return subprocess.run(
        [*command, *more], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


def test_python_without_assertions_works_the_same(tmp_path: Path) -> None:
    done = optimised("-O", tmp_path)
    assert (done.returncode, "15" in done.stdout) == (0, True), done.stderr


def test_python_without_docstrings_is_told_as_that(tmp_path: Path) -> None:
    """Nothing is wrong with the tool: Python has dropped its docstring."""
    done = optimised("-OO", tmp_path)
    assert done.returncode == 2
    assert "PYTHONOPTIMIZE=2" in done.stderr
    assert "use -O" in done.stderr
    assert "needs a docstring" not in done.stderr
