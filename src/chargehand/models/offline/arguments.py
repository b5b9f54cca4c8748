"""Filling in a tool's arguments from the words of a request, one record for each call."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from msgspec import Struct

from chargehand.models.offline.slots import Slot, affinity, slots_of, takes
from chargehand.models.offline.values import Found, Kind, values_in
from chargehand.models.offline.words import STOP, stem, term, term_set, words

NEAR = 8
#: words between a value and the word that says what it is
MARGIN = 0.6
SAME = 0.6
#: a value opens a new record if it suits a filled blank at least this well, by what is there
USUAL, LEAST = 0.4, -0.6
#: how well a value has to suit a blank, and how well if nothing else is left for it
MOST = 12
#: calls of one tool for one request

_TOKEN = re.compile(r"[^\W_]+")
_LISTED = re.compile(
    r"[\s,]*(?:(?:and|or|&|then)\s+)?(?:the\s+|an?\s+|also\s+)?|\s*(?:[a-z]{1,6}\.?\s*)?(?:x|×|by)\s*",
    re.IGNORECASE,
)
_ALL = re.compile(r"\b(?:both|these|those|each|all|them|their)\b", re.IGNORECASE)
_NO = re.compile(r"\b(?:no|not|n't|don't|dont|without|exclude|excluding|never)\b", re.IGNORECASE)
_ASKING = re.compile(
    r"(?:(?:please|can you|could you|would you|i(?: also)?(?: would like| want| need|'d like)"
    r"(?: you)? to|also|then|and|help me|search|look|find|get|tell|show|give|me|us|the answer|"
    r"out|up|for|about|information|on|what is|what are)\s+)+",
    re.IGNORECASE,
)


class Record(NamedTuple):
    """The arguments of one call, and those that are required and could not be found."""

    values: dict[str, Any]
    missing: tuple[str, ...]


class _Fit(Struct, frozen=True):
    """A value in a blank, and how well it suits it."""

    slot: Slot
    value: Any
    worth: float
    found: Found


class Passage:
    """The part of a request that a tool is to be called for, with its values and words."""

    def __init__(self, text: str, about: frozenset[str] = frozenset()) -> None:
        self.text = text
        self.about = about
        tokens = list(_TOKEN.finditer(text))
        self._starts = [token.start() for token in tokens]
        self._words = [token[0].lower() for token in tokens]
        self._stems = [stem(word) for word in self._words]
        self._places: dict[str, list[int]] = {}
        for place, word in enumerate(self._words):
            self._places.setdefault(term(word), []).append(place)
        self.values = values_in(text)

    def before(self, found: Found) -> str:
        """The word before a value; articles are looked through."""
        at = self._place(found.start) - 1
        while at >= 0 and self._words[at] in ("the", "a", "an", "city", "of"):
            at -= 1
        return self._words[at] if at >= 0 else ""

    def distance(self, cue: str, found: Found) -> int | None:
        """How many words the value is away from the nearest `cue`; None if too far.

        It may stand in the value itself, as in Premier League: that is no distance.
        """
        first, last = self._place(found.start), self._place(max(found.end - 1, found.start))
        gaps = [
            first - place if place < first else max(place - last + 1, 0) if place > last else 0
            for place in self._places.get(cue, ())
        ]
        nearest = min(gaps, default=NEAR + 1)
        return nearest if nearest <= NEAR else None

    def first(self, cue: str) -> int | None:
        """Where the term stands first."""
        places = self._places.get(cue)
        return self._starts[places[0]] if places else None

    def spans(self, phrase: str) -> Iterator[tuple[int, int]]:
        """Where the words of the phrase stand, whatever their endings."""
        wanted = [stem(word) for word in words(phrase)]
        for place in range(len(self._stems) - len(wanted) + 1):
            end = place + len(wanted)
            if self._stems[place:end] == wanted:
                yield self._starts[place], self._starts[end - 1] + len(self._words[end - 1])

    def _place(self, offset: int) -> int:
        return max(bisect_right(self._starts, offset) - 1, 0)


def fill(
    parameters: dict[str, Any], text: str, around: str = "", about: frozenset[str] = frozenset()
) -> list[Record]:
    """A record for each call that the text asks for; at least one.

    What a record lacks is taken from the others, and then from the text `around`. The terms that
    the tool is described with, `about`, are no values.
    """
    slots = slots_of(parameters)
    passage = Passage(text, about)
    records = _records(slots, passage)
    _share(slots, records)
    records = _gathered(slots, records, passage)
    if around and around != text:
        records = _referring(slots, records, passage, _records(slots, Passage(around, about)))
    return [_finished(slots, record, passage) for record in _distinct(records)[:MOST]]


def _referring(
    slots: list[Slot],
    records: list[dict[str, _Fit]],
    passage: Passage,
    others: list[dict[str, _Fit]],
) -> list[dict[str, _Fit]]:
    """The records with what they lack from elsewhere; `both` and `these` mean all that is there."""
    for slot in slots:
        if not slot.is_required or any(slot.name in record for record in records):
            continue
        said = _distinct([{slot.name: r[slot.name]} for r in others if slot.name in r])
        if not _ALL.search(passage.text):
            said = said[:1]
        if said:
            records = [{**record, **each} for record in records for each in said]
    return records


# Values into blanks


def _records(slots: list[Slot], passage: Passage) -> list[dict[str, _Fit]]:
    records: list[dict[str, _Fit]] = [{}]
    last: _Fit | None = None
    for found, fits in _candidates(slots, passage):
        if last is not None and last.found.kind is found.kind and _continues(last, found, passage):
            fits = _alike(fits, last)
        last = _place(records, found, fits, passage) or last
    return records


def _gathered(
    slots: list[Slot], records: list[dict[str, _Fit]], passage: Passage
) -> list[dict[str, _Fit]]:
    """One record with every value where it suits best, if several in turn leave blanks open."""
    if len(records) > 1 and all(_is_complete(slots, record) for record in records):
        return records
    pairs = [
        (fit.worth - 0.01 * abs(order - slots.index(fit.slot)), -order, fit)
        for order, (_, fits) in enumerate(_candidates(slots, passage, LEAST))
        for fit in fits
    ]
    whole: dict[str, _Fit] = {}
    used: set[int] = set()
    for _, _, fit in sorted(pairs, key=lambda pair: pair[:2], reverse=True):
        if fit.found.start not in used and fit.slot.name not in whole and _may(fit):
            whole[fit.slot.name] = fit
            used.add(fit.found.start)
    has_lists = any(fit.slot.type == "array" for record in records for fit in record.values())
    if has_lists or (len(records) > 1 and not _is_complete(slots, whole)):
        return records
    return [whole] if len(whole) >= len(records[0]) else records


def _may(fit: _Fit) -> bool:
    """Whether a value may go there: what suits it badly only if something must."""
    return fit.worth > USUAL or (fit.slot.is_required and fit.slot.type in ("integer", "number"))


def _is_complete(slots: list[Slot], record: dict[str, _Fit]) -> bool:
    needed = (s.name for s in slots if s.is_required and s.item_type in ("integer", "number"))
    return all(name in record for name in needed)


def _alike(fits: list[_Fit], last: _Fit) -> list[_Fit]:
    """Values of one list suit one blank equally well: the word that says so stands only once."""
    raised = [
        _Fit(fit.slot, fit.value, max(fit.worth, last.worth) + _worth_of_list(fit), fit.found)
        if fit.slot.name == last.slot.name
        else fit
        for fit in fits
    ]
    return sorted(raised, key=lambda fit: -fit.worth)


def _worth_of_list(fit: _Fit) -> float:
    return MARGIN + 0.1 if fit.slot.type == "array" else 0.0


def _place(
    records: list[dict[str, _Fit]], found: Found, fits: list[_Fit], passage: Passage
) -> _Fit | None:
    """Put a value into the blank that it suits; a new record begins where that is filled."""
    current = records[-1]
    best = fits[0]
    held = current.get(best.slot.name)
    if held is not None and best.slot.type == "array" and _continues(held, found, passage):
        grown = [*held.value, *best.value]
        current[best.slot.name] = _Fit(best.slot, grown, held.worth, found)
        return current[best.slot.name]
    free = next((fit for fit in fits if fit.slot.name not in current), None)
    if held is None:
        current[best.slot.name] = best
        return best
    if free is not None and free.worth >= best.worth - MARGIN:
        current[free.slot.name] = free
        return free
    if best.worth >= SAME * held.worth and held.value != best.value:
        records.append({best.slot.name: best})
        return best
    return None


def _continues(held: _Fit, found: Found, passage: Passage) -> bool:
    """Whether a value is the next of a list."""
    if found.kind is Kind.NUMBERS:
        return False
    return _LISTED.fullmatch(passage.text[held.found.end : found.start]) is not None


def _candidates(
    slots: list[Slot], passage: Passage, least: float = USUAL
) -> list[tuple[Found, list[_Fit]]]:
    """Values in the order of the text, each with the blanks that it suits, the best first."""
    chosen = list(_choices(slots, passage))
    covered = [(fit.found.start, fit.found.end) for fit in chosen]
    found = [(fit.found, [fit]) for fit in chosen]
    for value in passage.values:
        if any(start < value.end and value.start < end for start, end in covered):
            continue
        if fits := _fits(slots, value, passage, least):
            found.append((value, fits))
    return sorted(found, key=lambda each: each[0].start)


def _choices(slots: list[Slot], passage: Passage) -> Iterator[_Fit]:
    taken: list[tuple[int, int]] = []
    for slot in slots:
        for choice in sorted(slot.choices, key=lambda each: -len(str(each))):
            if not isinstance(choice, str) or not words(choice):
                continue
            for start, end in passage.spans(choice):
                if any(a < end and start < b for a, b in taken):
                    continue
                taken.append((start, end))
                said = choice if slot.is_closed else passage.text[start:end]
                found = Found(Kind.QUOTED, said, said, start, end)
                yield _Fit(slot, [said] if slot.type == "array" else said, 4.0, found)


def _fits(slots: list[Slot], found: Found, passage: Passage, least: float) -> list[_Fit]:
    own = passage.about.union(*(slot.cues | slot.hints for slot in slots))
    is_word = found.kind is Kind.NAME or (found.kind is Kind.QUOTED and "_" in found.text)
    if is_word and {term(word) for word in words(found.text)} <= own:
        return []  # it says what the next value is, such as SNP ID
    fits = []
    for slot in slots:
        if not takes(slot, found) and not (slot.type == "array" and found.kind is Kind.NUMBERS):
            continue
        worth = affinity(slot, found, passage.before(found)) + _nearness(slot, found, passage)
        worth += 0.3 if slot.is_required else 0.0
        worth += 5.0 if _is_named(slot, found, passage) else 0.0
        if worth > least:
            fits.append(_Fit(slot, _as_value(slot, found), worth, found))
    return sorted(fits, key=lambda fit: -fit.worth)


def _is_named(slot: Slot, found: Found, passage: Passage) -> bool:
    """Whether the text says outright which argument the value is for, as in `a = 2`."""
    lead = passage.text[max(0, found.start - 40) : found.start]
    name = re.escape(slot.name).replace("_", "[ _]")
    return re.search(rf"\b{name}\s*(?:=|:|is|of)\s*$", lead, re.IGNORECASE) is not None


def _nearness(slot: Slot, found: Found, passage: Passage) -> float:
    near = 0.0
    for cues, weight in ((slot.cues, 2.5), (slot.hints - slot.cues, 0.6)):
        gaps = [gap for cue in cues if (gap := passage.distance(cue, found)) is not None]
        near += sum(weight / (1 + gap) for gap in sorted(gaps)[:3])
    return near


def _as_value(slot: Slot, found: Found) -> Any:
    value = found.value
    if found.kind is Kind.NUMBERS:
        items = [float(each) if slot.item_type == "number" else each for each in value]
        return items if slot.type in ("array", "") else value
    if slot.item_type == "string" and not isinstance(value, str):
        value = found.text
    elif slot.item_type == "integer":
        value = int(value)
    elif slot.item_type == "number" and found.unit == "%" and _is_fraction(slot):
        value = value / 100
    return [value] if slot.type == "array" else value


def _is_fraction(slot: Slot) -> bool:
    description = str(slot.schema.get("description", "")).lower()
    return slot.schema.get("maximum") == 1 or "decimal" in description or "fraction" in description


def _share(slots: list[Slot], records: list[dict[str, _Fit]]) -> None:
    """What is said once holds for all: a record lacking a required value takes its neighbour's."""
    for slot in slots:
        if not slot.is_required:
            continue
        for ordered in (records, records[::-1]):
            last: _Fit | None = None
            for record in ordered:
                last = record.get(slot.name, last)
                if last is not None:
                    record.setdefault(slot.name, last)


def _distinct(records: list[dict[str, _Fit]]) -> list[dict[str, _Fit]]:
    seen: list[dict[str, Any]] = []
    kept = []
    for record in records:
        values = {name: fit.value for name, fit in record.items()}
        if values not in seen:
            seen.append(values)
            kept.append(record)
    return kept


# What no value could be found for


def _finished(slots: list[Slot], record: dict[str, _Fit], passage: Passage) -> Record:
    values = {name: fit.value for name, fit in record.items()}
    used = [(fit.found.start, fit.found.end) for fit in record.values()]
    for slot in slots:
        if slot.name in values:
            continue
        value = _unsaid(slot, passage, used)
        if value is not None:
            values[slot.name] = value
    missing = tuple(s.name for s in slots if s.is_required and s.name not in values)
    return Record({s.name: values[s.name] for s in slots if s.name in values}, missing)


def _unsaid(slot: Slot, passage: Passage, used: Iterable[tuple[int, int]]) -> Any:
    if slot.type == "boolean":
        return _yes_or_no(slot, passage)
    if not slot.is_required:
        return None
    if "default" in slot.schema:
        return slot.schema["default"]
    if slot.is_closed:
        return slot.choices[0] if len(slot.choices) == 1 else None
    if slot.item_type not in ("string", ""):
        return None
    spans = list(used)
    own = slot.cues | slot.hints
    text = "" if slot.is_prose else _leftover(passage, spans, own | passage.about)
    text = text or ("" if slot.is_prose else _leftover(passage, spans, own)) or _prose(passage)
    return [text] if slot.type == "array" else text or None


def _yes_or_no(slot: Slot, passage: Passage) -> bool | None:
    cues = [cue for cue in slot.cues if cue not in _ASIDE]
    places = [place for cue in cues if (place := passage.first(cue)) is not None]
    if cues and len(places) == len(cues):
        start = min(places)
        return not _NO.search(passage.text[max(0, start - 30) : start])
    return False if slot.is_required else None


_ASIDE = term_set("is has include with return show get enable use")


def _prose(passage: Passage) -> str:
    """What is asked, without the asking: what a search would be given."""
    quoted = [found.value for found in passage.values if found.kind is Kind.QUOTED]
    if quoted:
        return str(max(quoted, key=len))
    asking = _ASKING.match(passage.text)
    rest = passage.text[asking.end() :] if asking else passage.text
    return rest.strip().rstrip("?.!")


def _leftover(passage: Passage, spans: list[tuple[int, int]], own: frozenset[str]) -> str:
    """The longest run of words that say something, are not the tool's own and used nowhere else."""
    best: list[str] = []
    run: list[str] = []
    for token in re.finditer(r"[^\W_][\w'-]*|[^\w\s]", passage.text):
        is_free = not any(a < token.end() and token.start() < b for a, b in spans)
        word = token[0].lower()
        says = word[0].isalnum() and word not in STOP and term(word) not in own
        if is_free and says and not _ASKING.fullmatch(f"{word} "):
            run.append(token[0])
            continue
        best, run = (run if len(run) > len(best) else best), []
    return " ".join(run if len(run) > len(best) else best)
