"""Tool rules: what may be called next, by example; and that sound rules always let work end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chargehand.decisions.tool_rules import (
    ApprovalRule,
    ChildRule,
    InitRule,
    MaxCountRule,
    RequiredRule,
    Rule,
    Rules,
    TerminalRule,
)
from chargehand.errors import UsageError

TOOLS = ("search", "read", "write", "send")
ALL = frozenset(TOOLS)
NONE: frozenset[str] = frozenset()


def rules(*of: Rule) -> Rules:
    return Rules(of, TOOLS)


def test_without_rules_everything_is_allowed() -> None:
    free = rules()
    assert free.allowed([]) == ALL
    assert free.may_finish([]) is None
    assert free.words() == ""
    assert not free.ends("send")


def test_an_init_tool_is_forced_as_the_first_call_only() -> None:
    first = rules(InitRule("search"))
    assert first.allowed([]) == "search"
    assert first.may_call("read", []) == "call search first"
    assert first.allowed(["search"]) == ALL


def test_of_several_init_tools_any_is_first() -> None:
    first = rules(InitRule("search"), InitRule("read"))
    assert first.allowed([]) == frozenset({"search", "read"})
    assert first.may_call("send", []) == "call search or read first"


def test_after_a_parent_only_its_children_are_allowed() -> None:
    child = rules(ChildRule("search", ("read", "write")))
    assert child.allowed([]) == ALL
    assert child.allowed(["search"]) == frozenset({"read", "write"})
    assert child.may_call("send", ["search"]) == "after search, only read or write can be called"
    assert child.allowed(["search", "read"]) == ALL


def test_after_a_terminal_tool_nothing_is_allowed() -> None:
    terminal = rules(TerminalRule("send"))
    assert terminal.ends("send")
    assert not terminal.ends("read")
    assert terminal.allowed(["send"]) == NONE
    assert terminal.may_call("read", ["send"]) == "send has ended the work; call no more tools"


def test_a_terminal_tool_waits_for_what_is_required() -> None:
    both = rules(TerminalRule("send"), RequiredRule("read"))
    refusal = both.may_call("send", ["search"])
    assert refusal == "send ends the work, and read must be called before"
    assert both.may_call("send", ["read"]) is None


def test_a_required_tool_may_itself_be_the_last() -> None:
    both = rules(TerminalRule("send"), RequiredRule("send"))
    assert both.may_call("send", []) is None
    assert both.may_finish([]) == "call send before you finish"
    assert both.may_finish(["send"]) is None


def test_a_tool_is_called_no_more_often_than_allowed() -> None:
    twice = rules(MaxCountRule("read", 2))
    assert twice.may_call("read", ["read"]) is None
    assert twice.may_call("read", ["read", "send", "read"]) == (
        "read was called 2 times, the most allowed"
    )
    assert twice.allowed(["read", "read"]) == frozenset({"search", "write", "send"})


def test_work_cannot_end_before_the_required_tools_were_called() -> None:
    required = rules(RequiredRule("read"), RequiredRule("write"))
    assert required.may_finish([]) == "call read and write before you finish"
    assert required.may_finish(["write"]) == "call read before you finish"
    assert required.may_finish(["write", "read"]) is None


def test_approval_is_asked_for_and_does_not_refuse() -> None:
    asked = rules(ApprovalRule("send"))
    assert asked.needs_approval("send")
    assert not asked.needs_approval("read")
    assert asked.may_call("send", []) is None


def test_the_model_is_told_every_rule() -> None:
    told = rules(
        InitRule("search"),
        ChildRule("search", ("read",)),
        MaxCountRule("search", 1),
        RequiredRule("write"),
        TerminalRule("send"),
        ApprovalRule("send"),
    ).words()
    assert told.splitlines() == [
        "- Call search first.",
        "- After search, only read can be called next.",
        "- Call search at most once.",
        "- Call write before you finish.",
        "- send ends your work: call it last.",
        "- A person approves each call of send; it may take time or be refused.",
    ]


@pytest.mark.parametrize(
    ("of", "words"),
    [
        ([InitRule("nowhere")], "names the tool 'nowhere'"),
        ([ChildRule("read", ("nowhere",))], "names the tool 'nowhere'"),
        ([ChildRule("read", ())], "nothing could follow"),
        ([ChildRule("read", ("send",)), ChildRule("read", ("write",))], "two child rules"),
        ([TerminalRule("read"), ChildRule("read", ("send",))], "cannot have children"),
        ([MaxCountRule("read", 0)], "take the tool away"),
        ([MaxCountRule("read", 1), MaxCountRule("read", 2)], "two numbers"),
        ([InitRule("read"), TerminalRule("read"), RequiredRule("send")], "send must be called"),
        (
            [InitRule("read"), ChildRule("read", ("read",)), RequiredRule("send")],
            "send must be called",
        ),
        (
            [
                InitRule("read"),
                ChildRule("read", ("send",)),
                ChildRule("send", ("read",)),
                MaxCountRule("read", 1),
                RequiredRule("write"),
            ],
            "write must be called",
        ),
        (
            [
                InitRule("search"),
                ChildRule("search", ("read", "write")),
                ChildRule("read", ("search",)),
                ChildRule("write", ("search",)),
                MaxCountRule("search", 1),
                RequiredRule("read"),
                RequiredRule("write"),
            ],
            "read and write must be called",
        ),
    ],
)
def test_rules_that_nothing_could_keep_are_refused(of: list[Rule], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        rules(*of)


def test_the_same_rule_twice_is_one_rule() -> None:
    assert rules(MaxCountRule("read", 1), MaxCountRule("read", 1)).words().count("read") == 1


NAMES = st.sampled_from(TOOLS)
ANY_RULE: st.SearchStrategy[Rule] = st.one_of(
    st.builds(InitRule, NAMES),
    st.builds(ChildRule, NAMES, st.lists(NAMES, min_size=1, max_size=3).map(tuple)),
    st.builds(TerminalRule, NAMES),
    st.builds(MaxCountRule, NAMES, st.integers(1, 3)),
    st.builds(RequiredRule, NAMES),
    st.builds(ApprovalRule, NAMES),
)


@given(st.lists(ANY_RULE, max_size=8), st.data())
def test_what_is_allowed_and_what_may_be_called_always_agree(
    of: list[Rule], data: st.DataObject
) -> None:
    try:
        kept = rules(*of)
    except UsageError:
        return
    history: list[str] = []
    for _ in range(8):
        allowed = kept.allowed(history)
        names = {allowed} if isinstance(allowed, str) else allowed
        assert names == {name for name in TOOLS if kept.may_call(name, history) is None}
        if not names:
            return
        history.append(data.draw(st.sampled_from(sorted(names))))
        if kept.ends(history[-1]):
            assert kept.may_finish(history) is None
            assert kept.allowed(history) == NONE


@given(st.lists(ANY_RULE, max_size=8))
def test_rules_that_were_taken_can_be_kept_to_the_end(of: list[Rule]) -> None:
    try:
        kept = rules(*of)
    except UsageError:
        return
    seen: list[tuple[str, ...]] = [()]
    for history in seen:
        if kept.may_finish(history) is None:
            return
        if len(history) < 8:
            longer = [(*history, n) for n in TOOLS if kept.may_call(n, history) is None]
            seen += longer[: max(0, 3_000 - len(seen))]
    assert len(seen) >= 3_000, "no end was found, although all was looked at"
