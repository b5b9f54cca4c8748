"""A journal in memory: for tests, for trying things out, and for runs that need not outlive us."""

import re
import secrets
import threading
import time
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from types import TracebackType

from msgspec import Struct, field
from typing_extensions import Self

from chargehand.errors import JournalDamaged, KeyConflict, NotLeading, UnknownRun, UsageError
from chargehand.facts.events import Event, RunFinished, encode
from chargehand.facts.value import digest_of
from chargehand.journal.base import GENESIS, Entry, Head, Key, Mail, Position, chain_hash
