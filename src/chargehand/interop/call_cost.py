"""What a call that a framework makes costs: before it is made, and after."""

from msgspec.structs import replace

from chargehand.facts.outcome import Usage
from chargehand.models.base import ModelSettings
from chargehand.models.prices import price_of, worst_price

#: tokens of an answer that nobody has set a maximum for, in a run that has a budget
MOST_OUT = ModelSettings().max_tokens


def priced(model: str, usage: Usage) -> Usage:
    """What was used, with the price of `provider:model` as far as it is known."""
    return replace(usage, money=max(price_of(model, usage) or 0.0, 0.0))


def worst(model: str, sent: int, most: int) -> Usage:
    """The most that a request of so many bytes can cost: it has no more tokens than that."""
    bound = Usage(calls=1, tokens_in=sent, tokens_out=most)
    return replace(bound, money=worst_price(model, bound))


def beyond(all_: Usage, seen: Usage) -> Usage:
    """What was spent beside what is accounted for already; of the price of that, nobody knows."""
    return Usage(
        calls=max(all_.calls - seen.calls, 0),
        tokens_in=max(all_.tokens_in - seen.tokens_in, 0),
        tokens_out=max(all_.tokens_out - seen.tokens_out, 0),
    )
