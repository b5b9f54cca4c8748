"""Fault row J11: another worker, or another try after a failure, starts a lineage of its own."""

import pytest

import chargehand as ch
from chargehand.models.base import ModelReply, StopReason, Text, ToolCall

CUT = ModelReply(parts=(Text("cut"),), stop=StopReason.LENGTH)
REFUSAL = ModelReply(parts=(Text("no"),), stop=StopReason.REFUSAL)
CALL = ToolCall("1", "post", '{"text": "hello"}')


def plan(**more: object) -> ch.Plan:
    task = ch.Task(id="t", description="What is two plus two?", **more)  # type: ignore[arg-type] # one keyword of several types
    return ch.Plan(goal="g", tasks=[task])


def agent(name: str, *script: object, tools: tuple[ch.Tool, ...] = ()) -> ch.Worker:
    model = ch.ScriptedModel(list(script), name=f"scripted:{name}")  # type: ignore[arg-type] # replies of several types
    return ch.Worker(name, f"{name} answers sums", skills=["sums"], tools=tools, model=model)


def mismatches(result: ch.RunResult) -> list[str]:
    return [str(each.error) for each in result.trace.attempts if "recorded with" in str(each.error)]


@pytest.mark.parametrize("first", [[CUT] * 9, [REFUSAL] * 9, [ch.errors.ModelRefused("no")] * 9])
def test_j11_an_llm_worker_takes_over_from_one_that_failed(first: list[object]) -> None:
    """Nothing that the first one was told is handed to the second as its own."""
    boss = ch.Supervisor([agent("ada", *first), agent("bob", *["Four."] * 3)])
    result = boss.run_sync(plan(skill="sums"))
    assert (result.status, result.output, mismatches(result)) == ("succeeded", "Four.", [])


def test_the_next_model_of_a_chain_is_asked_if_the_provider_no_longer_has_the_first() -> None:
    gone = ch.ScriptedModel([ch.errors.ModelUnknown("no such model")] * 3, name="scripted:gone")
    spare = ch.ScriptedModel(["Four."], name="scripted:spare")
    boss = ch.Supervisor([ch.Worker("ada", "Answers sums", model=[gone, spare])])
    result = boss.run_sync(plan(worker="ada"))
    assert (result.status, result.output) == ("succeeded", "Four.")
    assert (len(gone.requests), len(spare.requests)) == (1, 1)


def test_j11_what_was_done_to_the_outside_world_is_not_done_again_by_the_next_worker() -> None:
    """Keys of effects are the same whoever does them; the second worker gets the recorded result."""
    keys: list[str] = []

    @ch.tool(effect="keyed")
    def post(context: ch.ToolContext, text: str) -> str:
        """Post a text."""
        keys.append(context.key)
        return f"posted {text}"

    boss = ch.Supervisor(
        [
            agent("ada", *[CALL, REFUSAL] * 3, tools=(post,)),
            agent("bob", *[CALL, "Four."] * 3, tools=(post,)),
        ],
    )
    result = boss.run_sync(plan(skill="sums"))
    assert (result.status, result.output, mismatches(result)) == ("succeeded", "Four.", [])
    assert len(keys) == 1


def test_j11_function_workers_have_lineages_of_their_own() -> None:
    @ch.worker("eve", "Looks, and fails", skills=["look"])
    async def eve(brief: ch.Brief) -> str:
        await brief.step("look", str, "eve", effect="pure")
        raise ValueError("eve cannot")

    @ch.worker("fay", "Looks", skills=["look"])
    async def fay(brief: ch.Brief) -> str:
        return str(await brief.step("look", str, "fay", effect="pure"))

    result = ch.Supervisor([eve, fay]).run_sync(plan(skill="look"))
    assert (result.status, result.output) == ("succeeded", "fay")


def test_j11_a_policy_that_names_the_next_worker_gives_it_a_lineage_of_its_own() -> None:
    workers = [agent("ada", *[CUT] * 9), agent("bob", "Four.")]
    policy = ch.OnFailure(("elsewhere:bob",))
    result = ch.Supervisor(workers).run_sync(plan(worker="ada", on_failure=policy))
    assert (result.status, result.output, mismatches(result)) == ("succeeded", "Four.", [])


def test_j11_the_only_worker_with_a_skill_is_not_told_its_failed_reply_again() -> None:
    """`elsewhere` is here if there is nobody else; the cut reply must not be replayed for ever."""
    boss = ch.Supervisor([agent("ada", CUT, CUT, "Four.")])
    result = boss.run_sync(plan(skill="sums"))
    assert (result.status, result.output) == ("succeeded", "Four.")
