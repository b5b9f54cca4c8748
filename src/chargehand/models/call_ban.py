"""A switch for tests: no model that costs something or leaves the machine may be called."""

import os
import threading

from chargehand.errors import RealModelForbidden

VARIABLE = "CHARGEHAND_FORBID_REAL_MODELS"

_lock = threading.Lock()
_standing = 0


class Ban:
    """A ban on real models that stands until it is lifted; as a context, until its end."""

    def __init__(self) -> None:
        self._is_lifted = False
        _count(1)

    def lift(self) -> None:
        """End this ban. Others may still stand, the one by the environment among them."""
        if not self._is_lifted:
            self._is_lifted = True
            _count(-1)

    def __enter__(self) -> "Ban":
        return self

    def __exit__(self, *_: object) -> None:
        self.lift()


def forbid_real_models() -> Ban:
    """From now on a call to a real model raises `RealModelForbidden`, in the whole process.

    `with forbid_real_models(): …` forbids it for as long as the block runs. Models at a loopback
    address are not real in this sense: they are how a test talks to a server of its own.
    """
    return Ban()


def are_real_models_forbidden() -> bool:
    return _standing > 0 or os.environ.get(VARIABLE, "").lower() in ("1", "true", "yes", "on")


def refuse_if_forbidden(model: str) -> None:
    """Raise `RealModelForbidden` if `model`, which is real, may not be called."""
    if are_real_models_forbidden():
        raise RealModelForbidden(
            f"{model} is a real model, and real models are forbidden here; "
            f"use a ScriptedModel, or lift the ban ({VARIABLE} or forbid_real_models())"
        )


def _count(by: int) -> None:
    global _standing  # the ban is on the process
    with _lock:
        _standing += by
