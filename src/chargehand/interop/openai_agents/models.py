"""The models of the OpenAI Agents SDK: what they are called, whether they are real, what they used. Imports the SDK."""

from typing import Any
from urllib.parse import urlsplit

from agents import Agent, Model, RunConfig
from agents import Usage as TheirUsage
from msgspec.structs import replace

from chargehand.facts.outcome import Usage
from chargehand.interop.external_model_call import account_at
from chargehand.models.connection_settings import is_loopback
from chargehand.models.http_adapter import usage_of as usage_told


def name_of(model: Model) -> str:
    """The model as `provider:model`."""
    return _full(str(getattr(model, "model", type(model).__name__)))


def account_of(model: Model) -> str:
    """Whose limits it shares."""
    return account_at(name_of(model).partition(":")[0], getattr(model, "_client", None))


def is_real(model: Model) -> bool:
    """Whether it is one of the SDK's own, at an address that is not of this machine."""
    client = getattr(model, "_client", None)
    host = urlsplit(str(getattr(client, "base_url", ""))).hostname or ""
    module = type(model).__module__
    is_theirs = module.startswith("agents.") and not module.startswith("agents.testing.")
    return is_theirs and not is_loopback(host)


def _full(name: str) -> str:
    return name.replace("/", ":", 1) if "/" in name else f"openai:{name}"


def real_models(agent: Agent[Any], config: RunConfig | None) -> list[str]:
    """The models that the agent and those it hands over to ask by name; of others, nobody can tell."""
    found: dict[int, Agent[Any]] = {}
    open_ = [agent]
    while open_:
        each = open_.pop()
        if id(each) not in found:
            found[id(each)] = each
            open_ += [to for to in each.handoffs if isinstance(to, Agent)]
    over = None if config is None else config.model
    chosen = [over or each.model for each in found.values()]
    return [_full(model) for model in chosen if isinstance(model, str)]


def usage_of(theirs: TheirUsage) -> Usage:
    cached = theirs.input_tokens_details.cached_tokens
    told = usage_told(theirs.input_tokens, theirs.output_tokens, cached, 0)
    return replace(told, calls=max(theirs.requests, 0))
