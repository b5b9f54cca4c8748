"""Two nested teams under one supervisor: each plans its own part, one fails in part, one budget covers all.

The model is scripted, so this always runs the same. Replace it with `openai:gpt-5-mini` or another model, leave
out `plan_for`, and each team plans for itself.
"""

import chargehand as ch
from chargehand.models.base import ModelRequest

PRODUCTS = ("kettle", "backpack", "lamp")


@ch.worker("archivist", "Finds last year's sales of a product")
async def find_sales(brief: ch.Brief) -> int:
    sold = {"kettle": 412, "backpack": 96}
    product = brief.args["product"]
    if product not in sold:
        raise ch.WorkerError(f"there is no file on the {product}", kind="denied")
    return sold[product]


def said(request: ModelRequest) -> str:
    asked = request.turns[-1].text
    product = next(each for each in PRODUCTS if each in asked)
    return f"People like the {product}."


def for_each_product(worker: str, words: str) -> ch.Plan:
    tasks = [
        ch.Task(id=each, description=words.format(each), worker=worker, args={"product": each})
        for each in PRODUCTS
    ]
    return ch.Plan(goal=words.format("product"), tasks=tasks)


def teams() -> list[ch.Supervisor]:
    critic = ch.Worker(
        "critic", "Sums up what people say", model=ch.ScriptedModel([said] * len(PRODUCTS))
    )
    return [
        ch.Supervisor(
            [find_sales],
            name="sales",
            description="Knows what was sold",
            plan_for=lambda _: for_each_product("archivist", "How many of the {} were sold?"),
        ),
        ch.Supervisor(
            [critic],
            name="press",
            description="Knows what people say",
            plan_for=lambda _: for_each_product("critic", "What do people say of the {}?"),
        ),
    ]


def main() -> ch.RunResult:
    boss = ch.Supervisor(teams(), limits=ch.Limits(calls=20, depth=2))
    tasks = [
        ch.Task(id="figures", description="Say what was sold", worker="sales"),
        ch.Task(id="voices", description="Say what people think", worker="press"),
    ]
    result = boss.run_sync(ch.Plan(goal="How did our products do?", tasks=tasks))
    print(result.answer)
    for level in result.trace.levels():
        print(f"depth {level.depth}: {level.runs} runs")
    print(f"{result.usage.calls} model calls of 20")
    return result


if __name__ == "__main__":
    main()
