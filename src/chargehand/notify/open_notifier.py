"""Parses `webhook:https://…`, `command:…` or `log` into a notifier."""

import os
import shlex
from collections.abc import Sequence

from chargehand.errors import UsageError
from chargehand.facts.argument_checks import shown
from chargehand.notify.base import NoticeKind, Notifier, Notify, Subscription
from chargehand.notify.command import Command
from chargehand.notify.log import Log
from chargehand.notify.webhook import Webhook

#: variable with the signing secret of webhooks that are given as text
SECRET_VARIABLE = "CHARGEHAND_WEBHOOK_SECRET"  # noqa: S105 - the name of a variable
_WAYS = "webhook:https://…, command:PROGRAM WORDS… or log"


def open_notifiers(notify: Notify) -> list[tuple[Notifier, frozenset[NoticeKind]]]:
    """The notifiers, each with its kinds of notices. Raises `UsageError` for anything that is not a notifier."""
    if isinstance(notify, (str, Subscription)) or not isinstance(notify, Sequence):
        return [_opened(notify)]
    return [_opened(each) for each in notify]


def open_notifier(words: str) -> Notifier:
    """Parse a notifier. Raises `UsageError` if the text does not describe one."""
    way, _, rest = words.strip().partition(":")
    rest = rest.strip()
    if way == "log" and not rest:
        return Log()
    if way == "webhook" and rest:
        return Webhook(rest, secret=os.environ.get(SECRET_VARIABLE, ""))
    if way == "command" and rest:
        try:
            return Command(shlex.split(rest))
        except ValueError as error:
            raise UsageError(f"the words of {words!r} cannot be told apart: {error}") from None
    raise UsageError(f"{way!r} is not a way to notify; write {_WAYS}")


def _opened(given: "str | Notifier | Subscription") -> tuple[Notifier, frozenset[NoticeKind]]:
    subscription = given if isinstance(given, Subscription) else Subscription(given)
    to = subscription.to
    if isinstance(to, str):
        to = open_notifier(to)
    elif not callable(getattr(to, "notify", None)):
        raise UsageError(f"{shown(to)} cannot notify; give {_WAYS}, or an object with notify()")
    try:
        return to, frozenset(NoticeKind(kind) for kind in subscription.of)
    except ValueError as error:
        kinds = ", ".join(kind.value for kind in NoticeKind)
        raise UsageError(f"{error}; notices are sent for {kinds}") from None
