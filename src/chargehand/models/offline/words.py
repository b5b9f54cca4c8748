"""Words as the rules compare them: split, stemmed, and with their synonyms made one."""

import re
from functools import lru_cache

_WORD = re.compile(r"[^\W_]+(?:['’][a-z]{1,2}\b)?")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[A-Za-z])(?=\d)")
_POSSESSIVE = re.compile(r"['’](?:s|d|m|ll|re|ve|t)$")
_DOUBLED = re.compile(r"([b-df-hj-np-tv-xz])\1$")
_VOWEL = re.compile(r"[aeiouy]")


def word_set(text: str) -> frozenset[str]:
    """The words of a list that is written as a text, for it reads better so."""
    return frozenset(text.split())


#: words that carry no topic
STOP = word_set("""a about above after all also am an and any are as at be been before being below both but by
    can could did do does doing down during each else few for from further had has have having he her
    here hers him his how i if in into is it its itself just let like me more most my no nor not of
    off on once only or other our out over own please same she should so some such than that the
    their them then there these they this those through to too under until up very was we were what
    when where which while who whom why will with would you your s t d ll m re ve don
    e g ie eg etc want wants need needs interested using use used via per tell help know looking
    able first second third next last finally lastly another thanks thank hi hello""")
#: stems that nearly every tool has in its description
FAINT = word_set("""get retriev fetch return provid specif given base inform data detail function given list
    find search show comput calcul option user name type number valu default set certain particular
    various includ exampl string integ result""")

_SYNONYMS = """
find search look lookup locate seek discover / compute calculate calc evaluate work / buy purchase order acquire /
book reserve reservation booking schedule / send email mail message notify / remove delete erase drop / make create
generate produce build draw paint painting / change update modify edit / show display present / picture image photo
photograph illustration painting drawing / movie film / car vehicle automobile auto / lawyer attorney solicitor law
legal / doctor physician medic medical clinic / shop store retailer / price cost fee charge expense / salary wage
income / house home property apartment flat / hotel accommodation lodging inn / meal dish recipe cooking cook
cuisine food / restaurant diner eatery cafe / trip travel journey itinerary voyage route / flight plane airline
airfare fly / bus coach / city town / country nation / company firm business corporation enterprise / worker
employee staff / person individual people human / woman women girl female / man men boy male / child children kid /
team club squad / player athlete / match game fixture / score goal point / rank ranking standing / stock share
equity / weather forecast climate / rain precipitation rainfall / start begin commence launch execute / end finish
stop terminate conclude / origin source departure / destination arrival target / distance far length / speed
velocity fast / big large great / small little tiny / quick rapid / amount sum total / mean average / area surface /
dimension size / money currency cash euro eur dollar usd yen pound / loan mortgage credit / interest rate / tax levy
duty / illness disease sickness condition / drug medicine medication / gene dna genetic / plant tree flower / animal
species / song track music tune / concert gig festival event / book novel publication / author writer / law statute
act / crime offence / case lawsuit trial / file document / folder directory / read open view / write draft compose /
summary summarise summarize overview abstract digest / review assess check verify inspect / compare comparison
versus difference / translate translation / convert conversion exchange / answer reply respond / question query /
news article headline / website web site internet online / location place venue where / time hour / history
historical past
"""

_COUNTED = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen twenty"""
COUNTS = {word: number for number, word in enumerate(_COUNTED.split())}


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """The word without its endings: enough for `calculate` and `calculations` to meet."""
    if len(word) <= 3 or not word.isascii() or not word.isalpha():
        return word
    word = _without_inflection(word)
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 4:
            word = word[: -len(suffix)]
            break
    return word.rstrip("e") if len(word) > 3 else word


_SUFFIXES = (
    *("izations", "ization", "ational", "ations", "ation", "ators", "ator", "ating", "ate"),
    *("ically", "ical", "iness", "ness", "ment", "ities", "ity", "ions", "ion", "ive"),
    *("ally", "ly", "al", "ic", "ist", "ism", "er", "or", "ful", "y", "i"),
)


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


@lru_cache(maxsize=8192)
def root(word: str) -> str:
    """The stem of its stem, so that `delivery`, `deliver` and `delivered` are one."""
    return stem(stem(word.lower()))


def words(text: str) -> list[str]:
    """The words of a text in lower case; names of programs are taken apart."""
    parts = _CAMEL.sub(" ", text.replace("_", " "))
    return [_POSSESSIVE.sub("", word).lower() for word in _WORD.findall(parts)]


def concept(word: str) -> str:
    """What the word has in common with its synonyms; empty if it has none."""
    return _CONCEPTS.get(stem(word), "")


@lru_cache(maxsize=8192)
def term(word: str) -> str:
    """What stands for the word, its inflections and its synonyms."""
    root = stem(word)
    return _CONCEPTS.get(root, root)


def _concepts() -> dict[str, str]:
    concepts: dict[str, str] = {}
    for line in " ".join(_SYNONYMS.split()).split(" / "):
        roots = [stem(word) for word in line.split()]
        for root in roots:
            concepts.setdefault(root, roots[0])
    return concepts


_CONCEPTS = _concepts()


def term_set(text: str) -> frozenset[str]:
    return frozenset(map(term, text.split()))


def terms(text: str) -> list[str]:
    """The words that carry the topic of a text, each as its term, in order."""
    return [term(word) for word in topic_words(text)]


def topic_words(text: str) -> list[str]:
    """The words of a text that carry its topic, as they are written."""
    return [word for word in words(text) if word not in STOP]
