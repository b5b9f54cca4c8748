"""The resources: what all workers of one supervisor share, and no worker owns.

Models and tools are imported when first asked for: a run of plain functions needs neither.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import replace

from chargehand.engines.brief import Brief
from chargehand.errors import UsageError
from chargehand.facts.argument_checks import shown
from chargehand.facts.outcome import MOST_TOLD, NO_USAGE, Done, Usage
from chargehand.facts.value import Value, canonical
from chargehand.roles.prompts import prompt_folder

if TYPE_CHECKING:
    from chargehand.models.base import Model, ModelRequest, ModelSettings
    from chargehand.models.gateway import Call, CallTerms, Hear, ModelGateway
    from chargehand.models.provider_queue import ProviderLoad
    from chargehand.notify.run_notices import RunNotices
    from chargehand.tools.redaction import Redactor

log = logging.getLogger("chargehand")

ModelChoice: TypeAlias = "str | Model | Sequence[str | Model]"
"""A model by name or as an object; several are a chain: the next is asked when one cannot be had."""


class Resources:
    """Models and how they are reached, the user's own dependencies, secrets."""

    def __init__(
        self,
        model: "ModelChoice | None" = None,
        *,
        gateway: "ModelGateway | None" = None,
        deps: Any = None,
        secrets: Mapping[str, str] | None = None,
        settings: "ModelSettings | None" = None,
        prompts: str | Path | None = None,
        opened: "dict[str, Model] | None" = None,
    ) -> None:
        #: a folder of words that take the place of ours when the supervisor thinks
        self.prompts = None if prompts is None else prompt_folder(prompts, "prompts")
        self._settings = settings
        self.deps = deps
        self.secrets = _texts_by_name(secrets or {})
        check_model(model, "model")
        #: of the supervisor itself, and of workers that name none
        self.default_model = model
        #: whether the supervisor itself can ask a model
        self.has_model = model is not None
        self._gateway = gateway
        #: by name: the models that were opened, shared with supervisors below
        self.opened: dict[str, Model] = {} if opened is None else opened
        #: stands in for every model, by its name or object; None: models are opened and asked as they are
        self.stand_in: Callable[[str | Model], Model] | None = None
        #: how people are told that they are needed, beside whoever looks
        self.notices: RunNotices | None = None
        #: models whose reported usage was not believed, which is said once of each
        self._unbelieved: set[str] = set()

    def below(self, above: "Resources") -> "Resources":
        """This resources as it is below another: what it lacks is that one's, and the limits are shared."""
        below = Resources(
            model=above.default_model if self.default_model is None else self.default_model,
            gateway=self._gateway or above.gateway,
            deps=above.deps if self.deps is None else self.deps,
            secrets=self.secrets,
            settings=self._settings,
            prompts=self.prompts or above.prompts,
            opened=above.opened,
        )
        below.notices = self.notices or above.notices
        below.stand_in = self.stand_in or above.stand_in
        return below

    def granted(self, worker: str, names: Iterable[str]) -> dict[str, str]:
        """The secrets of these names. Raises `UsageError` for one that this supervisor does not have."""
        for name in names:
            if name not in self.secrets:
                raise UsageError(
                    f"worker {worker!r} is granted the secret {name!r}, which its supervisor does not have; "
                    f"give it with Supervisor(…, secrets={{{name!r}: …}}); a nested supervisor inherits none"
                )
        return {name: self.secrets[name] for name in names}

    @cached_property
    def settings(self) -> "ModelSettings":
        """How models are to answer the supervisor itself."""
        from chargehand.models.base import ModelSettings

        return self._settings or ModelSettings()

    @cached_property
    def gateway(self) -> "ModelGateway":
        from chargehand.models.gateway import ModelGateway

        return self._gateway or ModelGateway()

    def provider_loads(self) -> "list[ProviderLoad]":
        """The providers that were called, and what waits at each."""
        is_used = self._gateway is not None or "gateway" in self.__dict__
        return self.gateway.loads() if is_used else []

    @cached_property
    def redactor(self) -> "Redactor":
        from chargehand.tools.redaction import Redactor

        return Redactor(self.secrets)

    @property
    def model_names(self) -> tuple[str, ...]:
        """The models of the supervisor itself, by name; none is opened for that."""
        if self.default_model is None:
            return ()
        chain = _chain(self.default_model, "the supervisor")
        return tuple(each if isinstance(each, str) else each.name for each in chain)

    def models(self, chosen: "ModelChoice | None", whose: str) -> "tuple[Model, ...]":
        """The models that somebody asks, opened once each."""
        choice = self.default_model if chosen is None else chosen
        if choice is None:
            raise UsageError(
                f"{whose} has no model; give it one (model='openai:gpt-5-mini', 'ollama:qwen3', "
                "'offline', …) or give one to the supervisor for all (on the command line, with --model)"
            )
        opened = tuple(self._open(each) for each in _chain(choice, whose))
        if any(model.abilities.is_real for model in opened):
            from chargehand.models.prices import load_soon

            load_soon()
        return opened

    def check_openable(self) -> None:
        """Open the supervisor's own models, if it has any. Raises what keeps them from being opened, such as a missing key."""
        if self.has_model:
            self.models(None, "the supervisor")

    @property
    def holds_places(self) -> bool:
        """Whether each place of a list can be held to a schema of its own, whichever model answers."""
        able = [model.abilities for model in self.models(None, "the supervisor")]
        return all(each.schema and each.places for each in able)

    async def call(
        self,
        brief: Brief,
        models: "Sequence[Model]",
        request: "ModelRequest",
        hear: "Hear | None" = None,
    ) -> Done:
        """Ask on behalf of an attempt, and say what that cost."""
        call = await self.gateway.ask(
            models, request, priority=brief.task.priority, hear=hear, terms=terms_of(brief)
        )
        return Done(Value.of_record(call), self._settled(brief, models, request, call))

    def _settled(
        self, brief: Brief, models: "Sequence[Model]", request: "ModelRequest", call: "Call"
    ) -> Usage:
        """What a call has cost, as far as it is known; a reply that was shared cost nothing."""
        if not call.sends:
            return NO_USAGE
        metered = [m.abilities.is_metered for m in models if m.name == call.model]
        if True not in metered:
            return replace(call.reply.usage, calls=1)
        from chargehand.models.prices import is_plausible, price_of, settled

        usage, has_parts = call.reply.usage, bool(call.reply.parts)
        bound = Usage(tokens_in=MOST_TOLD, tokens_out=max(request.settings.max_tokens, 16))
        is_believed = is_plausible(usage, bound, has_parts=has_parts)
        if not is_believed:
            self._say_unbelieved(call.model, usage, bound)
        is_told = not call.doubtful and is_believed
        if is_told and not brief.is_capped:  # what was sent need not be measured then
            return replace(usage, calls=1, money=max(price_of(call.model, usage) or 0.0, 0.0))
        most = self.worst(models, request)
        usage = settled(call.model, call.reply.usage, most, has_parts=has_parts)
        for _ in range(call.doubtful):
            usage += most
        return usage

    def _say_unbelieved(self, model: str, reported: Usage, bound: Usage) -> None:
        """Say, once for each model, that its calls count as the most that they can cost."""
        if model in self._unbelieved:
            return
        self._unbelieved.add(model)
        is_silent = not (reported.tokens_in or reported.tokens_out)
        is_beyond = reported.tokens_out > bound.tokens_out
        log.log(
            logging.INFO if is_silent else logging.WARNING,
            "usage_not_counted model=%s tokens_in=%d tokens_out=%d most_out=%d; each such call counts as the "
            "most that it can cost%s",
            *(model, reported.tokens_in, reported.tokens_out, bound.tokens_out),
            ". The provider may bill more than the budget allows" if is_beyond else "",
        )

    def worst(self, models: "Sequence[Model]", request: "ModelRequest") -> Usage:
        """The most that this call can cost, whichever of the models takes it. A bound, no estimate.

        No request has more tokens than bytes, and no reply more than it may have.
        """
        from chargehand.models.prices import worst_price

        sent = len(canonical(request))
        # Some protocols refuse a maximum below 16, and are sent that instead.
        most = Usage(calls=1, tokens_in=sent, tokens_out=max(request.settings.max_tokens, 16))
        prices = [worst_price(model.name, most) for model in models]
        return replace(most, money=max(prices, default=0.0))

    def unpriced(self, chosen: "ModelChoice | None", whose: str) -> str:
        """A model of this choice whose price nobody knows; empty if there is none."""
        from chargehand.models.prices import price_of

        one = Usage(calls=1, tokens_in=1, tokens_out=1)
        for model in self.models(chosen, whose):
            able = model.abilities
            if (able.is_real or able.may_cost) and price_of(model.name, one) is None:
                return model.name
        return ""

    def _open(self, model: "str | Model") -> "Model":
        if self.stand_in is not None:
            return self.stand_in(model)
        if not isinstance(model, str):
            return model
        if model not in self.opened:
            from chargehand.models.open_model import open_model

            self.opened[model] = open_model(model)
        return self.opened[model]


def check_model(chosen: "ModelChoice | None", whose: str) -> None:
    """Refuse what is neither the name of a model nor a model, nor a chain of them."""
    for each in () if chosen is None else _chain(chosen, whose):
        if isinstance(each, str):
            continue
        if not hasattr(each, "ask"):
            raise UsageError(
                f"{whose}: {shown(each)} is not a model; give its name, as 'openai:gpt-5-mini', or a model"
            )
        from chargehand.models.base import why_no_model

        if why := why_no_model(each):
            raise UsageError(f"{whose}: {why}")


def _texts_by_name(secrets: object) -> dict[str, str]:
    """The secrets by name; what is wrong with them is said without showing them."""
    pairs = secrets.items() if isinstance(secrets, Mapping) else [(None, None)]
    if not all(isinstance(each, str) for pair in pairs for each in pair):
        raise UsageError("secrets must be a dict of texts, as {'NAME': 'secret'}")
    return {str(name): str(secret) for name, secret in pairs}


def _chain(chosen: "ModelChoice", whose: str) -> "Sequence[str | Model]":
    if isinstance(chosen, str) or not isinstance(chosen, Sequence):
        return [chosen]
    if not chosen:
        raise UsageError(f"{whose} has an empty chain of models")
    return chosen


def terms_of(brief: Brief) -> "CallTerms":
    """What an attempt bears when it asks a model: it may be sent away, and pays for one call at a time."""
    from chargehand.models.gateway import CallTerms

    return CallTerms(
        may_park=True,
        has_parked=brief.has_parked,
        once=brief.is_capped,
        until=brief.waits_until,
    )
