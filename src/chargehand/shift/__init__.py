"""A shift: one supervisor at work in one event loop. Journal, apply, carry out, repeat.

The loop drains its inbox into the desk, appends what the desk wrote as one group, and only then
carries out what the desk asked for. Journal first, act second: a crash in between replays the
events and acts then, while the other order could act on what nobody remembers.
"""

from chargehand.shift.counter import Heard, Hook, Hooks
from chargehand.shift.leading import Leading, Shift

__all__ = ["Heard", "Hook", "Hooks", "Leading", "Shift"]
