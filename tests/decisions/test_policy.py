"""The rule of two, as a table: which call is allowed, which asks a person, which is denied."""

import pytest

from chargehand.decisions.tool_policy import Grants, Knowledge, Ruling, Traits, judge_call, reaches
from chargehand.facts.events import Effect

PURE, ONCE = Effect.PURE, Effect.ONCE
WEB = ("web:evil.test",)
SHOP = "https://shop.test/mcp"


def ruling(
    effect: Effect = ONCE,
    *,
    tool: str = "send",
    to: str = "",
    server: str = "",
    approve: bool = False,
    taint: tuple[str, ...] = (),
    only_from: str = "",
    secrets: bool = False,
    knows: bool = False,
    preapproved: tuple[str, ...] = (),
) -> Ruling:
    traits = Traits(name=tool, effect=effect, destination=to, server=server, needs_approval=approve)
    grants = Grants(
        tools=frozenset({"send"}),
        destinations=frozenset({"example.org", "shop.test"}),
        has_secrets=secrets,
        preapproved=frozenset(preapproved),
    )
    knowledge = Knowledge(taint=taint, only_from=only_from, is_sensitive=knows)
    return judge_call(traits, grants, knowledge).ruling


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "allowed"),
        ({"tool": "other"}, "denied"),
        ({"to": "evil.test"}, "denied"),
        ({"to": "evil.test", "approve": True}, "denied"),
        ({"to": "example.org"}, "allowed"),
        ({"approve": True}, "ask"),
        ({"effect": PURE, "approve": True}, "ask"),
        # Two of the three are fine, whichever two.
        ({"taint": WEB}, "allowed"),
        ({"secrets": True}, "allowed"),
        ({"secrets": True, "to": "example.org"}, "allowed"),
        ({"effect": PURE, "taint": WEB, "secrets": True}, "allowed"),
        # All three are not.
        ({"taint": WEB, "secrets": True}, "ask"),
        ({"taint": WEB, "knows": True}, "ask"),
        ({"taint": WEB, "to": "example.org"}, "ask"),
        ({"effect": PURE, "taint": WEB, "to": "example.org"}, "ask"),
        # A server may be told what only it has said.
        ({"taint": WEB, "to": "shop.test", "server": SHOP, "only_from": SHOP}, "allowed"),
        ({"taint": WEB, "to": "shop.test", "server": SHOP, "only_from": "https://b"}, "ask"),
        ({"taint": WEB, "to": "shop.test", "server": "", "only_from": ""}, "ask"),
        (
            {"taint": WEB, "to": "shop.test", "server": SHOP, "only_from": SHOP, "secrets": True},
            "ask",
        ),
        # A grant speaks for the person whom policy would ask, and for nobody else.
        ({"taint": WEB, "to": "example.org", "preapproved": ("send",)}, "allowed"),
        ({"taint": WEB, "secrets": True, "preapproved": ("send",)}, "allowed"),
        ({"taint": WEB, "to": "example.org", "preapproved": ("other",)}, "ask"),
        ({"taint": WEB, "to": "evil.test", "preapproved": ("send",)}, "denied"),
        ({"approve": True, "preapproved": ("send",)}, "ask"),
    ],
)
def test_the_rule_of_two(given: dict[str, object], expected: str) -> None:
    assert ruling(**given) == expected  # type: ignore[arg-type]  # spelled by each row


def test_a_verdict_names_the_sources_and_the_grant() -> None:
    traits = Traits(name="send", effect=ONCE, destination="example.org")
    grants = Grants(tools=frozenset({"send"}), destinations=frozenset({"*"}))
    verdict = judge_call(traits, grants, Knowledge(taint=WEB))
    assert "web:evil.test" in verdict.why
    assert verdict.grant == "preapproved=['send']"


@pytest.mark.parametrize(
    ("host", "allowed", "is_reached"),
    [
        ("example.org", ["example.org"], True),
        ("EXAMPLE.org.", ["example.org"], True),
        ("a.example.org", ["example.org"], True),
        ("badexample.org", ["example.org"], False),
        ("example.org.evil.test", ["example.org"], False),
        ("org", ["example.org"], False),
        ("anything", ["*"], True),
        ("example.org", [], False),
    ],
)
def test_a_destination_is_a_host_or_below_it(
    host: str, allowed: list[str], is_reached: bool
) -> None:
    assert reaches(host, frozenset(allowed)) is is_reached


def test_grants_only_shrink_on_the_way_down() -> None:
    all_of = Grants(
        tools=frozenset("ab"),
        destinations=frozenset({"*"}),
        has_secrets=True,
        preapproved=frozenset("ab"),
    )
    few = Grants(
        tools=frozenset("b"), destinations=frozenset({"x.test"}), preapproved=frozenset("bc")
    )
    for both in (all_of.within(few), few.within(all_of)):
        assert both.tools == frozenset("b")
        assert both.destinations == frozenset({"x.test"})
        assert both.preapproved == frozenset("b")
        assert not both.has_secrets
