"""Removes secrets from everything that leaves a tool call: results, errors, progress."""

import base64
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from chargehand.errors import UsageError

#: a shorter secret would often match innocent text by chance
SHORTEST_SECRET = 6

_WRAPPINGS = ("\\r", "\\n", "\r", "\n", " ", "\t")
_WRAPPED = "(?:" + "|".join(map(re.escape, _WRAPPINGS)) + ")*"
# Texts come from tools and models, so every pattern must take linear time on any text. A run of backslashes is
# therefore matched from its first one only, and never in part.
_FIRST_SLASHES, _SLASHES = r"(?<!\\)\\++", r"\\++"
#: after backslashes of the secret itself, whose pattern has taken all there are
_SLASHES_TAKEN = r"\\*+"
#: an incomplete escape sequence at the end of a piece of text, of one character at most
_HALF_ESCAPE = (
    r"(?:(?:%[0-9a-fA-F]{0,4}){1,4}+"
    rf"|{_FIRST_SLASHES}[ux]?[0-9a-fA-F]{{0,4}}(?:{_SLASHES}u?[0-9a-fA-F]{{0,4}})?"
    r"|&#?[0-9a-zA-Z]{0,9})?"
)
#: characters of a secret that do not occur by chance: text that contains them is held back
_TELLING = 12
_NORMAL = (
    ("-", "+"),
    ("_", "/"),
    ("\\/", "/"),
    ("%2b", "+"),
    ("%2B", "+"),
    ("%2f", "/"),
    ("%2F", "/"),
)
_HTML = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}
_SHORT_ESCAPES = {"\n": "n", "\r": "r", "\t": "t", '"': '"', "'": "'", "\\": "\\", "/": "/"}


class Redactor:
    """Replaces secret values, plain and in common encodings, by their names.

    Also finds a secret inside a longer base64 text, at any offset, and a secret of which only some
    characters are escaped for a URL, for JSON or for HTML.
    """

    def __init__(self, secrets: Mapping[str, str] | None = None, *, mark: str = "") -> None:
        """`mark` stands for every secret; empty: `[redacted: …]` with its name."""
        self._secrets = dict(secrets or {})
        self._mark = mark
        longest_first = sorted(self._secrets.items(), key=lambda item: -len(item[1]))
        self._traces = [_Trace(name, _bare(value), mark) for name, value in longest_first]
        #: one secret contains another: only the text that follows shows which of the two it is
        values = set(map(_bare, self._secrets.values()))
        self._is_nested = any(a != b and a in b for a in values for b in values)
        self._is_numeric = any(_looks_numeric(value) for value in self._secrets.values())

    def __repr__(self) -> str:
        return f"<redactor of {', '.join(self._secrets) or 'nothing'}>"

    @property
    def margin(self) -> int:
        """The length of the longest encoded secret.

        After text was cut, drop this many characters from its end: they may contain part of a secret.
        """
        return max((8 * len(value.encode()) for value in self._secrets.values()), default=0)

    def covers(self, values: Iterable[str]) -> bool:
        known = set(self._secrets.values())
        return all(value in known for value in values)

    def including(self, secrets: Mapping[str, str]) -> "Redactor":
        """A redactor for these secrets too."""
        fresh = {name: value for name, value in secrets.items() if not self.covers([value])}
        # A name may already stand for another value; keep both values.
        renamed = {f"{name}*" if name in self._secrets else name: v for name, v in fresh.items()}
        return Redactor(self._secrets | renamed, mark=self._mark)

    def text(self, text: str) -> str:
        for trace in self._traces:
            text = trace.removed_from(text)
        return text

    def divided(self, text: str) -> tuple[str, str]:
        """Split an unfinished text: the redacted part that can be shown, and the rest, where a secret may begin."""
        if self._is_nested:
            cut = self._cut_in(text)
            return self.text(text[:cut]), text[cut:]
        text = self.text(text)
        begun = (trace.begun_at(text, self.margin) for trace in self._traces)
        cut = min(begun, default=len(text))
        return text[:cut], text[cut:]

    def _cut_in(self, text: str) -> int:
        """A position that splits no secret, far enough from the end that every secret before it is complete."""
        if len(text) > 2 * self.margin:
            whole = self.text(text)
            for cut in range(len(text) - self.margin, self.margin // 2, -1):
                if self.text(text[:cut]) + self.text(text[cut:]) == whole:
                    return cut
        return 0

    def data(self, data: Any) -> Any:
        """The JSON data without secrets, in keys as well as in values."""
        if not self._traces:
            return data
        if isinstance(data, str):
            return self.text(data)
        if isinstance(data, list):
            return [self.data(item) for item in data]
        if isinstance(data, dict):
            return {self.text(key): self.data(value) for key, value in data.items()}
        if self._is_numeric and isinstance(data, (int, float)):
            shown = repr(data)
            cleaned = self.text(shown)
            return data if cleaned == shown else cleaned
        return data


class RedactedStream:
    """Redacts text that arrives in pieces: a possible beginning of a secret is held back until more arrives."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""

    def take(self, piece: str) -> str:
        """Add a piece; returns the redacted text that can be shown now."""
        shown, self._held = self._redactor.divided(self._held + piece)
        return shown

    def rest(self) -> str:
        """The text that was held back; call it after the last piece."""
        held, self._held = self._held, ""
        return self._redactor.text(held)


def _bare(secret: str) -> str:
    """The secret without white space around it, such as the newline at the end of a file: tools strip it."""
    bare = secret.strip()
    return bare if len(bare) >= SHORTEST_SECRET else secret


class _Trace:
    """Finds and replaces one secret in all its forms."""

    def __init__(self, name: str, value: str, mark: str) -> None:
        if len(value) < SHORTEST_SECRET:
            raise UsageError(
                f"secret {name!r} is shorter than {SHORTEST_SECRET} characters, so it cannot be "
                "kept out of texts; use a longer one"
            )
        self._mark = mark or f"[redacted: {name}]"
        self._value = value
        self._hex = value.encode().hex()
        self._cores = _base64_cores(value.encode())
        self._escapes = set("%\\&") | ({"+"} if " " in value else set())
        self._escaped = re.compile("".join(_any_forms(value)))
        self._encoded = re.compile("|".join(map(_core_pattern, self._cores)))

    @cached_property
    def _begun(self) -> re.Pattern[str]:
        """Matches the first characters of the secret in any form; at the end of a text, fewer are enough."""
        forms = [
            _any_forms(self._value[:_TELLING]),
            [f"(?i:{digit})" for digit in self._hex[:_TELLING]],
            *([f"{_spelt(c)}{_WRAPPED}" for c in core[:_TELLING]] for core in self._cores),
        ]
        whole = "|".join("".join(form) for form in forms)
        parts = "|".join(map(_nested, forms))
        return re.compile(f"(?:{whole})|(?:{parts})?{_HALF_ESCAPE}\\Z")

    def begun_at(self, text: str, margin: int) -> int:
        # A secret that began before the margin would be complete. A slice, so that a run of backslashes may
        # begin at its start.
        start = max(0, len(text) - margin)
        found = self._begun.search(text[start:])
        return len(text) if found is None else start + found.start()

    def removed_from(self, text: str) -> str:
        if self._value in text:
            text = text.replace(self._value, self._mark)
        if any(sign in text for sign in self._escapes):
            text = self._escaped.sub(lambda _: self._mark, text)
        if self._hex in text.lower():
            text = re.sub(self._hex, lambda _: self._mark, text, flags=re.IGNORECASE)
        if self._hides_in(text):
            text = self._encoded.sub(lambda _: self._mark, text)
            if self._hides_in(text):
                # Wrapped in a way that the pattern does not match: withhold the whole text.
                return f"[withheld: it holds {self._mark}]"
        return text

    def _hides_in(self, text: str) -> bool:
        plain = _unwrapped(text)
        return any(core in plain for core in self._cores)


def _any_forms(value: str) -> list[str]:
    """Patterns for the characters of a secret. Its backslashes in a row have one, for a row of any length."""
    forms: list[str] = []
    slashes = _FIRST_SLASHES
    for characters in re.findall(r"\\+|[^\\]", value):
        if characters.startswith("\\"):
            forms.append(
                rf"(?:{slashes}(?:u005[cC]|x5[cC])?|%(?:25)?5[cC]|&#0*92;|&#[xX]0*5[cC];)++"
            )
            slashes = _SLASHES_TAKEN
        else:
            forms.append(_any_form(characters, slashes))
            slashes = _SLASHES
    return forms


def _any_form(character: str, slashes: str) -> str:
    """A pattern for one character: plain, or escaped for a URL, for JSON and source code, or for HTML."""
    utf8 = "".join(f"%(?:25)?{_hex_pattern(f'{byte:02x}')}" for byte in character.encode())
    utf16 = character.encode("utf-16-be").hex()
    units = [utf16[at : at + 4] for at in range(0, len(utf16), 4)]
    point = ord(character)
    forms = [
        re.escape(character),
        utf8,
        slashes + _SLASHES.join(f"u{_hex_pattern(unit)}" for unit in units),
        rf"&#0*{point};",
        rf"&#[xX]0*{_hex_pattern(f'{point:x}')};",
    ]
    if point < 256:
        forms.append(rf"{slashes}x{_hex_pattern(f'{point:02x}')}")
    if character in _SHORT_ESCAPES:
        forms.append(rf"{slashes}{re.escape(_SHORT_ESCAPES[character])}")
    if character in _HTML:
        forms.append(f"&{_HTML[character]};")
    if character == " ":
        forms.append(r"\+")
    return f"(?:{'|'.join(forms)})"


def _hex_pattern(digits: str) -> str:
    return "".join(f"[{d}{d.upper()}]" if d.isalpha() else d for d in digits)


def _base64_cores(secret: bytes) -> tuple[str, ...]:
    """The parts of the secret's base64 form that do not depend on the bytes before and after it.

    Three bytes make four characters, so there are three possible alignments.
    """
    cores = []
    for offset in range(3):
        encoded = base64.b64encode(bytes(offset) + secret).decode()
        first = -(-offset * 8 // 6)
        cores.append(encoded[first : (offset + len(secret)) * 8 // 6])
    return tuple(cores)


def _core_pattern(core: str) -> str:
    return _WRAPPED.join(map(_spelt, core))


def _spelt(character: str) -> str:
    return {"+": r"(?:[+-]|%2[bB])", "/": r"(?:[/_]|\\/|%2[fF])"}.get(character, character)


def _nested(elements: list[str]) -> str:
    """A pattern for the first one or more of these elements, in order."""
    pattern = ""
    for element in reversed(elements):
        pattern = f"{element}(?:{pattern})?" if pattern else element
    return pattern


def _unwrapped(text: str) -> str:
    for wrapping in _WRAPPINGS:
        if wrapping in text:
            text = text.replace(wrapping, "")
    for spelt, plain in _NORMAL:
        if spelt in text:
            text = text.replace(spelt, plain)
    return text


def _looks_numeric(value: str) -> bool:
    return all(character in "0123456789.-" for character in value)


NOTHING_SECRET = Redactor()
