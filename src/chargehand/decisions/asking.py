"""Questions to people: whether a word answers one, and what becomes of those that nobody answers."""

from collections.abc import Mapping

from chargehand.decisions.graph import Node
from chargehand.facts.commands import Command, SetTimer
from chargehand.facts.events import QuestionAnswered, QuestionExpired


def patience(node: Node) -> list[Command]:
    """The timer of a question that waits for so long and no longer."""
    if node.due_at is None or node.question is None:
        return []
    expired = QuestionExpired(question=node.question.id, task=node.task.id, at=node.due_at)
    return [SetTimer(node.due_at, expired)]


def is_answer(nodes: Mapping[str, Node], event: QuestionAnswered) -> bool:
    """Whether the question is open and this is an answer to it."""
    node = _asks(nodes, event.task, event.question)
    return node is not None and node.question is not None and node.question.accepts(event.text)


def unanswered(
    nodes: Mapping[str, Node], event: QuestionExpired
) -> QuestionAnswered | QuestionExpired | None:
    """What is written down when patience is at an end: the default, if the question has one."""
    node = _asks(nodes, event.task, event.question)
    if node is None or node.question is None:
        return None
    if node.question.default is None:
        return event
    return QuestionAnswered(
        question=event.question,
        task=event.task,
        text=node.question.default,
        by="default",
        at=event.at,
    )


def _asks(nodes: Mapping[str, Node], task: str, question: str) -> Node | None:
    node = nodes.get(task)
    is_open = node is not None and node.question is not None and node.question.id == question
    return node if is_open else None
