"""The small model that plans the requests: weights in GGUF, named by CHARGEHAND_SMALL_MODEL."""

import os

from chargehand.errors import UsageError
from chargehand.models.in_process_model import LocalModel

PATH = os.environ.get("CHARGEHAND_SMALL_MODEL", "")
if not PATH:
    raise UsageError("name the weights of a small model: CHARGEHAND_SMALL_MODEL=/a/model.gguf")

model = LocalModel(PATH, threads=1)
