"""A model call that a framework makes, as the gateway sees it: one more caller in the line of its provider."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

from chargehand.errors import (
    ModelBusy,
    ModelDenied,
    ModelError,
    ModelForbidden,
    ModelRefused,
    ModelTooSlow,
    ModelUnreachable,
)
from chargehand.facts.outcome import ErrorClass, Usage
from chargehand.interop.error_classes import failure_of, status_of
from chargehand.models.base import (
    Abilities,
    ModelReply,
    ModelRequest,
    ModelSettings,
    StopReason,
    account_of,
    user,
)
from chargehand.models.provider_errors import lasting_kind

T = TypeVar("T")

_KINDS: dict[ErrorClass, type[ModelError]] = {
    ErrorClass.RESOURCE: ModelBusy,
    ErrorClass.DENIED: ModelForbidden,
    ErrorClass.TIMEOUT: ModelTooSlow,
    ErrorClass.NETWORK: ModelUnreachable,
}


class ExternalModelCall(Generic[T]):
    """Stands in for a model: when its turn has come, the framework asks its own.

    `send` returns what came of it, and what that took. It may be called several times.
    """

    abilities = Abilities()

    def __init__(
        self, name: str, account: str, send: Callable[[], Awaitable[tuple[T, Usage]]]
    ) -> None:
        self.name = name
        self.account = account
        #: the response, once there is one
        self.came: list[T] = []
        self._send = send

    async def ask(self, request: ModelRequest) -> ModelReply:  # noqa: ARG002 - `send` knows it
        try:
            response, usage = await self._send()
        except ModelError:
            raise
        except Exception as error:
            raise _failure(error) from error
        self.came = [response]
        return ModelReply(parts=(), stop=StopReason.END, usage=usage)

    async def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelReply]:
        yield await self.ask(request)


def request_like(said: str, most: int) -> ModelRequest:
    """A request of the same size, for whoever counts tokens. No two are the same: none is shared."""
    settings = ModelSettings(max_tokens=most, extra={"call": uuid.uuid4().hex})
    return ModelRequest(turns=(user(said),), settings=settings)


def account_at(provider: str, client: Any) -> str:
    """The account of a provider's client: the one that our own adapters have with the same key."""
    host = urlsplit(str(getattr(client, "base_url", ""))).netloc
    return account_of(provider, f"{host} {getattr(client, 'api_key', '')}")


def _failure(error: Exception) -> ModelError:
    failed = failure_of(error)
    # A key that is of no use is of no use to anybody; all else that is denied is this call's matter.
    is_of_key = status_of(error) == HTTPStatus.UNAUTHORIZED
    kind = ModelDenied if is_of_key else _KINDS.get(failed.kind, ModelRefused)
    status = status_of(error) or 0
    if not issubclass(kind, ModelDenied):
        kind = lasting_kind(status, failed.message, failed.retry_after) or kind
    return kind(failed.message, retry_after=failed.retry_after, status=status)
