"""What calls cost, by the price list of the `genai-prices` package, if that is installed."""

from functools import cache
from typing import Any

from chargehand.facts.outcome import Usage

LINEAR = 100_000
#: tokens up to which no provider's prices depend on how many are sent at once
_TOKENS = ("tokens_in", "tokens_out", "cache_read", "cache_written")


def price_of(model: str, usage: Usage) -> float | None:
    """The price of a call of `provider:model` in US dollars; None if nobody knows it."""
    provider, _, name = model.partition(":")
    if usage.tokens_in > LINEAR:
        return _listed(provider, name, usage)
    rates = _rates(provider, name)
    if rates is None:
        return None
    plain = usage.tokens_in - usage.cache_read - usage.cache_written
    amounts = (plain, usage.tokens_out, usage.cache_read, usage.cache_written)
    return sum(rate * amount for rate, amount in zip(rates, amounts, strict=True))


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
def _price_list() -> Any:
    try:
        import genai_prices
    except ImportError:
        return None
    return genai_prices
