"""From what a person writes, `provider:model`, to a model."""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from typing import Literal, NamedTuple, TypeAlias, cast
from urllib.parse import urlsplit

from msgspec import Struct

from chargehand.errors import ModelDenied, UsageError
from chargehand.facts.argument_checks import arguments_checked, shown
from chargehand.models.base import Abilities, Model, why_no_model
from chargehand.models.connection_settings import Access, ModelTimeouts

Protocol: TypeAlias = Literal["chat", "responses", "anthropic"]

#: OpenAI's models that think between tool calls, which chat completions would make them forget
REASONING = re.compile(r"(?:o\d|gpt-(?:[5-9]|\d\d)|codex)")
#: over Responses nothing is sent while a model thinks, which may take minutes
THINKING = ModelTimeouts(silence=timedelta(minutes=5))


class Provider(Struct, frozen=True, kw_only=True):
    """Where a provider is, and where its users keep their keys."""

    protocol: Protocol = "chat"
    #: empty: has to be given
    base_url: str = ""
    url_variable: str = ""
    key_variable: str = ""
    needs_key: bool = True
    key_header: str = "Authorization"


class NamedKey(str):
    """A key, with the place where a user would change it, for messages."""

    __slots__ = ("source",)
    source: str

    def __new__(cls, key: str, source: str) -> "NamedKey":
        named = super().__new__(cls, key)
        named.source = source
        return named


PROVIDERS = {
    "openai": Provider(
        base_url="https://api.openai.com/v1",
        url_variable="OPENAI_BASE_URL",
        key_variable="OPENAI_API_KEY",
    ),
    "azure": Provider(
        url_variable="AZURE_OPENAI_ENDPOINT",
        key_variable="AZURE_OPENAI_API_KEY",
        key_header="api-key",
    ),
    "anthropic": Provider(
        protocol="anthropic",
        base_url="https://api.anthropic.com",
        url_variable="ANTHROPIC_BASE_URL",
        key_variable="ANTHROPIC_API_KEY",
        key_header="x-api-key",
    ),
    "openrouter": Provider(
        base_url="https://openrouter.ai/api/v1",
        url_variable="OPENROUTER_BASE_URL",
        key_variable="OPENROUTER_API_KEY",
    ),
    "ollama": Provider(
        base_url="http://localhost:11434/v1",
        url_variable="OLLAMA_HOST",
        key_variable="OLLAMA_API_KEY",
        needs_key=False,
    ),
}


class InProcess(NamedTuple):
    """Models that run in this process or come from a library."""

    #: the module of this package that opens them
    module: str
    #: the extra that they need
    extra: str = ""


IN_PROCESS = {
    "local": InProcess("in_process_model", "local"),
    "offline": InProcess("offline"),
    "pydantic_ai": InProcess("pydantic_ai", "pydantic-ai"),
    "written": InProcess("replies_from_file"),
}
ADAPTERS = {
    "chat": ("openai", "OpenAIModel"),
    "responses": ("responses", "ResponsesModel"),
    "anthropic": ("anthropic", "AnthropicModel"),
}


@arguments_checked(
    base_url=str,
    key=str,
    protocol=str,
    headers=Mapping,
    api_version=str,
    timeouts=ModelTimeouts,
    abilities=Abilities,
)
def open_model(
    model: "str | Model",
    *,
    base_url: str | None = None,
    key: str | None = None,
    protocol: Protocol | None = None,
    headers: Mapping[str, str] | None = None,
    api_version: str | None = None,
    timeouts: ModelTimeouts | None = None,
    abilities: Abilities | None = None,
) -> Model:
    """The model that `provider:model` names; a model object is returned unchanged.

    Keys and addresses that are not given come from the providers' own environment variables.
    Any server that speaks OpenAI's protocol is `openai:name` with its `base_url`; it needs no
    key if it is on this machine. `protocol` chooses the protocol where the name alone does not.
    Opening sends nothing.
    """
    if not isinstance(model, str):
        if not hasattr(model, "ask"):
            raise UsageError(f"{shown(model)} is not a model; give provider:model, or a model")
        if why := why_no_model(model):
            raise UsageError(why)
        return model
    provider, _, name = model.partition(":")
    if provider in IN_PROCESS:
        if any((base_url, key, protocol, headers, api_version, timeouts, abilities)):
            raise UsageError(f"{provider} models are opened by name alone; leave the options out")
        return _in_process(provider, name)
    if provider not in PROVIDERS or not name:
        raise _unknown(model)
    access = _access(provider, name, base_url, key, headers, api_version)
    spoken = protocol or _protocol(provider, name, access)
    patience = timeouts or (THINKING if spoken == "responses" else ModelTimeouts())
    return _adapter(spoken, name, replace(access, timeouts=patience), abilities)


def refuse_unknown_model(model: str) -> None:
    """Raise `UsageError` for a text that names no provider. Opens nothing, so that no key is needed."""
    provider, _, name = model.partition(":")
    if provider not in IN_PROCESS and (provider not in PROVIDERS or not name):
        raise _unknown(model)


def _unknown(model: str) -> UsageError:
    known = [*(f"{name}:…" for name in (*PROVIDERS, "local", "pydantic_ai", "written")), "offline"]
    return UsageError(
        f"no model is called {model!r}; write provider:model, with one of {', '.join(known)}"
    )


def _adapter(protocol: str, name: str, access: Access, abilities: Abilities | None) -> Model:
    if protocol not in ADAPTERS:
        raise UsageError(f"no protocol is called {protocol!r}; use one of {', '.join(ADAPTERS)}")
    module, kind = ADAPTERS[protocol]
    # Loaded now and not above: these bring the HTTP library with them.
    adapter = getattr(import_module(f"chargehand.models.{module}"), kind)
    return cast(Model, adapter(name, access, abilities=abilities))


def _in_process(provider: str, name: str) -> Model:
    module, extra = IN_PROCESS[provider]
    way_out = f"install chargehand[{extra}]" if extra else "update chargehand"
    try:
        opened = import_module(f"chargehand.models.{module}").open_model
    except ImportError as error:
        missing = error.name or str(error)
        raise UsageError(f"{provider} models need {missing}, which is missing; {way_out}") from None
    return cast(Model, opened(name))


def _protocol(provider: str, name: str, access: Access) -> Protocol:
    known = PROVIDERS[provider]
    # Only OpenAI itself is sure to speak Responses; what else lies behind a base URL may not.
    if provider == "openai" and access.base_url == known.base_url and REASONING.match(name):
        return "responses"
    return known.protocol


def _access(
    provider: str,
    name: str,
    base_url: str | None,
    key: str | None,
    headers: Mapping[str, str] | None,
    api_version: str | None,
) -> Access:
    known = PROVIDERS[provider]
    url = base_url or os.environ.get(known.url_variable, "").strip() or known.base_url
    if not url:
        raise UsageError(f"{provider} has no address; set {known.url_variable}, or give base_url=")
    version = api_version or (os.environ.get("OPENAI_API_VERSION") if provider == "azure" else None)
    access = Access(
        provider=provider,
        base_url=_base_url(provider, url, name, version),
        own_url=known.base_url,
        key=key if key is not None else os.environ.get(known.key_variable, ""),
        key_header=known.key_header,
        key_source=known.key_variable if key is None else _source_of(key),
        headers={**_protocol_headers(provider), **(headers or {})},
        query={"api-version": version} if version else {},
    )
    if known.needs_key and not access.key and not access.is_local:
        raise ModelDenied(
            f"{provider}:{name} needs a key, and there is none; "
            f"set {known.key_variable}, or give a key (key= in Python, key_variable in a crew file)"
        )
    return access


def _source_of(key: str) -> str:
    return key.source if isinstance(key, NamedKey) else "key="


def _protocol_headers(provider: str) -> dict[str, str]:
    return {"anthropic-version": "2023-06-01"} if provider == "anthropic" else {}


def _base_url(provider: str, url: str, name: str, version: str | None) -> str:
    """The address in the form that the adapters build on, from the forms that people have."""
    url = url.strip().rstrip("/")
    if provider == "ollama" and "://" not in url:
        url = f"http://{url}"  # as OLLAMA_HOST is written
    for end in ("/chat/completions", "/responses", "/messages"):
        url = url.removesuffix(end)
    has_path = bool(urlsplit(url).path.strip("/"))
    match provider:
        case "anthropic":
            return url.removesuffix("/v1")
        case "ollama" if not has_path:
            return f"{url if _has_port(url) else f'{url}:11434'}/v1"
        case "azure" if not has_path:
            return f"{url}/openai/deployments/{name}" if version else f"{url}/openai/v1"
    return url


def _has_port(url: str) -> bool:
    try:
        return urlsplit(url).port is not None
    except ValueError:
        return True  # let the check of the address say what is wrong with it
