"""The office: what all workers of one supervisor share, and no worker owns.

Models and tools are imported when first asked for: a run of plain functions needs neither.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import replace

from chargehand.errors import UsageError
from chargehand.facts.outcome import NO_USAGE, Usage

if TYPE_CHECKING:
    from chargehand.models.base import Model
    from chargehand.models.switchboard import Call, Switchboard
    from chargehand.tools.redaction import Redactor

ModelChoice: TypeAlias = "str | Model | Sequence[str | Model]"
"""A model by name or as an object; several are a chain: the next is asked when one cannot be had."""


class Office:
    """Models and how they are reached, the user's own dependencies, secrets."""

    def __init__(
        self,
        *,
        model: "ModelChoice | None" = None,
        switchboard: "Switchboard | None" = None,
        deps: Any = None,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        self.deps = deps
        self.secrets = dict(secrets or {})
        self._default = model
        self._switchboard = switchboard
        self._opened: dict[str, Model] = {}

    @cached_property
    def switchboard(self) -> "Switchboard":
        from chargehand.models.switchboard import Switchboard

        return self._switchboard or Switchboard()

    @cached_property
    def redactor(self) -> "Redactor":
        from chargehand.tools.redaction import Redactor

        return Redactor(self.secrets)

    def models(self, chosen: "ModelChoice | None", whose: str) -> "tuple[Model, ...]":
        """The models that somebody asks, opened once each."""
        choice = self._default if chosen is None else chosen
        if choice is None:
            raise UsageError(
                f"{whose} has no model; give it one (model='openai:gpt-5-mini', 'ollama:qwen3', "
                "'offline', …) or give one to the supervisor for all"
            )
        several = (
            [choice] if isinstance(choice, str) or not isinstance(choice, Sequence) else choice
        )
        if not several:
            raise UsageError(f"{whose} has an empty chain of models")
        return tuple(self._open(each) for each in several)

    def priced(self, call: "Call") -> Usage:
        """What a call has cost, as far as it is known; a reply that was shared cost nothing."""
        if not call.sends:
            return NO_USAGE
        from chargehand.models.prices import price_of

        usage = call.reply.usage
        return replace(usage, calls=call.sends, money=price_of(call.model, usage) or 0.0)

    def _open(self, model: "str | Model") -> "Model":
        if not isinstance(model, str):
            return model
        if model not in self._opened:
            from chargehand.models.opening import open_model

            self._opened[model] = open_model(model)
        return self._opened[model]
