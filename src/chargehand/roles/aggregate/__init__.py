"""How results become one answer."""

from chargehand.roles.aggregate.answering import compose_answer

__all__ = ["compose_answer"]
