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
from chargehand.facts.outcome import Question, QuestionId
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
        id=str(QuestionId(run, task, "more")),
        text=_asking_words(short, spent["spent"], cap),
        about=ABOUT_BUDGET,
        choices=(STOP,),
        telling=RAISE_TO,
        default=STOP,
        evidence=Value.of(spent),
    )


def _asking_words(short: Shortage, spent: float, cap: float) -> str:
    """What was spent of what, what the next call needs, what to type, and what happens until then."""
    limit, account = short.limit, short.account
    reserved = round(amount_of(limit, account.reserved), 9)
    enough = _enough(short, spent + reserved + short.want, cap)
    spent_words, cap_words = _amount(limit, spent), _amount(limit, cap)
    if limit != "money":
        spent_words = spent_words.partition(" ")[0]  # 9 of 9 calls
    is_used_up = spent + short.kept >= cap
    head = "The budget is used up" if is_used_up else "The budget is too small for the next call"
    parts = [f"{spent_words} of {cap_words} spent"]
    parts += [f"{_amount(limit, reserved)} reserved by calls under way"] if reserved > 0 else []
    parts += [f"{_amount(limit, short.kept)} kept for composing the answer"] if short.kept else []
    told = ", and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    want, left = _amount(limit, short.want), _amount(limit, max(short.left, 0))
    is_left = "are left" if left.endswith("tokens") else "is left"
    needs = f" The next call may need {want}, and {left} {is_left} for it."
    needs = "" if limit == "calls" else needs
    return (
        f"{head}: {told}.{needs} May the run spend more? "
        f"Type '{RAISE_TO}: {enough:.12g}' (or more) to set the budget to {_amount(limit, enough)} and go on. "
        f"Type '{STOP}' to get an answer made of what there is. "
        "Until somebody answers, the run waits and nothing new starts."
    )


def _enough(short: Shortage, held: float, cap: float) -> float:
    """The smallest budget of at least `cap` that covers this amount beside the part kept back for the answer."""
    if short.limit == "money":
        whole = held / (1 - ANSWER_SHARE) if short.kept else held
        # Rounded up, as it is shown: to cents, or to two figures if it is less.
        step = 0.01 if whole >= LEAST_CENTS else 10.0 ** (math.floor(math.log10(whole)) - 1)
        return max(float(f"{math.ceil(round(whole / step, 6)) * step:.12g}"), cap)
    if not short.kept:
        return max(held, cap)
    if short.limit == "calls":
        return max(held + short.kept, cap)
    return max(math.ceil(round(held / (1 - ANSWER_SHARE), 6)), cap)


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
