"""Secrets are found in every encoding, whatever stands around them, and any text is read in linear time."""

import base64
import html
import json
import urllib.parse
from collections.abc import Callable

import pytest

from chargehand.tools.redaction import RedactedStream, Redactor

SECRETS = [
    "hunter2-and-more",
    'C:\\new\\"dir',
    "\\\\srv\\share x",
    "pä55wörd😀!",
    "a\nb\tc\rddd",
    "\\\\\\\\\\\\x",
]


def as_json(text: str) -> str:
    return json.dumps(text)[1:-1]


def as_escapes(text: str) -> str:
    units = text.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


ENCODINGS: list[Callable[[str], str]] = [
    str,
    as_json,
    lambda text: as_json(as_json(text)),
    lambda text: as_json(as_json(as_json(text))),
    as_escapes,
    urllib.parse.quote,
    lambda text: urllib.parse.quote(urllib.parse.quote(text)),
    html.escape,
    lambda text: "".join(f"&#{ord(each)};" for each in text),
    lambda text: base64.b64encode(text.encode()).decode(),
    lambda text: text.encode().hex(),
]
BEFORE = ["", "x", "\\", "\\\\", "\\" * 40, "%", "%2", "&#", "text ", "\\u00", "\\u0068"]
AFTER = ["", " end", "\\", "%4", "u"]
#: what a hostile text may repeat to keep a pattern busy
UNITS = ["\\", "%", "%2", "%41", "\\u00", "\\u", "\\x", "&#", "&#0", "h\\", "hun", "aHVu ", "\\n"]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_found_in_every_encoding_whatever_stands_around_it(secret: str) -> None:
    redactor = Redactor({"key": secret})
    for encoded in ENCODINGS:
        for before in BEFORE:
            for after in AFTER:
                shown = redactor.text(before + encoded(secret) + after)
                assert "[redacted: key]" in shown, (encoded(secret), before, after)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_found_wherever_a_stream_is_cut(secret: str, size: int) -> None:
    redactor = Redactor({"key": secret})
    for encoded in ENCODINGS:
        for before in BEFORE:
            text, stream = f"{before}{encoded(secret)} end", RedactedStream(redactor)
            pieces = [stream.take(text[at : at + size]) for at in range(0, len(text), size)]
            shown = "".join((*pieces, stream.rest()))
            assert "[redacted: key]" in shown, (encoded(secret), before)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("secret", [*SECRETS, "-----BEGIN KEY-----\n" + "aB3/" * 700])
def test_no_text_keeps_a_redactor_busy(secret: str) -> None:
    """Patterns hold the interpreter's lock: one that takes for ever stops the whole process, timeouts included."""
    redactor = Redactor({"key": secret})
    for unit in (*UNITS, secret[:3]):
        for count in (34, 200_000 // len(unit)):
            text = f"{unit * count}!"
            assert redactor.text(text).endswith("!")
            stream = RedactedStream(redactor)
            assert (stream.take(text) + stream.rest()).endswith("!")


def test_white_space_around_a_secret_is_no_part_of_it() -> None:
    """A key that was read from a file ends with a newline, and tools strip it before they use it."""
    redactor = Redactor({"key": "hunter2-and-more\n"})
    assert redactor.text("Authorization: Bearer hunter2-and-more") == (
        "Authorization: Bearer [redacted: key]"
    )
    assert redactor.text("hunter2-and-more\nend") == "[redacted: key]\nend"
