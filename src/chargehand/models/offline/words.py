"""Words as the rules compare them: split, and without their endings."""

import re
from functools import lru_cache

_WORD = re.compile(r"[^\W_]+(?:['’][a-z]{1,2}\b)?")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[A-Za-z])(?=\d)")
_POSSESSIVE = re.compile(r"['’](?:s|d|m|ll|re|ve|t)$")
_DOUBLED = re.compile(r"([b-df-hj-np-tv-xz])\1$")
_VOWEL = re.compile(r"[aeiouy]")
_SUFFIX = re.compile(
    r"(?<=....)(?:izations?|ational|ations?|ators?|ating|ate|ically|ical|iness|ness|ment|ities|ity|ions?|ive"
    r"|ally|ly|al|ic|ist|ism|er|or|ful|y|i)$"
)


def word_set(text: str) -> frozenset[str]:
    """The words of a list that is written as a text, for it reads better so."""
    return frozenset(text.split())


#: words that carry no meaning of their own
LIGHT = word_set("""a an the of in on at for from to with by as and or that this these those is are was were be been
    has have had do does did there what which who whose whom when where how me my our we us i you your please tell
    give know want would like can could will its it it's they their them all any get got s so then if go come made
    make happen take took according""")
_COUNTED = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen twenty"""
#: a question for yes or no, and one for how many there are
CLOSED = re.compile(r"(?i:is|are|was|were|do|does|did|ha[ds]|have|can(?! you)|may|must|will)\b")
COUNTING = re.compile(r"\bhow many\b|\b(?:the|total|^) ?(?:number|count) of\b|^count\b", re.I)
COUNTS = {word: number for number, word in enumerate(_COUNTED.split())}


def words(text: str) -> list[str]:
    """The words of a text in lower case; names of programs are taken apart."""
    parts = _CAMEL.sub(" ", text.replace("_", " "))
    return [_POSSESSIVE.sub("", word).lower() for word in _WORD.findall(parts)]


@lru_cache(maxsize=8192)
def root(word: str) -> str:
    """The word without its endings, so that `delivery`, `deliver` and `delivered` are one."""
    return _stem(_stem(word.lower()))


@lru_cache(maxsize=8192)
def roots(text: str) -> frozenset[str]:
    return frozenset(map(root, words(text)))


def _stem(word: str) -> str:
    if len(word) <= 3 or not word.isascii() or not word.isalpha():
        return word
    word = _SUFFIX.sub("", _without_inflection(word))
    return word.rstrip("e") if len(word) > 3 else word


def _without_inflection(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith(("sses", "xes", "ches", "shes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for suffix in ("ing", "ed"):
        rest = word.removesuffix(suffix)
        if rest != word and len(rest) >= 3 and _VOWEL.search(rest):
            return _DOUBLED.sub(r"\1", rest)
    return word
