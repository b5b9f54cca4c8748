"""A runtime: one supervisor at work in one event loop. Journal, apply, carry out, repeat.

The loop drains its inbox into the kernel, appends what the kernel wrote as one group, and only then
carries out what the kernel asked for. Journal first, act second: a crash in between replays the
events and acts then, while the other order could act on what nobody remembers.
"""

from chargehand.runtime.run_leader import BegunRun, Heard, Hook, Hooks, Runtime, RuntimeParts

__all__ = ["BegunRun", "Heard", "Hook", "Hooks", "Runtime", "RuntimeParts"]
