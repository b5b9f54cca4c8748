"""Prices come from the price list, and a model nobody lists costs nothing that we know of."""

import re
import subprocess
import sys

import pytest

import chargehand as ch
from chargehand.facts.outcome import Usage
from chargehand.models.base import Abilities
from chargehand.models.prices import price_of
from chargehand.roles.shared_resources import Resources

prices = pytest.importorskip(
    "genai_prices", reason="needs genai-prices: pip install chargehand[prices]"
)


@pytest.mark.parametrize("model", ["openai:gpt-4o", "anthropic:claude-sonnet-4-0"])
@pytest.mark.parametrize(
    "usage",
    [
        Usage(tokens_in=1000, tokens_out=100),
        Usage(tokens_in=90_000, tokens_out=4000, cache_read=50_000),
        Usage(tokens_in=150_000, tokens_out=10),
    ],
)
def test_the_quick_way_comes_to_what_the_list_says(model: str, usage: Usage) -> None:
    provider, _, name = model.partition(":")
    listed = prices.calc_price(
        prices.Usage(
            input_tokens=usage.tokens_in,
            output_tokens=usage.tokens_out,
            cache_read_tokens=usage.cache_read,
            cache_write_tokens=usage.cache_written,
        ),
        model_ref=name,
        provider_id=provider,
    )
    assert price_of(model, usage) == pytest.approx(float(listed.total_price))


def test_a_model_that_nobody_lists_has_no_price() -> None:
    assert price_of("openai:no-such-model", Usage(tokens_in=5)) is None
    assert price_of("scripted:model", Usage(tokens_in=5)) is None


@pytest.mark.parametrize(
    ("spec", "is_refused"), [("openai:nobody-knows", True), ("ollama:nobody-knows", False)]
)
def test_a_cap_on_money_refuses_a_local_server_that_may_cost(spec: str, is_refused: bool) -> None:
    """Behind a server on this machine there may be a model that is paid for."""
    model = ch.open_model(spec, base_url="http://127.0.0.1:9/v1")
    assert bool(Resources(model=model).unpriced(None, "it")) is is_refused


def test_no_price_list_is_loaded_for_models_that_cost_nothing() -> None:
    """Its data take a second to load, during which a run stands still."""
    look = """
import sys
from chargehand.facts.outcome import Usage
from chargehand.models.prices import price_of

for model in ("written:replies.toml", "local:smollm2", "offline"):
    assert price_of(model, Usage(tokens_in=5)) is None
assert "genai_prices" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", look], check=True)


@pytest.mark.parametrize(
    ("is_installed", "told"),
    [
        (True, "the installed price list (genai-prices) does not know this model; limit calls or"),
        (False, "no price list is installed; install chargehand[prices], or limit calls or"),
    ],
)
async def test_a_cap_on_money_says_why_the_price_is_unknown(
    is_installed: bool, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_installed:
        monkeypatch.setattr("chargehand.models.prices._price_list", lambda: None)
    model = ch.ScriptedModel([], name="openai:nobody-knows", abilities=Abilities())
    boss = ch.Supervisor([ch.Worker("mind", "Thinks", model=model)], limits=ch.Limits(money=1))
    plan = ch.Plan(goal="g", tasks=[ch.Task(id="t", description="Think of it", worker="mind")])
    with pytest.raises(ch.UsageError, match=re.escape(told)):
        await boss.run(plan)


def test_the_cost_of_calls_without_a_price_is_unknown() -> None:
    assert Usage(calls=2, tokens_in=10).cost is None
    assert Usage(calls=2, money=0.5).cost == 0.5
    assert Usage().cost == 0
