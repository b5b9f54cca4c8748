"""Notifications for people: notices, and the notifiers that send them."""

from chargehand.notify.base import Notice, NoticeKind, Notifier, Subscription
from chargehand.notify.command import Command
from chargehand.notify.log import Log
from chargehand.notify.webhook import Webhook, is_genuine

__all__ = [
    "Command",
    "Log",
    "Notice",
    "NoticeKind",
    "Notifier",
    "Subscription",
    "Webhook",
    "is_genuine",
]
