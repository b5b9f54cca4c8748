"""Questions about tables as SQL. One rule: every word of a question must be accounted for.

A word is a column, a value in one, an aggregate, a comparison, a period, the name of the table, or carries no
meaning of its own. If one is left over, the table is not what the question is about, and nothing is answered.
"""

import re
from collections.abc import Iterator, Sequence
from decimal import ROUND_HALF_UP, Decimal
from itertools import product
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from chargehand.models.offline.periods import PERIOD, period_in
from chargehand.models.offline.sheets import Column, Sheet, literal, quoted
from chargehand.models.offline.words import COUNTS, root, word_set

MOST_READINGS = 4
#: that are told one by one
MOST_ROWS = 20

_TOKEN = re.compile(r"\d[\d,]*(?:\.\d+)?|[^\W\d_]+(?:['’](?!s\b)[^\W\d_]+)*|[A-Za-z\d]+")
_BARE = word_set("""a an the of in on at for from to with by as and or that this is are was were be been has have had
    do does did there what which who whose when where how whom me my our we us i you your please tell show give list
    find name know want would like can could will its it it's their they them all any s record records recorded row
    rows entry entries line lines table tables data file files csv get got listed according column same
    overall so far then these those if made make happen happened take took taken altogether come came go went""")
_ROWS = word_set("record records row rows entry entries line lines item items thing things")
#: words that may stand for a column of numbers
_KIN = [
    {root(word) for word in group.split()}
    for group in (
        "sold sell sale unit quantity qty piece",
        "earn revenue turnover income bring brought",
        "price cost cheap cheaper expensive fee charge pay paid",
        "weight heavy weigh kg",
        "length long duration last minutes hours",
        "tall high height",
    )
]
_UP = word_set("highest most largest maximum max top greatest biggest")
_DOWN = word_set("lowest least smallest minimum min fewest")
#: superlatives that name their column themselves: which way, and the words of the column
_SPECIAL = {
    word: (order, columns)
    for order, said, columns in (
        ("asc", "cheapest", "price cost fee charge"),
        ("desc", "expensive priciest dearest", "price cost fee charge"),
        ("desc", "longest", "duration length days hours minutes months distance km time"),
        ("asc", "shortest", "duration length days hours minutes months distance km time height"),
        ("desc", "heaviest", "weight kg"),
        ("asc", "lightest", "weight kg"),
        ("asc", "oldest", "date born birth built founded year since joined hired"),
        ("desc", "newest youngest", "date born birth built founded year since joined hired"),
        ("desc", "latest last recent", "date"),
        ("asc", "earliest first", "date"),
    )
    for word in said.split()
}
_SUMS, _MEANS = word_set("total sum combined together"), word_set("average mean avg")
_AMOUNTS = "quantity qty amount units stock copies pieces count"
#: the columns that may answer such a question
_KINDS = {
    "who": """name employee member customer author person technician patient staff borrower owner doctor teacher
    manager contact client user driver reader vet mechanic volunteer student tenant nurse assignee agent""",
    "where": "location place room shelf site city town country address store building pen aisle zone bench",
}
_SIGNS = {
    "more than|over|above|greater than|exceeding|higher than|larger than|longer than|heavier than": ">",
    "less than|fewer than|under|below|lower than|smaller than|shorter than|lighter than|cheaper than": "<",
    "at least|no less than|no fewer than": ">=",
    "at most|no more than|up to": "<=",
}
_BOUND = re.compile(
    "|".join(
        rf"\b(?:{told})\s+[$€£]?(?P<n{n}>\d[\d,]*(?:\.\d+)?)" for n, told in enumerate(_SIGNS)
    ),
    re.IGNORECASE,
)
_ID_WORDS = {root(word) for word in ("id", "number", "no", "code", "key", "isbn", "sku")}
_COUNTING = re.compile(
    r"\bhow many\b|\b(?:the|total|^) ?(?:number|count) of\b|^count\b", re.IGNORECASE
)
#: turn a question round, which no rule here follows; in "no more than 5" they are part of a comparison
_NOT = word_set(
    "no not never none neither nor without except but isn't aren't wasn't weren't doesn't"
)
_DIFFERENT = word_set("different distinct unique kinds types")
_PER = re.compile(r"\b(?:per|by|for each|for every|each|every|in each)\s+(\w+)", re.IGNORECASE)
_CLOSED = re.compile(
    r"(?:is|are|was|were|do|does|did|has|have|had|can|may|must|should|will)\b", re.IGNORECASE
)


class Token(NamedTuple):
    text: str
    stem: str
    start: int
    end: int


class Condition(NamedTuple):
    """What rows must be like, in SQL and in words."""

    sql: str
    told: str


Rows = Sequence[Sequence[Any]]


class Reading(Struct, frozen=True, kw_only=True):
    """One way to understand a question: what is computed over which rows of which table."""

    sheet: Sheet
    #: count, distinct, sum, avg, value
    how: str
    measure: Column | None = None
    #: what a value belongs to; all else is computed for each of its values
    label: Column | None = None
    where: tuple[Condition, ...] = ()
    #: desc or asc, if only the first are wanted
    order: str = ""
    most: int = 1

    @property
    def sql(self) -> str:
        """A query for a label, a figure, how many rows have no value for it, and the line of its row."""
        named = self.measure if self.how == "value" else self.label
        where = [each.sql for each in self.where]
        where += [f"{named.sql} is not null"] if named is not None else []
        label = self.label.text_sql if self.label else "''"
        is_list = self.how == "value" and not self.order and not self._has_line
        text = f"select {'distinct ' if is_list else ''}{label} as label, {self._figure}, "
        text += f"{'rowid + 2' if self._has_line else 0} as line from {quoted(self.sheet.table)}"
        text += f" where {' and '.join(where)}" if where else ""
        text += " group by 1" if self.label and self.how != "value" else ""
        return f"{text} order by {f'2 {self.order}, 1' if self.order else '1'}"

    @property
    def _has_line(self) -> bool:
        return self.how == "value" and self.sheet.has_lines

    @property
    def _figure(self) -> str:
        column = self.measure
        if column is None:
            return (
                "count(*) as figure, 0 as gaps"
                if self.how == "count"
                else "'' as figure, 0 as gaps"
            )
        if self.how == "value":
            return (
                f"{column.sql if column.kind == 'number' else column.text_sql} as figure, 0 as gaps"
            )
        if self.how == "distinct":
            return f"count(distinct {column.sql}) as figure, 0 as gaps"
        return f"{self.how}({column.sql}) as figure, count(*) - count({column.sql}) as gaps"

    def told(self, rows: Rows) -> list[str]:
        """The answer, each line with its source; nothing if the rows hold none, or too many."""
        rows = [row for row in rows if row[1] is not None]
        if self.order and len(rows) > self.most:
            last = rows[self.most - 1][1]
            rows = [row for n, row in enumerate(rows) if n < self.most or row[1] == last]
        if not rows or len(rows) > MOST_ROWS:
            return []
        if self.order and self.label:
            return [self._line(f"{row[0]} ({shown(row[1])})", [row]) for row in rows]
        listed = dict.fromkeys(f"{row[0]} {shown(row[1])}".strip() for row in rows)
        return [self._line(", ".join(listed), rows)]

    def _line(self, said: str, rows: Rows) -> str:
        gaps = sum(int(row[2] or 0) for row in rows)
        name = self.measure.name if self.measure else ""
        lack = f" (left out, for want of {name}: {gaps} row{'s' * (gaps > 1)})" if gaps else ""
        line = f":{rows[0][3]}" if self._has_line and len(rows) == 1 else ""
        return f"{self._title}: {said}{lack} [{self.sheet.file}{line}]"

    def key(self, rows: Rows) -> object:
        """What the answer comes to, so that two readings can be compared."""
        if self.order:
            return tuple(row[0] for row in rows[: self.most])
        return frozenset(shown(row[1] if row[1] not in ("", None) else row[0]) for row in rows)

    def is_several(self, rows: Rows) -> bool:
        """Whether rows that the question does not tell apart say different things."""
        is_bare = self.how == "value" and self.label is None and not self.order
        return is_bare and len({row[1] for row in rows}) > 1

    @property
    def _title(self) -> str:
        named = self.measure or self.label
        is_date = self.measure is not None and self.measure.kind == "date"
        orders = ("latest", "earliest") if is_date else ("highest", "lowest")
        told = [{"desc": orders[0], "asc": orders[1]}.get(self.order, ""), _HOWS.get(self.how, "")]
        told.append("rows" if named is None or self.how == "count" else named.name)
        if self.label is not None and self.how != "value" and not self.order:
            told.append(f"by {self.label.name}")
        if self.where:
            told.append(f"where {' and '.join(each.told for each in self.where)}")
        title = " ".join(filter(None, told))
        return title[0].upper() + title[1:]


_HOWS = {"sum": "total", "avg": "average", "count": "number of", "distinct": "number of different"}


class Understanding(Struct, frozen=True):
    """What the tables make of a question: its readings, or the words that none accounts for."""

    readings: tuple[Reading, ...] = ()
    left: tuple[str, ...] = ()


def understood(question: str, sheets: Sequence[Sheet]) -> Understanding:
    """The readings of the question that account for all of its words."""
    accounts = [_Account(question, sheet) for sheet in sheets]
    readings = [reading for account in accounts for reading in account.readings()]
    if len(readings) > MOST_READINGS:
        return Understanding((), ("several readings",))
    left = min((account.left for account in accounts), key=len, default=())
    return Understanding(tuple(readings), () if readings else left)


def shown(value: Any) -> str:
    """A value as people write it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if float(value).is_integer():
        return f"{value:,.0f}"
    exact = Decimal(repr(float(value)))
    return f"{exact.quantize(Decimal('0.0001' if abs(value) < 1 else '0.01'), ROUND_HALF_UP):,}"


class _Account:
    """The words of a question, and what each stands for in one table."""

    def __init__(self, question: str, sheet: Sheet) -> None:
        self._text = question
        self._sheet = sheet
        self._tokens = [
            Token(found[0], root(found[0]), found.start(), found.end())
            for found in _TOKEN.finditer(question)
        ]
        self._low = [token.text.lower() for token in self._tokens]
        self._used = [word in _BARE for word in self._low]
        self._where: list[Condition] = []
        self._filtered: set[str] = set()
        self._named: dict[int, list[Column]] = {}
        self._counts_rows = False
        self._is_doubtful = False
        self.left: tuple[str, ...] = ()

    def readings(self) -> list[Reading]:
        """All readings that leave no word over; none if there are such words, or no way to compute it."""
        if _CLOSED.match(self._text):
            self.left = ("yes or no",)
            return []
        self._take_values()
        self._take_names()
        choices = [*self._take_period(), *self._take_bounds()]
        found = self._computed(is_whole=not (choices or self._where))
        compared = [match.span() for match in _BOUND.finditer(self._text)]
        for n, token in enumerate(self._tokens):
            is_compared = any(start <= token.start < end for start, end in compared)
            self._used[n] &= is_compared or self._low[n] not in _NOT
        pairs = zip(self._tokens, self._used, strict=True)
        self.left = tuple(token.text for token, used in pairs if not used)
        if self.left or self._is_doubtful:
            return []
        return [
            replace(reading, where=(*self._where, *chosen))
            for reading in found
            for chosen in product(*choices)
        ]

    def _use(self, start: int, end: int) -> None:
        for n, token in enumerate(self._tokens):
            self._used[n] |= start <= token.start and token.end <= end

    def _use_words(self, these: frozenset[str]) -> None:
        for n, word in enumerate(self._low):
            self._used[n] |= word in these

    # what the words stand for

    def _take_values(self) -> None:
        """Values that columns hold, the longest first; one that two columns hold is in doubt."""
        taken: dict[int, range] = {}
        by_column: dict[str, tuple[Column, list[str]]] = {}
        hits = sorted(self._value_hits(), key=lambda hit: len(hit[0]), reverse=True)
        for place, column, value in hits:
            if any(taken.get(n, place) != place for n in place):
                continue
            if self._is_name(place, column, value):
                continue
            rivals = [hit for hit in hits if hit[0] == place and hit[1] is not column]
            if rivals and not self._is_beside(place, column):
                self._is_doubtful |= not any(self._is_beside(place, hit[1]) for hit in rivals)
                continue
            taken |= dict.fromkeys(place, place)
            by_column.setdefault(column.name, (column, []))[1].append(value)
        for n in taken:
            self._used[n] = True
        for name, (column, values) in by_column.items():
            listed = ", ".join(map(literal, values))
            told = f"{name} = {' or '.join(values)}"
            self._where.append(Condition(f"{column.text_sql} in ({listed})", told))
            self._filtered.add(name)

    def _is_name(self, place: range, column: Column, value: str) -> bool:
        """Whether what may be a value is the name of another column; in doubt if it may well be both."""
        word, stem = self._low[place.start], self._tokens[place.start].stem
        named = [c for c in self._sheet.columns if c is not column and stem in c.stems]
        if (
            len(place) > 1
            or not named
            or (word == value.lower() and word not in {c.name.lower() for c in named})
        ):
            return False
        self._is_doubtful |= word not in {c.name.lower() for c in named}
        return True

    def _value_hits(self) -> Iterator[tuple[range, Column, str]]:
        asked = [token.stem for token in self._tokens]
        texts = [c for c in self._sheet.columns if c.kind == "text"]
        for column, value in [(c, value) for c in texts for value in c.values]:
            own = [root(found[0]) for found in _TOKEN.finditer(value)]
            for n in range(len(asked) - len(own) + 1 if own else 0):
                if asked[n : n + len(own)] == own and not set(self._low[n : n + len(own)]) <= _BARE:
                    yield range(n, n + len(own)), column, value

    def _is_beside(self, place: range, column: Column) -> bool:
        near = (place.start - 2, place.start - 1, place.stop)
        return any(self._tokens[n].stem in column.stems for n in near if 0 <= n < len(self._tokens))

    def _take_names(self) -> None:
        """Words for columns, and for the rows: the table's name, or its key where that is not asked for."""
        asked = {token.stem for token in self._tokens}
        for n, token in enumerate(self._tokens):
            if self._used[n]:
                continue
            fits = [(_fit(each, token.stem, asked), each) for each in self._sheet.columns]
            best = max((fit for fit, _ in fits), default=0.0)
            columns = [column for fit, column in fits if fit == best > 0]
            is_id = bool(columns) and all(c.is_id for c in columns) and not asked & _ID_WORDS
            is_key = is_id and all(map(self._sheet.unique, columns))
            is_rows = token.stem in self._sheet.stems or self._low[n] in _ROWS
            self._used[n] = bool(columns) or is_rows
            if is_key or (is_rows and best < 1):
                self._counts_rows = True
            elif columns:
                self._named[n] = columns
                # What an id stands for is told in another table; yes and no are no names of things.
                self._is_doubtful |= is_id or any(c.is_flag for c in columns)

    def _take_period(self) -> Iterator[list[Condition]]:
        """The conditions on dates, one for each column that may be meant."""
        matches = [(period_in(match), match) for match in PERIOD.finditer(self._text)]
        dates = [c for c in self._sheet.columns if c.kind == "date"]
        named = [c for columns in self._named.values() for c in columns if c in dates]
        for period, match in matches:
            if period is None:
                continue
            self._use(match.start(), match.end())
            columns = list(dict.fromkeys(named)) or dates
            spans = [(column, period.within(column.low, column.high)) for column in columns]
            found = [Condition(p.sql(c.text_sql), f"{c.name} {p}") for c, p in spans if p]
            self._named = {n: cs for n, cs in self._named.items() if not set(cs) <= set(columns)}
            self._is_doubtful |= not found or len(matches) > 1
            yield found

    def _take_bounds(self) -> Iterator[list[Condition]]:
        for match in _BOUND.finditer(self._text):
            tokens = [
                n for n, t in enumerate(self._tokens) if match.start() <= t.start < match.end()
            ]
            columns = self._bounded(tokens[0], tokens[-1])
            if not columns or self._used[tokens[-1]]:
                continue  # nothing to compare, or a year
            self._use(match.start(), match.end())
            at, sign = next((n, s) for n, s in enumerate(_SIGNS.values()) if match[f"n{n}"])
            number = match[f"n{at}"].replace(",", "")
            told = f"{sign} {number}"
            yield [Condition(f"{c.sql} {told}", f"{c.name} {told}") for c in columns]

    def _bounded(self, first: int, last: int) -> list[Column]:
        """The columns that a comparison may be about: those that the nearest word names."""
        measured = [n for n, cs in self._named.items() if any(c.is_measure for c in cs)]
        if not measured:
            measures = [c for c in self._sheet.columns if c.is_measure]
            return measures if len(measures) == 1 else []
        at = min(measured, key=lambda n: n - last if n > last else first - n + 0.5)
        columns = self._named[at]
        # kg and weight may both stand for it
        near = [n for n in measured if abs(n - at) <= 5 and self._named[n] == columns]
        self._named = {n: cs for n, cs in self._named.items() if n not in near}
        return [c for c in columns if c.is_measure]

    # what is computed

    def _computed(self, is_whole: bool) -> list[Reading]:
        low = set(self._low)
        group = self._group()
        measures, labels = self._columns_named(group)
        is_mean, is_sum, is_much = bool(low & _MEANS), bool(low & _SUMS), "much" in low
        self._use_words(_MEANS | (_SUMS if measures else frozenset()))
        self._use_words(word_set("many number count much"))
        order, ordered = self._superlative(measures)
        if order:
            hows = ["avg"] if is_mean else ["sum"] if is_sum else ["sum", "value"]
            return self._first(order, ordered, hows, labels, group)
        if is_mean:
            return [self._reading("avg", m, group) for m in measures]
        if _COUNTING.search(self._text):
            return self._counted(measures, labels, group)
        if is_sum or ((is_much or group) and any(m.adds_up for m in measures)):
            return [self._reading("sum", m, group) for m in measures if m.adds_up]
        return self._looked_up(measures, labels, is_whole)

    def _reading(
        self, how: str, measure: Column | None = None, label: Column | None = None, **more: Any
    ) -> Reading:
        return Reading(sheet=self._sheet, how=how, measure=measure, label=label, **more)

    def _group(self) -> Column | None:
        for match in _PER.finditer(self._text):
            at = next((n for n, t in enumerate(self._tokens) if t.start == match.start(1)), -1)
            texts = [c for c in self._named.get(at, ()) if not c.is_measure]
            if len(texts) == 1:
                self._named.pop(at)
                self._use(match.start(), match.end())
                return texts[0]
        return None

    def _columns_named(self, group: Column | None) -> tuple[list[Column], list[Column]]:
        """The measures and the labels that the question names beside its filters."""
        measures: list[Column] = []
        labels: list[Column] = []
        for n, columns in sorted(self._named.items()):
            if all(c.is_measure for c in columns):
                both = [m for m in measures if m in columns]
                self._is_doubtful |= bool(measures) and not both
                measures = both or columns
                continue
            is_asked = n > 0 and self._low[n - 1] in ("which", "what")
            free = [c for c in columns if is_asked or c.name not in self._filtered]
            labels += [c for c in free if c not in labels and c is not group]
        return measures, labels

    def _superlative(self, measures: list[Column]) -> tuple[str, list[Column]]:
        """Which way rows are put in order, if the first are asked for, and by which columns."""
        for n, word in enumerate(self._low):
            order, hints = _SPECIAL.get(word, ("", ""))
            columns = [] if self._used[n] else self._hinted(hints)
            if columns:
                if n and self._low[n - 1] in ("most", "least"):
                    self._used[n - 1] = True
                    order = "asc" if self._low[n - 1] == "least" else order
                self._used[n] = True
                return order, [m for m in measures if m in columns] or columns
        for n, word in enumerate(self._low):
            if word in _UP | _DOWN and not self._used[n]:
                self._used[n] = True
                return ("asc" if word in _DOWN else "desc"), measures
        return "", []

    def _hinted(self, hints: str) -> list[Column]:
        """The columns with the first of these words that any has."""
        usable = [c for c in self._sheet.columns if c.is_measure or c.kind == "date"]
        for word in hints.split():
            if found := [c for c in usable if root(word) in c.stems or word == c.kind]:
                return found
        return []

    def _first(
        self,
        order: str,
        ordered: list[Column],
        hows: list[str],
        labels: list[Column],
        group: Column | None,
    ) -> list[Reading]:
        """The first rows, or the first of what is computed for each label."""
        terms = {"order": order, "most": self._most()}
        label = group or next(iter(labels), None) or self._asked_kind()
        if len(labels) > 1:
            return []
        is_most = bool(set(self._low) & {"most", "least", "fewest"})
        if not ordered:
            if label is None or not (self._counts_rows and is_most):
                return []
            is_open = self._low[-1] in ("most", "least")
            adding = [c for c in self._hinted(_AMOUNTS) if c.adds_up and is_open]
            found = [self._reading("sum", column, label, **terms) for column in adding]
            return [self._reading("count", None, label, **terms), *found]
        if label is None or self._sheet.unique(label) or label in ordered:
            named = label
            if label is None or label in ordered:
                named = self._asked_kind() or self._sheet.label
            if named is not None and named.is_id and set(self._low) & _KINDS.keys():
                return []  # a number is nobody, and no place
            return [self._reading("value", column, named, **terms) for column in ordered]
        is_row = bool(set(self._low) & _SPECIAL.keys())
        return [
            self._reading(how, column, label, **terms)
            for column in ordered
            for how in hows
            if (column.adds_up and not is_row if how == "sum" else True)
            and not (how == "value" and is_most and column.adds_up)
        ]

    def _most(self) -> int:
        """How many of the first are asked for."""
        for n, word in enumerate(self._low):
            number = int(word) if word.isdecimal() and len(word) < 3 else COUNTS.get(word, 0)
            if not self._used[n] and 1 < number <= MOST_ROWS:
                self._used[n] = True
                return number
        return 1

    def _counted(
        self, measures: list[Column], labels: list[Column], group: Column | None
    ) -> list[Reading]:
        adding = [m for m in measures if m.adds_up]
        if adding and not labels:
            return [self._reading("sum", m, group) for m in adding]
        if measures or len(labels) > 1:
            return []
        self._use_words(_DIFFERENT)
        if labels:
            is_clear = _DIFFERENT & set(self._low) or self._sheet.unique(labels[0])
            is_other = self._counts_rows and not is_clear
            return [] if is_other else [self._reading("distinct", labels[0], group)]
        if not (self._counts_rows or self._where):
            return []
        found = [self._reading("count", None, group)]
        if not self._counts_rows:  # lamps: rows about lamps, or pieces?
            amounts = [c for c in self._hinted(_AMOUNTS) if c.adds_up]
            found += [self._reading("sum", column, group) for column in amounts]
        return found

    def _asked_kind(self) -> Column | None:
        """The column that who, when or where asks for, if only one can be meant."""
        first = self._low[:3]
        if "when" in first:
            found = [c for c in self._sheet.columns if c.kind == "date"]
            return found[0] if len(found) == 1 else None
        stems = {root(each) for word in first for each in _KINDS.get(word, "").split()}
        texts = [c for c in self._sheet.columns if c.kind == "text" and c.stems & stems]
        found = [c for c in texts if c.name not in self._filtered]
        return found[0] if len(found) == 1 else None

    def _looked_up(
        self, measures: list[Column], labels: list[Column], is_whole: bool
    ) -> list[Reading]:
        """The one column that is asked for, of the rows that are spoken of."""
        if measures:
            is_one = len(measures) == 1 and not labels and not is_whole
            return [self._reading("value", measures[0])] if is_one else []
        asked = self._asked_kind()
        wanted = labels or ([asked] if asked else [])
        is_open = not set(self._low[:3]) & {"who", "when", "where", "whose", "how"}
        if not wanted and not is_whole and self._counts_rows and self._sheet.label and is_open:
            wanted = [self._sheet.label]
        if len(wanted) != 1 or (is_whole and wanted[0].different > MOST_ROWS):
            return []
        return [self._reading("value", None, wanted[0])]


def _fit(column: Column, said: str, asked: set[str]) -> float:
    """How well a word names a column, by the other words that are asked."""
    own = column.stems
    if said in own:
        return 1 + len(own & asked) / 10 - len(own - asked) / 100
    is_kin = column.kind == "number" and any(said in kin and own & kin for kin in _KIN)
    return 0.5 if is_kin else 0.0
