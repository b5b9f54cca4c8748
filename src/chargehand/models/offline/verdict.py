"""Whether a result meets a rule, as far as counts and words can tell."""

import operator
import re

from chargehand.models.offline.arguments import numbers_in, quoted_in
from chargehand.models.offline.clauses import sentences
from chargehand.models.offline.reading import Reading
from chargehand.models.offline.words import COUNTS, stem, term, word_set, words

ENOUGH = 0.5
_RULE = re.compile(
    r"by this rule[^:\n]*: *(.+)|(?:rule|criterion|accepted if): *(.+)", re.IGNORECASE
)
_HOLDS = {
    "at least|no fewer than|no less than|minimum of": operator.ge,
    "more than": operator.gt,
    "at most|no more than|maximum of": operator.le,
    "fewer than|less than|under": operator.lt,
    "exactly": operator.eq,
}
_BOUND = re.compile(
    rf"\b({'|'.join(sorted('|'.join(_HOLDS).split('|'), key=len, reverse=True))})\s+(\w+)\s+"
    r"(word|sentence|line|item|character|citation|source|number|paragraph)s?\b",
    re.IGNORECASE,
)
_SAID = {
    stem(word)
    for word in word_set("""must should result answer text output contain contains include includes mention
    mentions name names state states say says give gives list lists be is are has have it the a an of
    least most every each all one with and or to for in on that there not empty non sentence word line
    cite cites source citation number fewer more than exactly under""")
}


def judged(reading: Reading) -> tuple[bool, str]:
    """Whether the data meets the rule that the question states, and why or why not."""
    found = _RULE.search(reading.question)
    rule = (found[1] or found[2]) if found else reading.question
    bare = "\n".join(excerpt.text for excerpt in reading.excerpts)
    if not bare.strip():
        return False, "There is no result to judge."
    for bound, written, what in _BOUND.findall(rule):
        wanted = COUNTS.get(written.lower(), int(written) if written.isdecimal() else None)
        holds = next(each for told, each in _HOLDS.items() if bound.lower() in told.split("|"))
        if wanted is not None and not holds(count := _count(what.lower(), bare, reading), wanted):
            return False, f"It has {count} {what}s; the rule wants {bound.lower()} {wanted}."
    for said in quoted_in(rule):  # it has to stand there as it is
        if said.lower() not in bare.lower():
            return False, f"“{said}” is not in it."
    wanted_words = {term(w): w for w in words(rule) if stem(w) not in _SAID and len(w) > 2}
    missing = wanted_words.keys() - {term(word) for word in words(bare)} - COUNTS.keys()
    share = 1 - len(missing) / len(wanted_words) if wanted_words else 1.0
    lack = ", ".join(sorted(wanted_words[each] for each in missing)[:8])
    judge = "By the words alone (offline, rule-based)"
    if share >= ENOUGH:
        return True, f"{judge}, it speaks of {share:.0%} of what the rule names."
    return False, f"{judge}, it does not speak of: {lack}."


def _count(what: str, bare: str, reading: Reading) -> int:
    match what:
        case "word":
            return len(bare.split())
        case "sentence":
            return len(list(sentences(bare)))
        case "character":
            return len(bare)
        case "citation" | "source":
            # A line of the result that cites nothing goes by the name of the result itself.
            return len({e.where for e in reading.excerpts if not e.where.startswith("result")})
        case "number":
            return len(numbers_in(bare))
    return len([line for line in bare.split("\n") if line.strip()])
