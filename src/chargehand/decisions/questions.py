"""Questions to people: whether a text answers one, questions about the budget, and expired questions."""

import math
from collections.abc import Mapping

from msgspec.structs import replace

from chargehand.decisions.budget import ANSWER_SHARE, OVER_BUDGET, Shortage, amount_of
from chargehand.decisions.system_tasks import BUDGET
from chargehand.decisions.task_graph import TaskNode
from chargehand.facts.events import (
    BudgetChanged,
    QuestionAnswered,
    QuestionExpired,
    WorkStopped,
)
from chargehand.facts.failure_policy import ABOUT_BUDGET, RAISE_TO, STOP
from chargehand.facts.outcome import Question
from chargehand.facts.scheduler_commands import Command, SetTimer
from chargehand.facts.value import Value

#: dollars; smaller amounts are shown with two significant figures, not in cents
LEAST_CENTS = 0.1


def patience(node: TaskNode) -> list[Command]:
    """The timer that ends the wait for an answer; none for a question without a time limit."""
    if node.due_at is None or node.question is None:
        return []
    expired = QuestionExpired(question=node.question.id, task=node.task.id, at=node.due_at)
    return [SetTimer(node.due_at, expired)]


def next_asking_for_more(nodes: Mapping[str, TaskNode]) -> str:
    """The id of the next task that asks a person to raise the budget."""
    return f"{BUDGET}:{sum(task.startswith(BUDGET) for task in nodes) + 1}"


def budget_question(run: str, task: str, short: Shortage) -> Question:
    """The question whether the run may spend more. Its default is to stop."""
    cap = getattr(short.account.limits, short.limit)
    spent = {"limit": short.limit, "cap": cap, "spent": amount_of(short.limit, short.account.spent)}
    if short.kept:
        spent["kept"] = short.kept
    return Question(
        id=f"{run}:{task}:more",
        text=_asking_words(short, spent["spent"], cap),
        about=ABOUT_BUDGET,
        choices=(STOP,),
        telling=RAISE_TO,
        default=STOP,
        evidence=Value.of(spent),
    )


def _asking_words(short: Shortage, spent: float, cap: float) -> str:
    """What was spent, what is asked, what to type, and what happens until then."""
    limit, more = short.limit, max(2 * cap, _enough(short, max(cap, spent) + short.want))
    spent_words, cap_words = _amount(limit, spent), _amount(limit, cap)
    if limit != "money":
        spent_words = spent_words.partition(" ")[0]  # 9 of 9 calls
    want, left = _amount(limit, short.want), _amount(limit, max(short.left, 0))
    needs = (
        "" if limit == "calls" else f" The next call may need {want}, and {left} is left for it."
    )
    kept = f", and {_amount(limit, short.kept)} kept for composing the answer" if short.kept else ""
    return (
        f"The budget is used up: {spent_words} of {cap_words} spent{kept}.{needs} May the run spend more? "
        f"Type '{RAISE_TO}: {more:.12g}' (or another amount) to set the budget to {_amount(limit, more)} and go on. "
        f"Type '{STOP}' to get an answer made of what there is. "
        "Until somebody answers, the run waits and nothing new starts."
    )


def _enough(short: Shortage, amount: float) -> float:
    """The budget that leaves this amount after the part that is kept back for the answer."""
    if not short.kept:
        return amount
    if short.limit == "calls":
        return amount + short.kept
    whole = amount / (1 - ANSWER_SHARE)
    return whole if short.limit == "money" else math.ceil(whole)


def _amount(limit: str, amount: float) -> str:
    """An amount of money, tokens or calls, in words."""
    if limit == "money":
        if amount >= LEAST_CENTS or not amount:
            return f"${amount:.2f}"
        return f"${float(f'{amount:.2g}'):.12f}".rstrip("0")
    return f"{amount:,.0f} {limit if amount != 1 else limit[:-1]}"


def budget_after(question: Question, event: QuestionAnswered) -> BudgetChanged | WorkStopped:
    """The event that follows from a person's answer about the budget: a new budget, or the end of the work."""
    amount = None if event.text in question.choices else question.told(event.text)
    if not isinstance(amount, (int, float)):
        return WorkStopped(reason=OVER_BUDGET, by=event.by, at=event.at)
    limit = question.evidence.read()["limit"]
    changed = BudgetChanged(by=event.by, at=event.at)
    return replace(changed, **{limit: float(amount) if limit == "money" else int(amount)})


def is_answer(nodes: Mapping[str, TaskNode], event: QuestionAnswered) -> bool:
    """Whether the question is open and accepts this answer."""
    node = _asks(nodes, event.task, event.question)
    return node is not None and node.question is not None and node.question.accepts(event.text)


def unanswered(
    nodes: Mapping[str, TaskNode], event: QuestionExpired
) -> QuestionAnswered | QuestionExpired | None:
    """The event to record when a question expires: its default as the answer, if it has one."""
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


def _asks(nodes: Mapping[str, TaskNode], task: str, question: str) -> TaskNode | None:
    node = nodes.get(task)
    is_open = node is not None and node.question is not None and node.question.id == question
    return node if is_open else None
