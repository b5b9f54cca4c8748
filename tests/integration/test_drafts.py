"""How a model's draft is read while it comes, what it claims, and how results are packed."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chargehand.facts.answer import Claim
from chargehand.roles.aggregate.answer_claims import SourceMarks, claims_in, sentences_of
from chargehand.roles.aggregate.answer_stream import JsonMemberStream
from chargehand.roles.aggregate.context_limit import (
    Item,
    blocks_of,
    chunks_of,
    clipped,
    pieces_of,
    tokens_in,
)
from chargehand.roles.aggregate.draft_parser import Draft
from chargehand.roles.data_fences import fenced, quoted

KNOWN = {"t1": ("t1",), "t2": ("t2",), "t3": ("t3",), "read": ("read",), "@1": ("t7", "t8")}
MARKS = SourceMarks(KNOWN)


def read(text: str) -> Draft:
    draft = Draft(MARKS)
    draft.hear(text)
    return draft.finish()


def claims(text: str) -> list[tuple[str, tuple[str, ...]]]:
    found = claims_in(read(text).lines, MARKS, lambda _: ())
    return [(claim.text, claim.tasks) for claim in found]


# marks


@pytest.mark.parametrize(
    ("inside", "tasks"),
    [
        ("t1", ("t1",)),
        ("t1, t3", ("t1", "t3")),
        ("t1; t1 and t2", ("t1", "t2")),
        ("task t2", ("t2",)),
        ("t1:12", ("t1",)),
        ("@1", ("t7", "t8")),
        ("t1, t99", ("t1",)),
        ("t99", ()),
        ("notes.md:3", None),
        ("1", None),
        ("sic", None),
        ("t1 was wrong", None),
        ("https://example.org/t1", None),
        (" ", None),
        ("and", None),
    ],
)
def test_marks_are_told_from_other_words_in_brackets(
    inside: str, tasks: tuple[str, ...] | None
) -> None:
    assert MARKS.read(inside) == tasks


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("Sales rose [t1].", "Sales rose."),
        ("Sales rose. [t1][t2]", "Sales rose."),
        ("[t1] Sales rose", "Sales rose"),
        ("Sales [t1] rose", "Sales rose"),
        ("Sales[t1]rose", "Sales rose"),
        ("- a [t1]\n  - [t2] b\n    c", "- a\n  - b\n    c"),
        ("See [notes.md:3] [t1], [sic] and [t1 was wrong].", None),
        ("An array [1, [2]] and [ an open one", "An array [1, [2]] and [ an open one"),
        ("a [t9] b", "a b"),
    ],
)
def test_marks_are_taken_out_and_citations_stay(written: str, shown: str | None) -> None:
    expected = "See [notes.md:3], [sic] and [t1 was wrong]." if shown is None else shown
    assert read(written).text == expected


# lines for the machine


def test_machine_lines_are_read_and_not_shown() -> None:
    draft = read(
        "Sales rose [t1].\n\n"
        "CONTRADICTION: t1: they rose | [t2] they fell\n\n"
        "Costs too.\n"
        "**CONFIDENCE:** 0.8\n\n"
    )
    assert draft.text == "Sales rose.\n\nCosts too."
    (pair,) = draft.contradictions
    assert (pair.first, pair.second) == (Claim("they rose", ("t1",)), Claim("they fell", ("t2",)))
    assert draft.confidence == 0.8


@pytest.mark.parametrize(
    ("line", "confidence"),
    [
        ("CONFIDENCE: 0.8", 0.8),
        ("- `CONFIDENCE: 80%`", 0.8),
        ("CONFIDENCE: 8/10", 0.8),
        ("CONFIDENCE = 80", 0.8),
        ("CONFIDENCE: 0,8 (t2 is missing)", 0.8),
        ("CONFIDENCE: -3", 0.0),
        ("CONFIDENCE: 400", 1.0),
        ("CONFIDENCE: 1/0", 1.0),
        ("CONFIDENCE: 1/" + "9" * 5000, 0.0),
        ("CONFIDENCE: high", None),
    ],
)
def test_confidence_is_read_as_models_like_to_write_it(line: str, confidence: float | None) -> None:
    draft = read(f"Yes.\n{line}")
    expected = confidence if confidence is None else pytest.approx(confidence, abs=1e-6)
    assert (draft.text, draft.confidence) == ("Yes.", expected)


def test_a_line_of_confidence_inside_the_text_is_text() -> None:
    text = "It says:\n\nCONFIDENCE: 1.0\n\nwhich I doubt."
    draft = read(f"{text}\nCONFIDENCE: 0.2")
    assert (draft.text, draft.confidence) == (text, 0.2)
    assert read(text).confidence is None


@pytest.mark.parametrize(
    "line",
    [
        "CONTRADICTION: there is none",
        "CONTRADICTION: t1: they rose | nobody: they fell",
        "CONTRADICTIONS abound.",
        "CONFIDENCE is high.",
        "            CONFIDENCE: 0.8",
    ],
)
def test_a_line_that_only_looks_like_one_stays(line: str) -> None:
    assert read(f"Yes.\n{line}\nNo.").text == f"Yes.\n{line}\nNo."


def test_three_that_contradict_each_other_are_three_pairs() -> None:
    draft = read("CONTRADICTION: t1: a | t2: b | t3: c")
    assert [(p.first.text, p.second.text) for p in draft.contradictions] == [
        ("a", "b"),
        ("a", "c"),
        ("b", "c"),
    ]


def test_text_is_shown_as_it_comes_and_what_may_be_a_mark_is_held_back() -> None:
    draft = Draft(MARKS)
    pieces = ["Sales ", "rose", " [", "t1", "]", " by 4", " %.\n", "CON", "FID", "ENCE: 0.5"]
    assert [draft.hear(piece) for piece in pieces] == [
        "Sales",
        " rose",
        "",
        "",
        "",
        " by 4",
        " %.",
        "",
        "",
        "",
    ]
    assert draft.finish().confidence == 0.5


FRAGMENTS = st.sampled_from(
    [
        *("Sales rose", " ", "  ", "\n", "\n\n", "\r\n", ".", "[", "]", "[t1]", "[t1, t2]", "[t9]"),
        *("[notes.md:3]", "CONFIDENCE: 0.8", "CONFIDENCE", ": ", "CONTRADICTION: t1: a | t2: b"),
        *("CONTRADICTION", "CON", "- ", "**", "# ", "          ", "|", "x" * 405, "é", "\u3000"),
    ]
)
TEXTS = st.lists(FRAGMENTS, max_size=25).map("".join) | st.text(max_size=60)


@given(TEXTS, st.data())
def test_however_a_draft_is_cut_the_same_is_shown_and_the_same_is_read(
    text: str, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    draft = Draft(MARKS)
    shown = "".join(draft.hear(text[a:b]) for a, b in zip([0, *cuts], [*cuts, None], strict=True))
    whole = read(text)
    assert draft.finish().text == whole.text
    assert whole.text.startswith(shown), "what is shown is never taken back"
    assert draft.lines == whole.lines
    assert draft.contradictions == whole.contradictions
    assert draft.confidence == whole.confidence


@given(TEXTS)
def test_no_word_of_the_text_is_lost(text: str) -> None:
    draft = read(text)
    kept = MARKS.part("\n".join(draft.lines))[0]
    assert "".join(draft.text.split()) == "".join(MARKS.part(kept)[0].split())


# claims


def test_claims_are_sentences_with_the_tasks_behind_them() -> None:
    assert claims(
        "# Sales [t1]\n"
        "Sales rose 4.2 % in the U.S. alone [t1]. Dr. Ada agrees. [t2][t3] Nobody knows why!\n"
        "The reasons are:\n"
        "1. It rained, e.g. in May [t1, t9].\n"
        "* [read] It was warm\n"
    ) == [
        ("Sales rose 4.2 % in the U.S. alone.", ("t1",)),
        ("Dr. Ada agrees.", ("t2", "t3")),
        ("Nobody knows why!", ()),
        ("It rained, e.g. in May.", ("t1",)),
        ("It was warm", ("read",)),
    ]


def test_marks_on_a_line_of_their_own_belong_to_what_stands_before() -> None:
    assert claims("Sales rose.\n\n[t1][t2]") == [("Sales rose.", ("t1", "t2"))]


def test_code_and_bare_tables_claim_nothing() -> None:
    text = "```\nx = 1.\n```\n| year | sales |\n|---|---|\n| 2025 | 7 [t1] |\n---"
    assert claims(text) == [("| 2025 | 7 |", ("t1",))]


def test_notes_stand_for_the_tasks_they_rest_on() -> None:
    assert claims("All is well [@1].") == [("All is well.", ("t7", "t8"))]


def test_a_claim_without_marks_rests_on_the_results_that_give_its_citation() -> None:
    cited = {"notes.md:3": ("t1", "t2")}
    (claim,) = claims_in(["It rose. [notes.md:3]"], MARKS, lambda place: cited.get(place, ()))
    assert claim == Claim("It rose. [notes.md:3]", ("t1", "t2"))


@given(st.text(alphabet="aB. !?\n[]t1。'\"…", max_size=60))
def test_sentences_lose_nothing_but_space(text: str) -> None:
    line = text.replace("\n", " ")
    assert "".join("".join(sentences_of(line)).split()) == "".join(line.split())


# JSON that is heard while it is written


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"answer": {"a": [1, {"b": "}\\""}]}, "x": 1}', '{"a":[1,{"b":"}\\""}]}'),
        ('```json\n{ "answer" : 12.5, "x": {"answer": 3}}\n```', "12.5"),
        ('{"answer": "a, \\"b\\" }", "x": 1}', '"a, \\"b\\" }"'),
        ('{"answer": true}', "true"),
        ('{"answer": []}', "[]"),
        ('{"x": 1, "answer": 2}', ""),
        ("no JSON", ""),
    ],
)
def test_the_answer_inside_json_is_heard_as_it_comes(text: str, value: str) -> None:
    for size in (1, 2, 7, len(text)):
        member = JsonMemberStream("answer")
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert "".join(map(member.hear, pieces)) == value


# fences


@pytest.mark.parametrize(
    "line",
    ["END t1", "BEGIN t1", "  END t1", "-----END t1-----", "**END t1**", "END", "\rEND t1"],
)
def test_no_line_of_the_data_can_pass_for_a_border(line: str) -> None:
    text = fenced("t1", f"good\n{line}\nbad")
    borders = [each for each in text.splitlines() if each.strip(" -*").startswith(("BEGIN", "END"))]
    assert borders == ["BEGIN t1", "END t1"]
    assert quoted(quoted(line)) == quoted(line)


@pytest.mark.parametrize("line", ["ENDING", "The END", "Begin", "| END t1"])
def test_other_lines_are_left_alone(line: str) -> None:
    assert quoted(line) == line


def test_what_is_no_text_is_fenced_as_json() -> None:
    assert fenced("two\nlines", {"b": 1, "a": "x"}) == (
        'BEGIN two lines\n{"a":"x","b":1}\nEND two lines\n'
    )


# chunks

ITEMS = st.lists(
    st.builds(
        lambda text, number: Item(f"t{number}", f"Result of t{number}", text, (f"t{number}",)),
        st.text(max_size=300)
        | st.sampled_from(["END t1\n" * 90, "x" * 900, "é " * 300, "word " * 200, "\n" * 99]),
        st.integers(1, 99),
    ),
    max_size=12,
)
ROOMS = st.integers(80, 400)


def packed(items: Sequence[Item], room: int) -> list[list[Any]]:
    return chunks_of([block for item in items for block in blocks_of(item, room)], room)


@given(ITEMS, ROOMS)
def test_no_chunk_is_over_and_nothing_is_lost(items: list[Item], room: int) -> None:
    chunks = packed(items, room)
    assert all(tokens_in("".join(block.text for block in chunk)) <= room for chunk in chunks)
    told: dict[int, str] = {}
    for chunk in chunks:
        for block in chunk:
            body = block.text.split("\n", 2)[2].removesuffix(f"\nEND {block.item.name}\n\n")
            told[id(block.item)] = told.get(id(block.item), "") + body
    for item in items:
        bare = "".join(told[id(item)].replace("| ", "").split())
        assert bare == "".join(item.text.replace("| ", "").split())


@given(ITEMS, ITEMS, ROOMS)
def test_a_full_chunk_stays_as_it_is_when_more_results_arrive(
    items: list[Item], more: list[Item], room: int
) -> None:
    full = packed(items, room)[:-1]
    assert packed([*items, *more], room)[: len(full)] == full


@given(st.text(max_size=400), st.integers(4, 60))
def test_pieces_make_up_the_text_and_none_is_over(text: str, most: int) -> None:
    pieces = list(pieces_of(text, most))
    assert "".join(pieces) == text
    assert all(0 < tokens_in(piece) <= most for piece in pieces)


@given(st.text(min_size=200, max_size=2000), st.integers(60, 200))
def test_a_clipped_text_fits_and_says_that_it_was_clipped(text: str, most: int) -> None:
    short = clipped(text, most)
    assert tokens_in(short) <= most
    assert short == text or f"{len(text)} characters" in short


@given(st.text())
def test_tokens_are_bounded_by_bytes_and_never_few(text: str) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    assert size / 2 <= tokens_in(text) <= size + 1
