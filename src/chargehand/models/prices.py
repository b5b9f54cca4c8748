"""What calls cost, by the price list of the `genai-prices` package, if that is installed."""

import threading
from contextlib import suppress
from functools import cache
from typing import Any

from msgspec.structs import replace

from chargehand.facts.outcome import Usage

#: tokens up to which no provider's prices depend on how many are sent at once
LINEAR = 100_000
#: no providers: the list need not be loaded to know that it lacks them
_UNPRICED = frozenset({"written", "scripted", "offline", "local"})
_TOKENS = ("tokens_in", "tokens_out", "cache_read", "cache_written")


def price_of(model: str, usage: Usage) -> float | None:
    """The price of a call of `provider:model` in US dollars; None if nobody knows it."""
    provider, _, name = model.partition(":")
    if provider in _UNPRICED:
        return None
    if usage.tokens_in > LINEAR:
        return _listed(provider, name, usage)
    rates = _rates(provider, name)
    if rates is None:
        return None
    plain = usage.tokens_in - usage.cache_read - usage.cache_written
    amounts = (plain, usage.tokens_out, usage.cache_read, usage.cache_written)
    return sum(rate * amount for rate, amount in zip(rates, amounts, strict=True))


def unpriced_words(model: str, whose: str) -> str:
    """Why a cap on money cannot be kept where this model, whose price is unknown, is asked; and the way out."""
    if _price_list() is None:
        why = "no price list is installed"
        way_out = "install chargehand[prices], or limit calls or tokens instead"
    else:
        why = "the installed price list (genai-prices) does not know this model"
        way_out = "limit calls or tokens instead, or update genai-prices if the model is new"
    return f"Limits(money=…) cannot be kept: the price of {model}, which {whose} asks, is unknown, because {why}; {way_out}"


def is_plausible(reported: Usage, most: Usage, *, has_parts: bool) -> bool:
    """Whether a provider's report can be true of a call that may have cost this at most."""
    cached = reported.cache_read + reported.cache_written
    return (
        0 < reported.tokens_in <= most.tokens_in
        and has_parts <= reported.tokens_out <= most.tokens_out
        and min(reported.cache_read, reported.cache_written) >= 0
        and cached <= reported.tokens_in
    )


def settled(model: str, reported: Usage, most: Usage, *, has_parts: bool = True) -> Usage:
    """What a call is taken to have cost: its worst case, unless a plausible report says less."""
    if not is_plausible(reported, most, has_parts=has_parts):
        return replace(most, calls=1)
    money = min(max(price_of(model, reported) or 0.0, 0.0), most.money)
    return replace(reported, calls=1, money=money)


def worst_price(model: str, most: Usage) -> float:
    """The most that so many tokens cost: to write all of them to the cache may cost more than to send them."""
    written = replace(most, cache_written=most.tokens_in)
    return max(price_of(model, most) or 0.0, price_of(model, written) or 0.0)


@cache
def _rates(provider: str, name: str) -> tuple[float, ...] | None:
    """The price of one token of each kind. Looked up once: a look-up costs as much as a call does."""
    prices = []
    for kind in _TOKENS:
        sent = {kind: LINEAR} if kind == "tokens_out" else {kind: LINEAR, "tokens_in": LINEAR}
        price = _listed(provider, name, Usage(**sent))
        if price is None:
            return None
        prices.append(price / LINEAR)
    return tuple(prices)


def _listed(provider: str, name: str, usage: Usage) -> float | None:
    prices = _price_list()
    if prices is None:
        return None
    used = prices.Usage(
        input_tokens=usage.tokens_in,
        output_tokens=usage.tokens_out,
        cache_read_tokens=usage.cache_read,
        cache_write_tokens=usage.cache_written,
    )
    try:
        return float(prices.calc_price(used, model_ref=name, provider_id=provider).total_price)
    except LookupError:
        return None


@cache
def load_soon() -> None:
    """Have the price list loaded beside all else, once: its import takes a second, which no loop may stand still."""
    with suppress(RuntimeError):  # no thread to be had: then it is loaded when it is needed
        threading.Thread(target=_warm_up, name="chargehand-prices", daemon=True).start()


def _warm_up() -> None:
    _listed("openai", "gpt-5-mini", Usage(tokens_in=1))  # its data are loaded at the first look-up


@cache
def _price_list() -> Any:
    try:
        import genai_prices
    except ImportError:
        return None
    return genai_prices
