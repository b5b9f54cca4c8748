"""How results become one answer."""

from chargehand.roles.aggregate.answer_task import compose_answer

__all__ = ["compose_answer"]
