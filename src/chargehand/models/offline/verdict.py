"""Whether a result meets a rule, as far as words can tell."""

import re

from chargehand.models.offline.clauses import sentences
from chargehand.models.offline.reading import Reading
from chargehand.models.offline.values import Kind, number_of, values_in
from chargehand.models.offline.words import stem, term, word_set, words

ENOUGH = 0.5

_RULE = re.compile(
    r"by this rule[^:\n]*: *(.+)|(?:rule|criterion|accepted if): *(.+)", re.IGNORECASE
)
_BOUND = re.compile(
    r"\b(at least|no fewer than|no less than|minimum of|more than|at most|no more than|"
    r"fewer than|less than|under|exactly|maximum of)\s+(\w+)\s+"
    r"(words?|sentences?|lines?|items?|characters?|citations?|sources?|numbers?|paragraphs?)",
    re.IGNORECASE,
)
_SAID = frozenset(
    map(
        stem,
        word_set("""must should result answer text output contain contains include includes mention
    mentions name names state states say says give gives list lists be is are has have it the a an of
    least most every each all one with and or to for in on that there not empty non sentence word line
    cite cites source citation number fewer more than exactly under"""),
    )
)
_COUNTS = (
    *("zero", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)


def judged(reading: Reading) -> tuple[bool, str]:
    """Whether the data meets the rule that the question states, and why or why not."""
    found = _RULE.search(reading.question)
    rule = (found[1] or found[2]) if found else reading.question
    bare = "\n".join(excerpt.text for excerpt in reading.excerpts)
    # A line of the result that cites nothing goes by the name of the result itself.
    cited = {e.where for e in reading.excerpts if not e.where.startswith("result")}
    if not bare.strip():
        return False, "There is no result to judge."
    for objection in (_unmet_bound(rule, bare, len(cited)), _unquoted(rule, bare)):
        if objection:
            return False, objection
    return _by_words(rule, bare)


def _unmet_bound(rule: str, bare: str, cited: int) -> str | None:
    for bound, written, what in _BOUND.findall(rule):
        if not (written.isdecimal() or written.lower() in _COUNTS):
            continue
        wanted = int(number_of(written)) if written.isdecimal() else _COUNTS.index(written.lower())
        count = _count(what.lower().rstrip("s"), bare, cited)
        if not _holds(bound.lower(), count, wanted):
            return f"{what.capitalize()}: {count}; the rule wants {bound.lower()} {wanted}."
    return None


def _holds(bound: str, count: int, wanted: int) -> bool:
    match bound:
        case "at least" | "no fewer than" | "no less than" | "minimum of":
            return count >= wanted
        case "more than":
            return count > wanted
        case "at most" | "no more than" | "maximum of":
            return count <= wanted
        case "exactly":
            return count == wanted
    return count < wanted


def _count(what: str, bare: str, cited: int) -> int:
    match what:
        case "word":
            return len(bare.split())
        case "sentence":
            return len(list(sentences(bare)))
        case "character":
            return len(bare)
        case "citation" | "source":
            return cited
        case "number":
            return sum(found.kind is Kind.NUMBER for found in values_in(bare))
    return len([line for line in bare.split("\n") if line.strip()])


def _unquoted(rule: str, bare: str) -> str | None:
    """What the rule puts in quotes has to stand there as it is."""
    for found in values_in(rule):
        if found.kind is Kind.QUOTED and str(found.value).lower() not in bare.lower():
            return f"“{found.value}” is not in it."
    return None


def _by_words(rule: str, bare: str) -> tuple[bool, str]:
    wanted = {
        term(word): word
        for word in words(rule)
        if stem(word) not in _SAID and not word.isdecimal() and len(word) > 2
    }
    have = {term(word) for word in words(bare)}
    missing = [word for each, word in wanted.items() if each not in have]
    share = 1 - len(missing) / len(wanted) if wanted else 1.0
    judge = "By the words alone (offline, rule-based)"
    if share >= ENOUGH:
        return True, f"{judge}, it speaks of {share:.0%} of what the rule names."
    return False, f"{judge}, it does not speak of: {', '.join(missing[:8])}."
