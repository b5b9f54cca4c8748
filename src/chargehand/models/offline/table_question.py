"""What each word of a question stands for in a table. One rule: every word must be accounted for.

A word is a column, a value in one, an aggregate, a comparison, a period, the name of the table, or carries no
meaning of its own. If one is left over, or may be two things, nothing is answered from this table.
"""

import re
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from chargehand.models.offline.periods import PERIOD, period_in
from chargehand.models.offline.tables import MOST_ROWS, Column, Condition, Query, Sheet, literal
from chargehand.models.offline.words import CLOSED, COUNTING, COUNTS, LIGHT, root, roots, word_set

_TOKEN = re.compile(r"\d[\d,]*(?:\.\d+)?|[^\W\d_]+(?:['’](?!s\b)[^\W\d_]+)*|[A-Za-z\d]+")
_LIGHT = LIGHT | word_set("""show list find file files name record records recorded row rows entry entries line lines
    table tables data csv listed column same overall far happened taken altogether came went""")
_ROWS = word_set("item items thing things")
#: turn a question round, which no rule here follows; in "no more than 5" they are part of a comparison
_NOT = word_set("no not")
#: words that may stand for a column of numbers
_KIN = [
    roots("sold sell sale unit quantity qty piece"),
    roots("earn revenue turnover income bring brought"),
    roots("price cost cheap cheaper expensive fee charge pay paid"),
    roots("weight heavy weigh kg"),
    roots("length long duration last minutes hours"),
]
#: superlatives downwards, upwards, and the words of the column that they name themselves, if they do
_SUPERLATIVES = (
    ("highest most largest maximum max top greatest biggest", "lowest least smallest minimum", ""),
    ("", "min fewest", ""),
    ("expensive priciest dearest", "cheapest", "price cost fee charge"),
    ("newest youngest", "oldest", "date born birth built founded year since joined hired"),
    ("latest last recent", "earliest first", "date"),
    ("longest", "shortest", "duration length days hours minutes months distance km time"),
    ("heaviest", "lightest", "weight kg"),
)
_ORDERS = {word: ("desc", hints) for down, _, hints in _SUPERLATIVES for word in down.split()}
_ORDERS |= {word: ("asc", hints) for _, up, hints in _SUPERLATIVES for word in up.split()}
_SPECIAL = {word for word, (_, hints) in _ORDERS.items() if hints}
_SUMS, _MEANS = word_set("total sum combined together"), word_set("average mean avg")
_AMOUNTS = "quantity qty amount units stock copies pieces count"
_SIGNS = {
    "more than|over|above|greater than|exceeding|higher than|larger than|longer than|heavier than": ">",
    "less than|fewer than|under|below|lower than|smaller than|shorter than|lighter than|cheaper than": "<",
    "at least|no less than|no fewer than": ">=",
    "at most|no more than|up to": "<=",
}
_BOUND = re.compile(rf"\b({'|'.join(_SIGNS)})\s+[$€£]?(\d[\d,]*(?:\.\d+)?)", re.IGNORECASE)
_ID_WORDS = roots("id number no code key isbn sku")
_DIFFERENT = word_set("different distinct unique kinds types")
_PER = re.compile(r"\b(?:per|by|for each|for every|each|every|in each)\s+(\w+)", re.IGNORECASE)
_ROW_COUNT = re.compile(r"(?i)\b(?:how many|(?:number|count) of) (row|record|line|entr[yi]e?)s?\b")
#: asks for files or tables as such, which no row tells
_SHEETS = re.compile(r"(?i)(?:which|what|how many|list(?: all| the)*) (file|table|column|list)s?\b")


class Word(Struct):
    """A word of the question, and what it stands for."""

    text: str
    root: str
    start: int
    end: int
    is_used: bool = False
    #: that it names
    column: Column | None = None


class TableQuestion:
    """The words of a question, and what each stands for in one table."""

    def __init__(self, question: str, sheet: Sheet) -> None:
        self._text = question
        self._sheet = sheet
        found = [(match[0].lower(), match.span()) for match in _TOKEN.finditer(question)]
        self._words = [Word(text, root(text), *span, text in _LIGHT) for text, span in found]
        self._said = {word.text for word in self._words}
        self._where: list[Condition] = []
        self._filtered: set[Column] = set()
        self._row_count = _ROW_COUNT.search(question)
        self._counts_rows = self._row_count is not None
        self._is_doubtful = False
        self.left: tuple[str, ...] = ()

    def queries(self) -> list[Query]:
        """All readings that leave no word over; none if there are such words, or no way to compute it."""
        own = roots(" ".join([self._sheet.table, *(column.name for column in self._sheet.columns)]))
        other = _SHEETS.match(self._text)
        if CLOSED.match(self._text) or (other and root(other[1]) not in own):
            self.left = (other[0].lower() if other else "yes or no",)
            return []
        if self._row_count:
            self._use(self._row_count)
            row = root(self._row_count[1])
            self._is_doubtful = any(row in column.stems for column in self._sheet.columns)
        self._take_values()
        self._take_names()
        self._take_periods()
        self._take_bounds()
        found = self._computed()
        self.left = tuple(word.text for word in self._words if not word.is_used)
        is_sure = not self.left and not self._is_doubtful
        return [replace(query, where=tuple(self._where)) for query in found] if is_sure else []

    def _use(self, match: re.Match[str]) -> None:
        for word in self._words:
            word.is_used |= match.start() <= word.start and word.end <= match.end()

    def _use_words(self, these: frozenset[str]) -> bool:
        """Whether one of these was said; it is accounted for then."""
        for word in self._words:
            word.is_used |= word.text in these
        return bool(self._said & these)

    def _take_values(self) -> None:
        """What text columns hold, the longest first; what two columns hold is in doubt."""
        hits = sorted(self._value_hits(), key=lambda hit: len(hit[0]), reverse=True)
        taken: dict[int, range] = {}
        meant: dict[Column, list[str]] = {}
        for place, column, value in hits:
            if all(taken.get(n, place) == place for n in place):
                taken |= dict.fromkeys(place, place)
                meant.setdefault(column, []).append(value)
                self._is_doubtful |= any(hit[0] == place and hit[1] is not column for hit in hits)
        for n in taken:
            self._words[n].is_used = True
        for column, values in meant.items():
            listed = ", ".join(map(literal, values))
            told = f"{column.name} = {' or '.join(values)}"
            self._where.append(Condition(f"{column.text_sql} in ({listed})", told))
            self._filtered.add(column)

    def _value_hits(self) -> Iterator[tuple[range, Column, str]]:
        asked = [word.root for word in self._words]
        texts = [c for c in self._sheet.columns if c.kind == "text"]
        for column, value in [(c, value) for c in texts for value in c.values]:
            own = [root(found[0]) for found in _TOKEN.finditer(value)]
            for n in range(len(asked) - len(own) + 1 if own else 0):
                said = [word.text for word in self._words[n : n + len(own)]]
                is_said = asked[n : n + len(own)] == own and {*said} - _LIGHT - _NOT
                if is_said and not (len(own) == 1 and self._is_name(said[0], column, value)):
                    yield range(n, n + len(own)), column, value

    def _is_name(self, said: str, column: Column, value: str) -> bool:
        """Whether a word rather names another column: that has it, and it is not the value to the letter."""
        named = [c for c in self._sheet.columns if c is not column and root(said) in c.stems]
        return bool(named) and (said != value.lower() or said in {c.name.lower() for c in named})

    def _take_names(self) -> None:
        """Words for columns, and for the rows: the table's name, or its key where that is not asked for."""
        asked = {word.root for word in self._words}
        for word in self._words:
            if word.is_used or word.text in _NOT:
                continue
            fits = {each: _fit(each, word.root, asked) for each in self._sheet.columns}
            is_rows = word.root in roots(self._sheet.table) or word.text in _ROWS
            best = 0.0 if is_rows and self._row_count else max(fits.values(), default=0.0)
            columns = [column for column, fit in fits.items() if fit == best > 0]
            is_id = bool(columns) and all(c.is_id for c in columns) and not asked & _ID_WORDS
            word.is_used = bool(columns) or is_rows
            if (is_id and all(map(self._sheet.unique, columns))) or (is_rows and best < 1):
                self._counts_rows = True
            elif columns:
                word.column = columns[0]
                # What an id stands for is told in another table; yes and no are no names of things.
                self._is_doubtful |= len(columns) > 1 or is_id or columns[0].is_flag

    def _take_periods(self) -> None:
        dates = [c for c in self._sheet.columns if c.kind == "date"]
        named = [word for word in self._words if word.column in dates]
        meant = list(dict.fromkeys(word.column for word in named if word.column)) or dates
        matches = list(PERIOD.finditer(self._text))
        for match in matches:
            self._use(match)
            found = [(c, p) for c in meant if (p := period_in(match, c.low, c.high))]
            self._where += (Condition(p.sql(c.text_sql), f"{c.name} {p.told}") for c, p in found)
            self._is_doubtful |= not found or len(meant) > 1 or len(matches) > 1
            for word in named:
                word.column = None

    def _take_bounds(self) -> None:
        measures = [c for c in self._sheet.columns if c.is_measure]
        for match in _BOUND.finditer(self._text):
            named = [word for word in self._words if word.column in measures]
            # The nearest word says what is compared, else there must be but one column to compare.
            gaps = [max(w.start - match.end(), match.start() - w.end) for w in named]
            near = named[gaps.index(min(gaps))].column if named else None
            column = near or (measures[0] if len(measures) == 1 else None)
            number = next(word for word in self._words if word.start >= match.start(2))
            if column is None or number.is_used:
                continue  # nothing to compare, or a year
            self._use(match)
            self._said -= {*match[1].lower().split()}
            for word in named:
                word.column = None if word.column is column else word.column
            sign = next(s for said, s in _SIGNS.items() if match[1].lower() in said.split("|"))
            told = f"{sign} {match[2].replace(',', '')}"
            self._where.append(Condition(f"{column.sql} {told}", f"{column.name} {told}"))

    def _computed(self) -> list[Query]:
        group = self._group()
        measure, label = self._columns_named(group)
        is_mean = self._use_words(_MEANS)
        is_sum = measure is not None and self._use_words(_SUMS)
        can_add = measure is not None and measure.adds_up
        self._use_words(word_set("many number count much"))
        order, ordered = self._superlative(measure)
        if order:
            hows = ["avg"] if is_mean else ["sum"] if is_sum else ["sum", "value"]
            return self._first(order, ordered, hows, group or label)
        if is_mean:
            return [Query(self._sheet, "avg", measure, group)] if measure else []
        is_count = COUNTING.search(self._text) is not None
        if is_count and measure is None:
            return self._counted(label, group)
        if is_sum or is_count or (can_add and ("much" in self._said or group)):
            is_clear = can_add and not (is_count and (label or self._row_count))
            return [Query(self._sheet, "sum", measure, group)] if is_clear else []
        if measure is not None:
            return [Query(self._sheet, "value", measure)] if self._where and not label else []
        return self._listed(label)

    def _group(self) -> Column | None:
        named = {match.start(1): match for match in _PER.finditer(self._text)}
        for word in self._words:
            if word.start in named and word.column and not word.column.is_measure:
                self._use(named[word.start])
                return word.column
        return None

    def _columns_named(self, group: Column | None) -> tuple[Column | None, Column | None]:
        """The measure and the label that the question names beside its filters; two are in doubt."""
        told = {group, *self._filtered}
        named = dict.fromkeys(w.column for w in self._words if w.column and w.column not in told)
        measures = [column for column in named if column.is_measure]
        labels = [column for column in named if not column.is_measure]
        self._is_doubtful |= len(measures) > 1 or len(labels) > 1
        return next(iter(measures), None), next(iter(labels), None)

    def _superlative(self, measure: Column | None) -> tuple[str, Column | None]:
        """Which way rows are put in order, if the first are asked for, and by which column."""
        free = [word.text for word in self._words if not word.is_used]
        for text in sorted(free, key=lambda text: text not in _SPECIAL):
            order, hints = _ORDERS.get(text, ("", "nothing"))
            columns = self._hinted(hints) if hints else [measure]
            if columns:
                lead = re.search(rf"\b(most|least) {text}\b", self._text.lower())
                self._use_words(frozenset((text, lead[1] if lead else text)))
                self._is_doubtful |= measure not in columns and bool(measure or columns[1:])
                order = "asc" if lead and lead[1] == "least" else order
                return order, measure if measure in columns else columns[0]
        return "", None

    def _hinted(self, hints: str) -> list[Column]:
        """The columns with the first of these words that any has."""
        usable = [c for c in self._sheet.columns if c.is_measure or c.kind == "date"]
        found = ([c for c in usable if root(w) in c.stems or w == c.kind] for w in hints.split())
        return next(filter(None, found), [])

    def _first(
        self, order: str, ordered: Column | None, hows: list[str], label: Column | None
    ) -> list[Query]:
        """The first rows, or the first of what is computed for each label."""
        most = self._most()
        is_most = bool(self._said & {"most", "least", "fewest"})
        if ordered is None:
            is_open = self._words[-1].text in ("most", "least")  # most rows, or most of something?
            can_count = label is not None and self._counts_rows and is_most and not is_open
            return [Query(self._sheet, "count", None, label, (), order, most)] if can_count else []
        if label is None or label is ordered:
            label = self._sheet.label
        if label is None or self._sheet.unique(label):
            # A number is nobody, and no place.
            is_nobody = label is not None and label.is_id and self._said & {"who", "where"}
            hows = [] if is_nobody else ["value"]
        elif not ordered.adds_up or self._said & _SPECIAL:
            hows = [how for how in hows if how != "sum"]
        elif is_most:
            hows = [how for how in hows if how != "value"]
        return [Query(self._sheet, how, ordered, label, (), order, most) for how in hows]

    def _most(self) -> int:
        """How many of the first are asked for."""
        known = COUNTS | {str(number): number for number in range(MOST_ROWS + 1)}
        for word in self._words:
            if not word.is_used and known.get(word.text, 0) > 1:
                word.is_used = True
                return known[word.text]
        return 1

    def _counted(self, label: Column | None, group: Column | None) -> list[Query]:
        is_different = self._use_words(_DIFFERENT)
        if label is not None:
            is_clear = is_different or self._sheet.unique(label) or not self._counts_rows
            return [Query(self._sheet, "distinct", label, group)] if is_clear else []
        if not (self._counts_rows or self._where):
            return []
        # lamps: rows about lamps, or pieces?
        amounts = [] if self._counts_rows else [c for c in self._hinted(_AMOUNTS) if c.adds_up]
        sums = [Query(self._sheet, "sum", column, group) for column in amounts]
        return [Query(self._sheet, "count", None, group), *sums]

    def _listed(self, label: Column | None) -> list[Query]:
        """The one label that is asked for, of the rows that are spoken of."""
        is_open = not {word.text for word in self._words[:3]} & {"who", "when", "where", "how"}
        if label is None and self._where and self._counts_rows and is_open:
            label = self._sheet.label
        is_short = label is not None and (self._where or label.different <= MOST_ROWS)
        return [Query(self._sheet, "value", None, label)] if is_short else []


def _fit(column: Column, said: str, asked: set[str]) -> float:
    """How well a word names a column, by the other words that are asked."""
    own = column.stems
    if said in own:
        return 1 + len(own & asked) / 10 - len(own - asked) / 100
    is_kin = column.kind == "number" and any(said in kin and own & kin for kin in _KIN)
    return 0.5 if is_kin else 0.0
