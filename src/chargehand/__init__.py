"""chargehand: a supervisor for teams of agents."""

__version__ = "0.1.0.dev0"
