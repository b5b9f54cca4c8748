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

from chargehand.models.offline.periods import PERIOD, Period, period_in
from chargehand.models.offline.sheets import Column, Sheet, linked
from chargehand.models.offline.words import COUNTS, root, word_set, words

MOST_READINGS = 4
MOST_ROWS = 20
#: that are told one by one

_TOKEN = re.compile(r"\d[\d,]*(?:\.\d+)?|[^\W\d_]+(?:['’](?!s\b)[^\W\d_]+)*|[A-Za-z\d]+")
_BARE = word_set("""a an the of in on at for from to with by as and or that this is are was were be been has have had
    do does did there what which who whose when where how whom me my our we us i you your please tell show give list
    find name know want would like can could will its it it's their they them all any s record records recorded row
    rows entry entries line lines table tables data file files csv get got listed according value values column same
    overall so far then these those if made make happen happened take took taken altogether come came go went""")
_ROWS = word_set("record records row rows entry entries line lines item items thing things")
_VERBS = word_set("""deliver delivered deliveries supply supplied ship shipped place placed order ordered buy bought
    purchase purchased sell sold book booked log logged receive received work works working cost
    costs weigh weighs weighed lasted held hold""")
#: what a row may stand for, unless the table has states that tell rows of one kind from another
_STATES = word_set("status state stage result outcome type kind paid returned cancelled delivered")
_KIN = (
    "sold sell sale unit quantity qty piece",
    "earn revenue turnover income bring brought",
    "price cost cheap cheaper expensive fee charge pay paid",
    "weight heavy weigh kg",
    "length long duration last minutes hours",
    "tall high height",
    "old age",
)
_UP = word_set("highest most largest maximum max top greatest biggest")
_DOWN = word_set("lowest least smallest minimum min fewest")
_SPECIAL = {
    word: (order, columns)
    for order, said, columns in (
        ("asc", "cheapest", "price cost fee charge"),
        ("desc", "expensive priciest dearest", "price cost fee charge"),
        ("desc", "longest", "duration length days hours minutes months distance km time"),
        ("asc", "shortest", "duration length days hours minutes months distance km time height"),
        ("desc", "heaviest", "weight kg"),
        ("asc", "lightest", "weight kg"),
        ("desc", "tallest", "height"),
        ("asc", "oldest", "date born birth built founded year since joined hired"),
        ("desc", "newest youngest", "date born birth built founded year since joined hired"),
        ("desc", "latest last recent", "date"),
        ("asc", "earliest first", "date"),
    )
    for word in said.split()
}
#: superlatives that name their column themselves: which way, and the words of the column
_HOW = {"old": "age", "long": "duration length days hours minutes months", "heavy": "weight"} | {
    "tall": "height",
    "far": "distance",
    "expensive": "price cost",
}
_SUMS, _MEANS = word_set("total sum combined together"), word_set("average mean avg")
_SHARE = word_set("percentage percent share proportion")
_PEOPLE = word_set("""name employee member customer author person technician patient staff borrower owner doctor
    teacher manager contact client user driver reader vet mechanic volunteer student tenant nurse assignee agent""")
_PLACES = word_set(
    "location place room shelf site city town country address store building pen aisle zone bench"
)
_SIGNS = {
    "more than|over|above|greater than|exceeding|higher than|larger than|longer than|heavier than|older than|taller than": ">",
    "less than|fewer than|under|below|lower than|smaller than|shorter than|lighter than|cheaper than|younger than": "<",
    "at least|no less than|no fewer than|a minimum of": ">=",
    "at most|no more than|up to|a maximum of": "<=",
    "exactly|equal to": "=",
}
_NUMBER = r"[$€£]?\s?(\d[\d,]*(?:\.\d+)?)"
_BOUND = re.compile(
    "|".join(rf"\b(?P<s{n}>{told})\s+{_NUMBER}" for n, told in enumerate(_SIGNS))
    + rf"|{_NUMBER}\s+(?:\w+\s+)?(?P<orless>or (?:less|fewer|below))"
    + rf"|{_NUMBER}\s+(?:\w+\s+)?(?P<ormore>or (?:more|above|over))"
    + rf"|\bbetween\s+{_NUMBER}\s+and\s+{_NUMBER}",
    re.IGNORECASE,
)
_ID_WORDS = {root(word) for word in ("id", "number", "no", "code", "key", "isbn", "sku")}
_COUNTING = re.compile(
    r"\bhow many\b|\b(?:the|total|^) ?(?:number|count) of\b|^count\b", re.IGNORECASE
)
_MUCH = re.compile(r"\bhow much\b", re.IGNORECASE)
_DIFFERENT = re.compile(r"\b(?:different|distinct|unique|kinds of|types of)\b", re.IGNORECASE)
_PER = re.compile(r"\b(?:per|by|for each|for every|each|every|in each)\s+(\w+)", re.IGNORECASE)
_CLOSED = re.compile(
    r"(?:is|are|was|were|do|does|did|has|have|had|can|may|must|should|will)\b", re.IGNORECASE
)
_NOT = word_set("not without except excluding never no none neither")


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
Hit = tuple[int, int, Column, str]
#: the words from one number to before another are a value of a column


class Reading(Struct, frozen=True, kw_only=True):
    """One way to understand a question: what is computed over which rows of which table."""

    sheet: Sheet
    how: str
    #: count, distinct, sum, avg, share, value
    measure: Column | None = None
    label: Column | None = None
    #: what a value belongs to; all else is computed for each of its values
    where: tuple[Condition, ...] = ()
    order: str = ""
    #: desc or asc, if only the first are wanted
    most: int = 1

    @property
    def sql(self) -> str:
        label, where = self.label, [each.sql for each in self.where if self.how != "share"]
        if self.how == "value" and self.measure is not None:
            where.append(f"{self.measure.sql} is not null")
        elif self.how != "value" and label is not None:
            where.append(f"{label.sql} is not null")
        is_list = self.how == "value" and not self.order and not self._has_line
        named = label.text_sql if label else "''"
        text = f"select {'distinct ' if is_list else ''}{named} as label, {self._figure}"
        text += f", {'rowid + 2' if self._has_line else 0} as line from {self.sheet.source}"
        text += f" where {' and '.join(where)}" if where else ""
        text += " group by 1" if label and self.how != "value" else ""
        return f"{text} order by {f'2 {self.order}, 1' if self.order else '1'}"

    @property
    def _has_line(self) -> bool:
        return self.how == "value" and self.sheet.has_lines

    @property
    def _figure(self) -> str:
        """What is computed, and how many rows have no value for it."""
        column, gaps = self.measure, "0"
        if self.how == "share":
            told = " and ".join(each.sql for each in self.where)
            figure = f"100.0 * sum(case when {told} then 1 else 0 end) / count(*)"
        elif column is None:
            figure = "count(*)" if self.how == "count" else "''"
        elif self.how == "value":
            figure = column.sql if column.kind == "number" else column.text_sql
        elif self.how == "distinct":
            figure = f"count(distinct {column.sql})"
        else:
            figure, gaps = f"{self.how}({column.sql})", f"count(*) - count({column.sql})"
        return f"{figure} as figure, {gaps} as gaps"

    def told(self, rows: Rows) -> list[str]:
        """The answer, each line with its source; nothing if the rows hold none, or too many."""
        rows = [row for row in rows if row[1] is not None]
        if self.order and len(rows) > self.most:
            last = rows[self.most - 1][1]
            rows = [row for n, row in enumerate(rows) if n < self.most or row[1] == last]
        if not rows or len(rows) > MOST_ROWS:
            return []
        label, measure, title = self.label, self.measure, self._title
        if self.order and label is not None:
            is_name = not label.is_id and (measure is None or measure.kind != "date")
            pairs = [(row[0], shown(row[1])) for row in rows]
            said = [f"{a} ({b})" if is_name else f"{b} ({label.name} {a})" for a, b in pairs]
            told = zip(said, rows, strict=True)
            return [
                f"{title}: {text}{self._left_out([row])} {self._places([row])}"
                for text, row in told
            ]
        if self.how == "value" and label is not None and measure is not None:
            return [
                f"{row[0]}: {measure.name} {shown(row[1])} {self._places([row])}" for row in rows
            ]
        listed = dict.fromkeys(f"{row[0]} {shown(row[1])}".strip() for row in rows)
        return [f"{title}: {', '.join(listed)}{self._left_out(rows)} {self._places(rows)}"]

    def key(self, rows: Rows) -> object:
        """What the answer comes to, so that two readings can be compared."""
        if self.order:
            return tuple(row[0] for row in rows[: self.most])
        return frozenset(shown(row[1] if row[1] not in ("", None) else row[0]) for row in rows)

    def is_several(self, rows: Rows) -> bool:
        """Whether rows that the question does not tell apart say different things."""
        is_bare = self.how == "value" and self.label is None and not self.order
        return is_bare and len({row[1] for row in rows}) > 1

    def _left_out(self, rows: Rows) -> str:
        gaps = sum(int(row[2] or 0) for row in rows)
        name = self.measure.name if self.measure else ""
        return f" (left out, for want of {name}: {gaps} row{'s' * (gaps > 1)})" if gaps else ""

    def _places(self, rows: Rows) -> str:
        if self._has_line and len(rows) == 1:
            return f"[{self.sheet.files[0]}:{rows[0][3]}]"
        return " ".join(f"[{file}]" for file in self.sheet.files)

    @property
    def _title(self) -> str:
        named = self.measure or self.label
        is_date = self.measure is not None and self.measure.kind == "date"
        orders = ("latest", "earliest") if is_date else ("highest", "lowest")
        told = [{"desc": orders[0], "asc": orders[1]}.get(self.order, ""), _HOWS.get(self.how, "")]
        told.append("rows" if named is None or self.how in ("count", "share") else named.name)
        if self.label is not None and self.how != "value" and not self.order:
            told.append(f"by {self.label.name}")
        if self.where:
            told.append(f"where {' and '.join(each.told for each in self.where)}")
        title = " ".join(filter(None, told))
        return title[0].upper() + title[1:]


_HOWS = {"sum": "total", "avg": "average", "count": "number of"} | {
    "distinct": "number of different",
    "share": "percentage of",
}


class Understanding(Struct, frozen=True):
    """What the tables make of a question: its readings, or the words that none accounts for."""

    readings: tuple[Reading, ...] = ()
    left: tuple[str, ...] = ()


def understood(question: str, sheets: Sequence[Sheet]) -> Understanding:
    """The readings of the question that account for all of its words."""
    left: list[tuple[str, ...]] = []
    for group in linked(sheets):
        readings: list[Reading] = []
        for sheet in group:
            account = _Account(question, sheet)
            readings += account.readings()
            left.append(account.left)
        distinct = tuple({reading.sql: reading for reading in readings}.values())
        if distinct:
            return Understanding(
                distinct if len(distinct) <= MOST_READINGS else (), ("several readings",)
            )
    return Understanding((), min(left, key=len, default=()))


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
        self._used = [token.text.lower() in _BARE for token in self._tokens]
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
        dated = self._take_periods()
        bounds = list(self._take_bounds())
        found = self._computed()
        self.left = tuple(
            t.text for t, used in zip(self._tokens, self._used, strict=True) if not used
        )
        if self.left or self._is_doubtful:
            return []
        choices = [*([dated] if dated else []), *bounds]
        return [
            _with(reading, (*self._where, *chosen))
            for reading in found
            for chosen in product(*choices)
        ]

    def _use(self, start: int, end: int) -> None:
        for n, token in enumerate(self._tokens):
            if start <= token.start and token.end <= end:
                self._used[n] = True

    def _low(self, n: int) -> str:
        return self._tokens[n].text.lower() if 0 <= n < len(self._tokens) else ""

    # values

    def _take_values(self) -> None:
        hits = sorted(self._value_hits(), key=lambda hit: (-(hit[1] - hit[0]), hit[0]))
        taken: dict[int, tuple[int, int]] = {}
        by_column: dict[str, tuple[Column, list[str], bool]] = {}
        for first, last, column, value in hits:
            held = taken.get(first)
            if any(n in taken for n in range(first, last)) and held != (first, last):
                continue
            others = [hit[2] for hit in hits if hit[:2] == (first, last) and hit[2] is not column]
            if others and not self._is_beside(first, last, column):
                self._is_doubtful |= not any(self._is_beside(first, last, c) for c in others)
                continue
            is_not = self._low(first - 1) in _NOT
            for n in range(first - is_not, last):
                taken[n] = (first, last)
                self._used[n] = True
            _, values, negated = by_column.setdefault(column.name, (column, [], is_not))
            self._is_doubtful |= negated != is_not
            values.append(value)
        for column, values, is_not in by_column.values():
            self._where.append(_among(column, list(dict.fromkeys(values)), is_not))
            self._filtered.add(column.name)

    def _value_hits(self) -> Iterator[Hit]:
        asked = [token.stem for token in self._tokens]
        for column in self._sheet.columns:
            if column.kind != "text":
                continue
            for value in column.values:
                own = [root(t[0]) for t in _TOKEN.finditer(value)]
                size = len(own) or len(asked) + 1
                spans = [n for n in range(len(asked) - size + 1) if asked[n : n + size] == own]
                for n in spans:
                    said = {token.text for token in self._tokens[n : n + size]}
                    if not said <= _BARE:
                        yield n, n + size, column, value
                if not spans and len(own) > 1:
                    yield from self._part_of(column, own, value)

    def _part_of(self, column: Column, own: list[str], value: str) -> Iterator[Hit]:
        """A name by one of its words, as people do, if it is the only one with that word."""
        for n, token in enumerate(self._tokens):
            low = token.text.lower()
            if token.stem not in own or not token.text[0].isupper() or n == 0 or low in _BARE:
                continue
            if sum(low in words(each) for each in column.values) == 1:
                yield n, n + 1, column, value

    def _is_beside(self, first: int, last: int, column: Column) -> bool:
        near = {root(self._low(n)) for n in (first - 2, first - 1, last)}
        return bool(near & column.stems)

    # names of columns and of the table

    def _take_names(self) -> None:
        asked = {token.stem for token in self._tokens}
        for n, token in enumerate(self._tokens):
            if self._used[n] and token.text.lower() not in _VERBS:
                continue
            fits = [(self._fit(each, token.stem, asked), each) for each in self._sheet.columns]
            best = max((fit for fit, _ in fits), default=0.0)
            if best > 0:
                self._named[n] = [column for fit, column in fits if fit == best]
                self._used[n] = True
            self._take_rows(n, token, best)
        for n, columns in list(self._named.items()):
            self._take_flag(n, columns)

    def _take_rows(self, n: int, token: Token, best: float) -> None:
        """Words for the rows themselves: the table's name, or its key where that is not asked for."""
        columns = self._named.get(n, [])
        is_key = bool(columns) and all(self._is_key(c) for c in columns)
        other = self._sheet.other
        if other is not None and token.stem in other.stems and (label := other.label) is not None:
            own = self._sheet.columns
            self._named[n] = [c for c in own if c.table == label.table and c.name == label.name]
            self._used[n] = bool(self._named[n])
        elif token.stem in self._sheet.stems or token.text.lower() in _ROWS or is_key:
            if best < 1 or is_key:
                self._named.pop(n, None)
                self._counts_rows = True
            self._used[n] = True
        elif any(c.is_reference for c in columns) and other is None:
            self._is_doubtful = True  # its name stands in the other table

    def _is_key(self, column: Column) -> bool:
        asked = {token.stem for token in self._tokens}
        return column.is_id and self._sheet.unique(column) and not asked & _ID_WORDS

    def _fit(self, column: Column, said: str, asked: set[str]) -> float:
        own = column.stems
        if said in own:
            return 1 + len(own & asked) / 10 - len(own - asked) / 100
        for group in _KIN:
            kin = {root(word) for word in group.split()}
            if said in kin and own & kin and column.kind == "number":
                return 0.5
        return 0.0

    def _take_flag(self, n: int, columns: list[Column]) -> None:
        if len(columns) != 1 or columns[0].kind != "flag":
            return
        wanted = self._low(n - 1) not in _NOT
        if not wanted:
            self._used[n - 1] = True
        told = f"{columns[0].name} = {'yes' if wanted else 'no'}"
        self._where.append(Condition(columns[0].flag_sql(wanted), told))
        self._named.pop(n)

    # periods and bounds

    def _take_periods(self) -> list[tuple[Condition, ...]]:
        """The conditions on dates, one for each column that may be meant."""
        matches = [(period_in(match), match) for match in PERIOD.finditer(self._text)]
        found = [(period, match) for period, match in matches if period is not None]
        if not found:
            return []
        columns = [c for c in self._sheet.columns if c.kind == "date"]
        years = [c for c in self._sheet.columns if c.kind == "number" and "year" in c.stems]
        named = [c for cs in self._named.values() for c in cs if c in columns]
        columns = list(dict.fromkeys(named)) or columns
        for _, match in found:
            self._use(match.start(), match.end())
        if not columns and years and len(found) == 1 and found[0][0].is_year:
            sql, told = found[0][0].year_sql(years[0].sql)
            return [(Condition(sql, f"{years[0].name} {told}"),)]
        chosen = [self._dated(column, [period for period, _ in found]) for column in columns]
        self._named = {n: cs for n, cs in self._named.items() if not set(cs) <= set(columns)}
        known = [each for each in chosen if each]
        self._is_doubtful |= not known
        return known

    def _dated(self, column: Column, periods: list[Period]) -> tuple[Condition, ...]:
        """Nothing where a period lies outside of all that the column holds."""
        told = [period.within(column.low, column.high) for period in periods]
        if any(each is None for each in told):
            return ()
        known = [each for each in told if each]
        return tuple(Condition(p.sql(column.text_sql), f"{column.name} {p}") for p in known)

    def _take_bounds(self) -> Iterator[list[tuple[Condition, ...]]]:
        for match in _BOUND.finditer(self._text):
            start, end = match.span()
            tokens = [n for n, t in enumerate(self._tokens) if start <= t.start < end]
            if not tokens or any(self._used[n] and self._low(n)[:1].isdigit() for n in tokens):
                continue  # a year
            columns, at = self._bounded(tokens)
            if not columns:
                continue
            self._use(start, end)
            if at is not None:  # kg and weight may both stand for it
                near = {n for n in self._named if abs(n - at) <= 5 and self._named[n] == columns}
                self._named = {n: cs for n, cs in self._named.items() if n not in near | {at}}
            said = [each for each in match.groups() if each and each[0].isdigit()]
            numbers = [each.replace(",", "") for each in said]
            yield [(Condition(*_bound_of(match, column, numbers)),) for column in columns]

    def _bounded(self, tokens: list[int]) -> tuple[list[Column], int | None]:
        """The columns that a comparison may be about, and the word that says so: the nearest one."""
        first, last = tokens[0], tokens[-1]
        measured = [n for n, cs in self._named.items() if any(c.is_measure for c in cs)]
        near = sorted((n - last if n > last else max(0, first - n) + 0.5, n) for n in measured)
        if near:
            at = near[0][1]
            return [c for c in self._named[at] if c.is_measure], at
        hints = next((h for word, h in _HOW.items() if self._low(first).startswith(word[:4])), "")
        if self._low(first) == "cheaper":
            hints = "price cost fee"
        measures = [c for c in self._sheet.columns if c.is_measure]
        return self._hinted(hints) or (measures if len(measures) == 1 else []), None

    def _hinted(self, hints: str, kinds: Sequence[str] = ("number",)) -> list[Column]:
        for word in hints.split():
            usable = [c for c in self._sheet.columns if c.kind in kinds and not c.is_id]
            found = [c for c in usable if root(word) in c.stems or word == c.kind == "date"]
            if found:
                return found
        return []

    # what is computed

    def _computed(self) -> list[Reading]:
        text = self._text
        low = {token.text.lower() for token in self._tokens}
        group = self._group()
        measures, labels = self._columns_named(group)
        is_mean, is_sum = bool(low & _MEANS), bool(low & _SUMS)
        self._use_words(_MEANS | (_SUMS if measures else frozenset()))
        is_count, is_much = bool(_COUNTING.search(text)), bool(_MUCH.search(text))
        if is_much and not measures and self._is_value_behind("much"):
            measures = self._amounts()
            self._use_words(_SUMS if measures else frozenset())
        self._use_words(word_set("many number count much"))
        is_whole = not (PERIOD.search(text) or _BOUND.search(text))
        if low & _SHARE and len(self._where) == 1 and is_whole and (self._counts_rows or labels):
            self._use_words(_SHARE)
            return [self._reading("share")]
        order, ordered = self._superlative(measures)
        self._use_verbs()
        if order:
            return self._first(order, ordered, labels, group, is_mean=is_mean, is_sum=is_sum)
        if is_mean:
            return [self._reading("avg", m, group) for m in measures]
        if is_count:
            return self._counted(measures, labels, group)
        adding = [m for m in measures if m.adds_up]
        if is_sum and not adding and not self._amounts():  # each row is one thing at that price
            adding = [m for m in measures if m.is_price]
        if is_sum or (is_much and adding) or (group and adding):
            return [self._reading("sum", m, group) for m in adding]
        return self._looked_up(measures, labels)

    def _reading(
        self, how: str, measure: Column | None = None, label: Column | None = None, **more: Any
    ) -> Reading:
        return Reading(sheet=self._sheet, how=how, measure=measure, label=label, **more)

    def _use_words(self, these: frozenset[str]) -> None:
        for n in range(len(self._tokens)):
            self._used[n] |= self._low(n) in these

    def _use_verbs(self) -> None:
        """Verbs that say no more than that there is such a row."""
        columns, states = self._sheet.columns, {root(word) for word in _STATES}
        has_states = any(c.kind == "flag" or c.stems & states for c in columns)
        if not has_states and sum(c.kind == "date" for c in columns) <= 1:
            self._use_words(_VERBS)

    def _group(self) -> Column | None:
        for match in _PER.finditer(self._text):
            at = next((n for n, t in enumerate(self._tokens) if t.start == match.start(1)), None)
            columns = self._named.get(at, []) if at is not None else []
            texts = [c for c in columns if not c.is_measure]
            if at is not None and len(texts) == 1:
                self._named.pop(at)
                self._use(match.start(), match.end())
                return texts[0]
        return None

    def _columns_named(self, group: Column | None) -> tuple[list[Column], list[Column]]:
        """The measures and the labels that the question names beside its filters."""
        measures: list[Column] = []
        labels: list[Column] = []
        kinds = 0
        seen: set[str] = set()
        for n, columns in sorted(self._named.items()):
            numbers = [c for c in columns if c.is_measure]
            if numbers and len(numbers) == len(columns):
                fresh = [c for c in numbers if c.name not in seen]
                kinds += bool(fresh) and not ({c.name for c in numbers} & seen)
                measures = [m for m in measures if m in numbers] or (
                    fresh if not measures else [*measures, *fresh]
                )
                seen |= {c.name for c in numbers}
                continue
            is_asked = self._low(n - 1) in ("which", "what")
            free = [c for c in columns if is_asked or c.name not in self._filtered]
            labels += [c for c in free if c not in labels and c is not group]
        self._is_doubtful |= kinds > 1
        return measures, labels

    def _superlative(self, measures: list[Column]) -> tuple[str, list[Column]]:
        """Which way rows are put in order, if the first are asked for, and by which columns."""
        for n, token in enumerate(self._tokens):
            word = token.text.lower()
            if word in _SPECIAL and not self._used[n]:
                order, hints = _SPECIAL[word]
                columns = self._hinted(hints, ("number", "date"))
                if not columns:
                    continue
                if self._low(n - 1) in ("most", "least"):
                    self._used[n - 1] = True
                    order = "asc" if self._low(n - 1) == "least" else order
                self._used[n] = True
                return order, [m for m in measures if m in columns] or columns
        for n, token in enumerate(self._tokens):
            word = token.text.lower()
            if word in _UP | _DOWN and not self._used[n]:
                self._used[n] = True
                return ("asc" if word in _DOWN else "desc"), measures
        return "", []

    def _first(
        self,
        order: str,
        ordered: list[Column],
        labels: list[Column],
        group: Column | None,
        *,
        is_mean: bool,
        is_sum: bool,
    ) -> list[Reading]:
        most = self._most()
        low = {token.text.lower() for token in self._tokens}
        label = group or next(iter(labels), None) or self._asked_kind()
        if len(labels) > 1:
            return []
        if not ordered:
            if label is None or not self._counts_rows or not low & word_set("most fewest least"):
                return []
            is_open = self._low(len(self._tokens) - 1) in ("most", "least")
            amounts = self._amounts() if is_open else []
            found = [self._reading("sum", each, label, order=order, most=most) for each in amounts]
            return [self._reading("count", None, label, order=order, most=most), *found]
        found = []
        for column in ordered:
            if label is None or self._sheet.unique(label) or label is column:
                named = label if label is not column and label is not None else self._sheet.label
                found.append(self._reading("value", column, named, order=order, most=most))
                continue
            is_all = bool(low & {"most", "least", "fewest"}) and column.adds_up
            hows = ["avg"] if is_mean else []
            hows += ["sum"] if column.adds_up and not is_mean and not low & _SPECIAL.keys() else []
            hows += [] if is_mean or is_sum or is_all else ["value"]
            found += [self._reading(how, column, label, order=order, most=most) for how in hows]
        return found

    def _most(self) -> int:
        """How many of the first are asked for."""
        for n, token in enumerate(self._tokens):
            word = token.text.lower()
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
        self._use_words(word_set("different distinct unique kinds types"))
        if labels:
            is_clear = _DIFFERENT.search(self._text) or self._sheet.unique(labels[0])
            is_other = self._counts_rows and not is_clear
            return [] if is_other else [self._reading("distinct", labels[0], group)]
        if not (self._counts_rows or self._where):
            return []
        found = [self._reading("count", None, group)]
        if not self._counts_rows:  # lamps: rows about lamps, or pieces?
            found += [self._reading("sum", m, group) for m in self._amounts()]
        return found

    def _is_value_behind(self, word: str) -> bool:
        at = next(n for n in range(len(self._tokens)) if self._low(n) == word) + 1
        return bool(self._low(at)) and self._used[at] and self._low(at) not in _BARE

    def _amounts(self) -> list[Column]:
        found = self._hinted("quantity qty amount units stock copies pieces count")
        return [column for column in found if column.adds_up]

    def _asked_kind(self) -> Column | None:
        """The column that who, when or where asks for, if only one can be meant."""
        first = {token.text.lower() for token in self._tokens[:3]}
        kinds = {"who": _PEOPLE, "where": _PLACES}
        for word, names in kinds.items():
            if word in first:
                stems = {root(each) for each in names}
                texts = [c for c in self._sheet.columns if c.kind == "text" and c.stems & stems]
                found = [c for c in texts if c.name not in self._filtered]
                return found[0] if len(found) == 1 else None
        if "when" in first:
            dates = [c for c in self._sheet.columns if c.kind == "date"]
            return dates[0] if len(dates) == 1 else None
        return None

    def _looked_up(self, measures: list[Column], labels: list[Column]) -> list[Reading]:
        hints = next((h for word, h in _HOW.items() if f"how {word}" in self._text.lower()), "")
        measures = measures or self._hinted(hints)
        self._use_words(frozenset(_HOW) if hints and measures else frozenset())
        has_rows = bool(self._where) or _BOUND.search(self._text) or PERIOD.search(self._text)
        if measures and not labels:
            one = len(measures) > 1 or not has_rows
            return [] if one else [self._reading("value", measures[0])]
        asked = self._asked_kind()
        wanted = labels or ([asked] if asked else [])
        is_open = not {self._low(n) for n in range(3)} & {"who", "when", "where", "whose", "how"}
        if not wanted and has_rows and self._counts_rows and self._sheet.label and is_open:
            wanted = [self._sheet.label]
        if len(wanted) != 1 or (not has_rows and wanted[0].different > MOST_ROWS):
            return []
        return [self._reading("value", next(iter(measures), None), wanted[0])]


def _with(reading: Reading, conditions: Sequence[Condition | tuple[Condition, ...]]) -> Reading:
    flat = [c for each in conditions for c in ((each,) if isinstance(each, Condition) else each)]
    return replace(reading, where=tuple(flat))


def _among(column: Column, values: list[str], is_not: bool) -> Condition:
    told = ", ".join("'" + value.replace("'", "''") + "'" for value in values)
    sign = "not in" if is_not else "in"
    names = " or ".join(values)
    return Condition(
        f"{column.text_sql} {sign} ({told})", f"{column.name} {'is not' if is_not else '='} {names}"
    )


def _bound_of(match: re.Match[str], column: Column, numbers: list[str]) -> tuple[str, str]:
    if len(numbers) == 2:
        return (
            f"{column.sql} between {numbers[0]} and {numbers[1]}",
            f"{column.name} from {numbers[0]} to {numbers[1]}",
        )
    sign = ">=" if match["ormore"] else "<=" if match["orless"] else ""
    sign = sign or next(sign for n, sign in enumerate(_SIGNS.values()) if match[f"s{n}"])
    return f"{column.sql} {sign} {numbers[0]}", f"{column.name} {sign} {numbers[0]}"
