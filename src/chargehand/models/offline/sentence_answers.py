"""Answers in the words of the data. A sentence is an answer only if it has all that the question names.

That is: every content word of the question, in the sentence or in the heading and file it stands under, and the
kind of thing that is asked for: a number for how many, a date for when. All else is called a passage.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from math import sqrt

from chargehand.models.offline.clauses import sentences
from chargehand.models.offline.conversation import Excerpt, Found
from chargehand.models.offline.periods import MONTHS
from chargehand.models.offline.steps_and_workers import FINDING, PAPERS
from chargehand.models.offline.tables import TABLES
from chargehand.models.offline.words import CLOSED, COUNTS, LIGHT, root, roots, word_set, words

#: lines of an answer
MOST = 3
#: of a question's words, without which a passage is not shown
ENOUGH = 0.4

_LIGHT = LIGHT | word_set("""show find being having doing here why he she his her shall should may
    might must am than about some each every many much long often old soon far gets takes need needs needed allow
    allowed say says said mean means happens goes comes use makes still also just only one ones thing things people
    someone anyone exactly actually there's mention mentioned""")
_PAPERS = rf"(?:{'|'.join(PAPERS)}|table)s?"
_PAPER = rf"(?:(?:the|these|this|those|our|your|my|all|any|each|every|which|what)\s+)*{_PAPERS}"
_SAYS = r"(?:say|state|mention|name|list|tell|contain|describe|discuss|cover)s?|(?:is |are |speaks? )?about"
#: documents as the place of what is asked for, and not as the thing that is asked for
_WITHIN = re.compile(
    rf"(?i)\b(?:in|from|according to)\s+{_PAPER}\b|\b{_PAPER}\s+(?:{_SAYS})\b|^(?:please )?list\b"
)
_SUMMED = word_set("summarise summarize summary overview digest everything gist outline recap")
_BROAD = _SUMMED | word_set("""report reports file files document documents note notes text texts combine merge write
    draft compose letter short brief each every half page pages paragraph paragraphs""")
_ASKING = re.compile(rf"wh|how\b|{CLOSED.pattern}", re.IGNORECASE)
_LONG = r"(?:write|draft|compose|summari[sz]e)\b.*\b(?:pages?|paragraphs?|words)\b"
_BEYOND = re.compile(rf"(?:please )?(?:(?:review|check|verify|proofread|assess)\b|{_LONG})", re.I)
_COUNTED = rf"{'|'.join(list(COUNTS)[1:])}|hundred|thirty|forty|fifty|sixty|ninety"
_COUNT = rf"(?:\d[\d.,]*|{_COUNTED}|half an?|an?)"
_UNITS = r"(?:second|minute|hour|day|night|week|weekday|weekend|month|quarter|year|decade)s?"
_SPAN = rf"\b{_COUNT}[\s-](?:\w+[\s-])?{_UNITS}\b"
_CLOCK = r"\d{1,2}[:.]\d\d\b|\d{1,2} ?(?:am|pm|a\.m|p\.m|o.clock)\b|\bnoon\b|\bmidnight\b"
_DATE = rf"\b(?:{'|'.join(MONTHS)})\b|\b\d{{4}}-\d\d|\b(?:19|20)\d\d\b|\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b"
_ROLES = """manager director head officer team department technician nurse customer supplier company party tenant
    landlord buyer seller librarian doctor owner leader desk office staff clerk coordinator lead boss employee
    administrator engineer committee board chair treasurer secretary user member provider contractor client"""
_PERSON = (
    r"\b[A-Z][\w-]+ (?:[A-Z]\. )?[A-Z][\w-]+|\b(?:Dr|Mr|Mrs|Ms|Prof)\.? [A-Z]"
    rf"|\b(?:[Tt]he|[Aa]n?|[Oo]ur|[Yy]our|[Hh]is|[Hh]er|[Tt]heir) (?:\w+ )?\w*(?:{'|'.join(_ROLES.split())})s?\b"
)
_PLACE = r"\b(?:in|at|on|behind|under|near|inside|outside|opposite|beside|above|below|next to|into|to) [\w-]+"
_REASON = r"\b(?:because|since|due to|so that|in order|reasons?|therefore|as it|as they|owing)\b"
_REGULAR = "every|each|daily|weekly|monthly|yearly|annually|quarterly|hourly|once|twice|times"
_OFTEN = rf"\b(?:{_REGULAR})\b|\b(?:per|a) (?:day|week|month|year)\b"
_WHEN = rf"{_DATE}|{_CLOCK}|{_SPAN}|\bevery\b"
_AMOUNT = rf"\d|\bfree\b|\bat no cost\b|\b(?:{_COUNTED})\b"
_WHICH_DAY = r"(?:on |by |until |since )?(?:what|which) (?:date|day|year|month)"
_HOW_LONG = r"how (?:long|soon|quickly|old)|within (?:what|how)|what .*\bperiod"
_HOW_MUCH = r"how (?:much|far|tall|high|deep|wide|big|large|heavy|hot|cold|warm)|what temperature"
_COST = r"what (?:is|does|are) .*\b(?:cost|price|fee|rate|fine|penalty|salary|rent|budget|deposit)"
#: what is asked for, what that looks like, and how a question for it begins
KINDS = (
    ("a length of time", _SPAN, _HOW_LONG),
    ("how often", _OFTEN, r"how (?:often|frequently|regularly)"),
    ("a time of day", _CLOCK, r"(?:at )?what time|what are the .*\bhours|when .*\b(?:open|close)"),
    ("a date or time", _WHEN, rf"when|what is the (?:deadline|date)|{_WHICH_DAY}"),
    ("an amount", _AMOUNT, rf"{_HOW_MUCH}|{_COST}"),
    ("a number", rf"\b(?:\d[\d.,]*|{_COUNTED})\b", r"how many|(?:what is the )?number of"),
    ("a person or a role", _PERSON, r"who|whom|whose"),
    ("a place", _PLACE, r"where|in which (?:room|building|city|place)"),
    ("a reason", _REASON, r"why"),
)
#: kinds that can be put in many words, so that other words are no contradiction
_PLAIN = ("", "a person or a role", "a place", "a reason")
_VALUE = re.compile(rf"\d[\d.,:]*\d|\d|\b(?:{_COUNTED})\b|{_DATE}", re.IGNORECASE)
_BACK = re.compile(r"(?:it|they|this|these|its|their|he|she|that)\b", re.IGNORECASE)


def content(question: str) -> dict[str, str]:
    """The words that carry the question, by their roots."""
    asked = words(_WITHIN.sub(" ", question))
    return {root(word): word for word in asked if word not in _LIGHT and len(word) > 1}


def sentences_in(excerpts: Sequence[Excerpt]) -> list[Excerpt]:
    """The sentences of the data, in order, each with its heading and what its pronoun stands for."""
    found: list[Excerpt] = []
    # A heading says what is spoken of, and nothing of it.
    for excerpt in [each for each in excerpts if not each.text.startswith("#")]:
        before = ""
        for sentence in sentences(excerpt.text):
            text = sentence.strip("-*• ")
            about = f"{excerpt.about} {before}" if _BACK.match(text) else excerpt.about
            found.append(Excerpt(excerpt.where, text, about))
            before = text
    return list(dict.fromkeys(found))


def answer(question: str, excerpts: Sequence[Excerpt], subject: str = "") -> Found:
    """What the data says to the question; `subject` is what its pronouns stand for."""
    if _BEYOND.match(question):
        return Found(gap="rules can quote, but not judge a text or write one of a given length")
    known = sentences_in(excerpts)
    broad = _SUMMED if _ASKING.match(question) else _BROAD
    if {*words(question)} & broad or question.startswith(FINDING):
        return _overview(question.removeprefix(FINDING), known)
    # Rows of a table are one of many, never the whole truth: they answer through what is computed.
    known = [s for s in known if not s.source.endswith(TABLES)]
    wanted = {**content(question), **content(subject)}
    kind, pattern = _kind_of(question)
    near = [s for s in known if _covers(s, wanted, content(subject))]
    whole = [s for s in near if _holds(s, question, kind, pattern)]
    if not whole or not wanted:
        return _passages(wanted, known, kind)
    # Those that say most of it by themselves.
    said = [len(s.own & wanted.keys()) for s in whole]
    return _agreed([s for s, n in zip(whole, said, strict=True) if n == max(said)], kind)


def _kind_of(question: str) -> tuple[str, str]:
    lead = r"(?:\W|and |for |by |until |from |to |at |in )*"
    for kind, pattern, begins in KINDS:
        if re.match(rf"{lead}(?:{begins})\b", question, re.IGNORECASE):
            return kind, pattern
    inside = re.search(r"\b(?:how (?:many|much|long|often|old)|when|who)\b.*", question, re.I)
    return _kind_of(inside[0]) if inside and inside.start() > 0 else ("", "")


def _covers(sentence: Excerpt, wanted: Collection[str], subject: Collection[str]) -> bool:
    """All words are there, and half of those that do not merely name the document stand in the sentence."""
    free = {*wanted} - roots(sentence.source) - {*subject}
    own = sentence.own
    is_near = 2 * len(free & own) >= len(free) and not own.isdisjoint(wanted)
    return is_near and sentence.all.issuperset(wanted)


def _holds(sentence: Excerpt, question: str, kind: str, pattern: str) -> bool:
    """Whether the kind of thing that is asked for stands in it, and was not in the question."""
    if not kind:
        return bool(content(sentence.text).keys() - roots(question))
    text = sentence.text
    if noun := re.search(r"(?:how many|number of)\s+(\w+)", question, re.I):
        said = words(text)
        spots = [n for n, word in enumerate(said) if root(word) == root(noun[1])]
        text = " ".join(word for n in spots for word in said[max(0, n - 3) : n + 4])
    flags = 0 if kind == "a person or a role" else re.I
    return any(hit[0].lower() not in question.lower() for hit in re.finditer(pattern, text, flags))


def _agreed(whole: list[Excerpt], kind: str) -> Found:
    values = {frozenset(v[0].lower() for v in _VALUE.finditer(s.text)) for s in whole}
    lines = tuple(dict.fromkeys(map(str, whole)))
    if kind not in _PLAIN and len(values) > 1 and len({s.text for s in whole}) > 1:
        gap = "these passages do not agree, and rules cannot tell which one holds"
        return Found(lines[: MOST + 1], gap, is_dispute=True)
    gap = f"{len(lines)} passages speak of it; the first {MOST} are shown"
    return Found(lines[:MOST], gap if len(lines) > MOST else "")


def _passages(wanted: Mapping[str, str], known: list[Excerpt], kind: str) -> Found:
    """The sentences with most of the question's words: rare ones count for more, those around it for half."""
    weights = {each: 1 / sqrt(1 + sum(each in s.all for s in known)) for each in wanted}
    worth = {
        s: sum(((each in s.own) + (each in s.all) / 2) * n for each, n in weights.items())
        for s in known
    }
    ranked = sorted(known, key=lambda s: -worth[s])[:MOST]
    best = [s for s in ranked if worth[s] >= ENOUGH * worth[ranked[0]] and worth[s] > 0]
    covered = [each for each in wanted if any(each in s.all for s in best)]
    is_near = len(covered) >= ENOUGH * len(wanted) and any(wanted.keys() & s.own for s in best)
    if not best or not is_near:
        named = ", ".join(f"“{word}”" for word in wanted.values())
        return Found(gap=f"no passage speaks of {named or 'this'}")
    missing = ", ".join(f"“{word}”" for each, word in wanted.items() if each not in covered)
    gap = f"these are passages near the question; none surely {f'gives {kind}' if kind else 'answers it'}"
    return Found(tuple(map(str, best)), f"{gap}; nothing speaks of {missing}" if missing else gap)


def _overview(question: str, known: list[Excerpt]) -> Found:
    """The first sentences of each source that speak of it."""
    named = re.findall(rf"\b(?:the|our|all|these|every|each) ({_PAPERS})\b", question)
    papers = roots(" ".join(named))
    known = [s for s in known if papers & roots(s.source)] or known
    topic = {each: word for each, word in content(question).items() if word not in _BROAD}
    about: dict[str, list[Excerpt]] = {}
    for sentence in [s for s in known if s.all.issuperset(topic)]:
        about.setdefault(sentence.source, []).append(sentence)
    if not about:
        return _passages(topic, known, "")
    each = max(1, MOST // len(about))
    return Found(tuple(str(s) for told in about.values() for s in told[:each]))
