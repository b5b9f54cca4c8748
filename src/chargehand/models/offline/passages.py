"""Answers in the words of the data. A sentence is an answer only if it has all that the question names.

That is: every content word of the question, in the sentence or in the heading and file it stands under, and the
kind of thing that is asked for: a number for how many, a date for when. All else is called a passage.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

from chargehand.models.offline.assigning import FINDING
from chargehand.models.offline.clauses import sentences
from chargehand.models.offline.periods import MONTHS
from chargehand.models.offline.reading import Excerpt
from chargehand.models.offline.words import COUNTS, root, word_set, words

FEWEST, MOST = 3, 40
#: of a question's words, without which a passage is not shown
ENOUGH = 0.4

_LIGHT = word_set("""a an the of in on at for from to with by as and or that this these those is are was were be been
    being has have had having do does did doing there here what which who whose whom when where why how me my our we us
    i you your he she his her its it it's they their them please tell show give list find know want would like can
    could will shall should may might must am if so then than about any all some each every many much long often old
    soon far get gets got take takes took need needs needed allow allowed say says said mean means happen happens
    go goes come comes use make makes made still also just only one ones thing things people someone anyone
    exactly actually there's s according document documents file files text note notes mention mentioned""")
_BROAD = word_set("""summarise summarize summary overview digest report combine merge everything gist outline recap
    write draft compose short brief""")
_JUDGING = re.compile(
    r"(?:please )?(?:review|check|verify|proofread|criticise|assess)\b", re.IGNORECASE
)
#: words that may stand for each other
_KIN = [
    {root(word) for word in group.split()}
    for group in [
        "cost price fee charge pay paid",
        "start begin",
        "end finish",
        "holiday vacation leave",
        "open opening",
        "cancel terminate cancellation termination notice",
        "phone telephone",
        "responsible charge",
        "close closing",
        "last duration length",
    ]
]
_COUNT = rf"(?:\d[\d.,]*|{'|'.join(list(COUNTS)[1:])}|hundred|thirty|forty|fifty|sixty|ninety|half an?|an?)"
_UNITS = r"(?:second|minute|hour|day|night|week|weekday|weekend|month|quarter|year|decade|working day|business day)s?"
_LENGTHS = r"(?:mm|cm|m|km|metre|meter|kilomet|mile|feet|foot|litre|liter|kg|gram|tonne|°)"
_WEEKDAYS = r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?"
_CLOCK = r"\d{1,2}[:.]\d\d\b|\d{1,2} ?(?:am|pm|a\.m|p\.m|o.clock)\b|\bnoon\b|\bmidnight\b"
_DATE = rf"\b(?:{'|'.join(MONTHS)})\b|\b\d{{4}}-\d\d|\b(?:19|20)\d\d\b|\b{_WEEKDAYS}\b"
_FIGURE = rf"\b{_COUNT}(?:\s|-)"
#: how a question begins, what it asks for, and what that looks like
KINDS: dict[str, tuple[str, str]] = {
    r"how (?:long|soon|quickly)|within (?:what|how)|what (?:is the )?(?:notice )?period": (
        "a length of time",
        rf"\b{_COUNT}[\s-](?:\w+[\s-])?{_UNITS}\b",
    ),
    r"how often|how frequently|how regularly": (
        "how often",
        rf"\b(?:every|each|daily|weekly|monthly|yearly|annually|quarterly|hourly|once|twice|times|per (?:day|week|month|year))\b|\b{_COUNT} (?:times|a (?:day|week|month|year))",
    ),
    r"how old": ("an age", rf"\b{_COUNT}[\s-](?:\w+[\s-])?(?:years?|months?)\b"),
    r"(?:at )?what time|what are the (?:opening )?hours|when .*\b(?:open|close)": (
        "a time of day",
        _CLOCK,
    ),
    r"when|(?:on |by |until |since )?(?:what|which) (?:date|day|year|month)|what is the (?:deadline|date)": (
        "a date or time",
        rf"{_DATE}|{_CLOCK}|\b{_COUNT}[\s-](?:\w+[\s-])?{_UNITS}\b|\bevery\b",
    ),
    r"how (?:far|tall|high|deep|wide|big|large|heavy|hot|cold|warm)|what temperature": (
        "a measure",
        rf"\d\s?{_LENGTHS}|{_FIGURE}",
    ),
    r"how much|what (?:is|does|are) .*\b(?:cost|price|fee|rate|fine|penalty|salary|rent|budget|deposit)": (
        "an amount",
        r"[$€£%]\s?\d|\d\s?(?:[$€£%]|(?:eur|usd|gbp|euros?|dollars?|pounds?|per cent|percent|cents?)\b)|\bfree\b|\bat no cost\b|\d",
    ),
    r"how many|(?:what is the )?number of": ("a number", _FIGURE),
    r"who|whom|whose": (
        "a person or a role",
        r"\b[A-Z][\w-]+ (?:[A-Z]\. )?[A-Z][\w-]+|\b(?:Dr|Mr|Mrs|Ms|Prof)\.? [A-Z]|\b(?:[Tt]he|[Aa]n?|[Oo]ur|[Yy]our|[Hh]is|[Hh]er|[Tt]heir) (?:\w+ )?\w*(?:manager|director|head|officer|team|department|technician|nurse|customer|supplier|company|party|tenant|landlord|buyer|seller|librarian|doctor|owner|leader|desk|office|staff|clerk|coordinator|lead|boss|employee|administrator|engineer|committee|board|chair|treasurer|secretary|user|member|provider|contractor|client)s?\b",
    ),
    r"where|in which (?:room|building|city|place)": (
        "a place",
        r"\b(?:in|at|on|behind|under|near|inside|outside|opposite|beside|above|below|next to|into|to) (?:the |an? |our )?[\w-]+",
    ),
    r"why": (
        "a reason",
        r"\b(?:because|since|due to|so that|in order|reasons?|therefore|as it|as they|owing)\b",
    ),
}
#: kinds that can be put in many words, so that other words are no contradiction
_PLAIN = ("", "a person or a role", "a place", "a reason")
_VALUE = re.compile(
    rf"\d[\d.,:]*\d|\d|\b(?:{'|'.join(list(COUNTS)[2:])}|thirty|forty|fifty|sixty|ninety)\b|{_DATE}",
    re.IGNORECASE,
)
_LINE = re.compile(r":\d+$")
_BACK = re.compile(r"(?:it|they|this|these|its|their|he|she|that)\b", re.IGNORECASE)


class Sentence(Struct, frozen=True):
    """A sentence of the data, and what its surroundings say of it."""

    text: str
    where: str
    about: str = ""
    #: of a table: one of many, never the whole truth
    is_row: bool = False

    def __str__(self) -> str:
        return f"{self.text} [{self.where}]"

    @property
    def own(self) -> frozenset[str]:
        return roots(self.text)

    @property
    def all(self) -> frozenset[str]:
        return self.own | roots(f"{self.about} {_LINE.sub('', self.where)}")


class Found(Struct, frozen=True):
    """What the data says: lines, and what is missing from them; no lines: nothing was found."""

    lines: tuple[str, ...] = ()
    gap: str = ""
    #: the lines do not agree
    is_dispute: bool = False


@lru_cache(maxsize=8192)
def roots(text: str) -> frozenset[str]:
    return frozenset(root(word) for word in words(text))


def content(question: str) -> dict[str, str]:
    """The words that carry the question, by their roots."""
    return {root(word): word for word in words(question) if word not in _LIGHT and len(word) > 1}


def sentences_in(excerpts: Sequence[Excerpt]) -> list[Sentence]:
    """The sentences of the data, in order, each with its heading and what its pronoun stands for."""
    found: list[Sentence] = []
    for excerpt in excerpts:
        before = ""
        is_row = re.search(r"\.[ct]sv(:\d+)?$", excerpt.where) is not None
        if excerpt.text.startswith("#"):
            continue  # a heading says what is spoken of, and nothing of it
        for sentence in sentences(excerpt.text):
            text = sentence.text.strip("-*• ")
            about = f"{excerpt.about} {before}" if _BACK.match(text) else excerpt.about
            found.append(Sentence(text, excerpt.where, about, is_row))
            before = text
    return list(dict.fromkeys(found))


def answer(
    question: str, excerpts: Sequence[Excerpt], subject: str = "", most: int = FEWEST
) -> Found:
    """What the data says to the question; `subject` is what its pronouns stand for."""
    if _JUDGING.match(question):
        return Found(gap="rules can quote, but not judge a text")
    known = sentences_in(excerpts)
    asked = set(words(question))
    if asked & _BROAD or asked & {"each", "every"} or question.startswith(FINDING):
        return _overview(question.removeprefix(FINDING), known, most)
    meant = content(subject)
    wanted = {**content(question), **meant}
    kind, pattern = _kind_of(question)
    near = [s for s in known if not s.is_row and _covers(s, wanted, meant)]
    whole = [s for s in near if _holds(s, question, kind, pattern)]
    if not whole or not wanted:
        return _passages(wanted, known, kind, most)
    return _agreed(_nearest(whole, wanted), kind, most)


def _kind_of(question: str) -> tuple[str, str]:
    lead = r"(?:\W|and |for |by |until |from |to |at |in )*"
    for begins, found in KINDS.items():
        if re.match(rf"{lead}(?:{begins})\b", question, re.IGNORECASE):
            return found
    inside = re.search(
        r"\b(?:how (?:many|much|long|often|old)|when|who)\b.*", question, re.IGNORECASE
    )
    return _kind_of(inside[0]) if inside and inside.start() > 0 else ("", "")


def _has(wanted: str, roots_: frozenset[str]) -> bool:
    return wanted in roots_ or any(wanted in kin and kin & roots_ for kin in _KIN)


def _covers(sentence: Sentence, wanted: dict[str, str], subject: dict[str, str]) -> bool:
    """All words are there, and half of those that do not merely name the document stand in the sentence."""
    file = roots(_LINE.sub("", sentence.where))
    said = [each for each in wanted if not _has(each, file) and each not in subject]
    near = sum(_has(each, sentence.own) for each in said)
    has_any = any(_has(each, sentence.own) for each in wanted)
    return all(_has(each, sentence.all) for each in wanted) and 2 * near >= len(said) and has_any


def _holds(sentence: Sentence, question: str, kind: str, pattern: str) -> bool:
    """Whether the kind of thing that is asked for stands in it, and was not in the question."""
    if not kind:
        return bool(content(sentence.text).keys() - roots(question))
    if kind == "a number" and (
        noun := re.search(r"(?:how many|number of)\s+(\w+)", question, re.I)
    ):
        said = words(sentence.text)
        spots = [
            n
            for n, word in enumerate(said)
            if _has(root(noun[1].lower()), frozenset((root(word),)))
        ]
        return any(
            re.fullmatch(_COUNT, each) and each not in ("a", "an")
            for n in spots
            for each in said[max(0, n - 3) : n + 4]
        )
    flags = 0 if kind == "a person or a role" else re.IGNORECASE
    asked = question.lower()
    return any(
        found[0].lower() not in asked for found in re.finditer(pattern, sentence.text, flags)
    )


def _nearest(whole: list[Sentence], wanted: dict[str, str]) -> list[Sentence]:
    """Those that say most of it by themselves."""
    near = [sum(_has(each, s.own) for each in wanted) for s in whole]
    return [s for s, n in zip(whole, near, strict=True) if n == max(near)]


def _agreed(whole: list[Sentence], kind: str, most: int) -> Found:
    values = {frozenset(v[0].lower() for v in _VALUE.finditer(s.text)) for s in whole}
    lines = tuple(dict.fromkeys(map(str, whole)))
    if kind not in _PLAIN and len(values) > 1 and len({s.text for s in whole}) > 1:
        return Found(
            lines[: max(most, 4)],
            "these passages do not agree, and rules cannot tell which one holds",
            is_dispute=True,
        )
    if len(lines) > most:
        return Found(lines[:most], f"{len(lines)} passages speak of it; the first {most} are shown")
    return Found(lines)


def _passages(wanted: dict[str, str], known: list[Sentence], kind: str, most: int) -> Found:
    known = [s for s in known if not s.is_row]  # rows answer only through what is computed
    spread = {each: sum(_has(each, s.all) for s in known) for each in wanted}
    scored = sorted(((_score(s, spread), -n) for n, s in enumerate(known)), reverse=True)
    texts = [
        known[-n] for score, n in scored[:most] if score >= ENOUGH * scored[0][0] and score > 0
    ]
    covered = {each for each in wanted for s in texts if _has(each, s.all)}
    missing = [f"“{word}”" for each, word in wanted.items() if each not in covered]
    if (
        not texts
        or len(covered) < ENOUGH * len(wanted)
        or not any(_has(each, s.own) for each in wanted for s in texts)
    ):
        return Found(
            gap=f"no passage speaks of {', '.join(f'“{w}”' for w in wanted.values()) or 'this'}"
        )
    what = f"gives {kind}" if kind else "answers it"
    lack = f"; nothing speaks of {', '.join(missing)}" if missing else ""
    return Found(
        tuple(map(str, texts)), f"these are passages near the question; none surely {what}{lack}"
    )


def _score(sentence: Sentence, spread: Mapping[str, int]) -> float:
    """How much of the question's words it has; rare ones count for more, those of its surroundings for half."""
    own: float = sum(1 / (1 + n) ** 0.5 for each, n in spread.items() if _has(each, sentence.own))
    near: float = sum(
        0.5 / (1 + n) ** 0.5 for each, n in spread.items() if _has(each, sentence.all)
    )
    return own + near


def _overview(question: str, known: list[Sentence], most: int) -> Found:
    """The sentences of each source that say most of what the sources say, in their order."""
    topic = {each: word for each, word in content(question).items() if word not in _BROAD}
    about = [s for s in known if all(_has(each, s.all) for each in topic)] if topic else known
    if not about:
        return _passages(topic, known, "", most)
    counts = Counter(each for s in about for each in s.own)
    by_source: dict[str, list[tuple[float, int]]] = {}
    for n, s in enumerate(about):
        worth = sum(counts[each] for each in s.own) / (len(s.own) + 3)
        by_source.setdefault(_LINE.sub("", s.where), []).append((worth, -n))
    each = max(1, most // max(len(by_source), 1))
    kept = [-n for ranked in by_source.values() for _, n in sorted(ranked, reverse=True)[:each]]
    return Found(tuple(str(about[n]) for n in sorted(kept)[:MOST]))
