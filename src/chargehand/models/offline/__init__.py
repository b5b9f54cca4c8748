"""A model of rules instead of weights: no network, no chance, the same answer every time."""

# Model
from chargehand.models.offline.model import OfflineModel, open_model

__all__ = ["OfflineModel", "open_model"]
