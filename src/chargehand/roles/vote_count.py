"""The worker that counts the answers of a quorum."""

from chargehand.decisions.quorum import VOTE, count, disagreement
from chargehand.engines.brief import Brief
from chargehand.facts.outcome import ErrorClass, Failed
from chargehand.roles.function_worker import worker


@worker(VOTE, "Counts the equal answers of the tasks that `quorum` creates; not for other tasks")
async def vote(brief: Brief) -> object:
    """The answer that enough agree on; a failure that tells all answers if there is none."""
    answers, agree = brief.inputs, int(brief.task.args.get("agree", 1))
    ballot = count(answers)
    if answers and len(ballot.agreed) >= agree:
        return answers[ballot.agreed[0]]
    why = disagreement(answers, brief.missing, agree)
    # Counted again, the same answers would come to the same.
    return Failed(kind=ErrorClass.LOGIC, message=why, is_final=True)
