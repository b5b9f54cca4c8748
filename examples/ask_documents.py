"""Two LLM workers answer questions over bundled data, with sources. No API key, no network.

The model is `offline`: rules, no language model. It chooses tools by their words and answers with sentences it
has found. Replace it with `openai:gpt-5-mini`, `ollama:qwen3` or `local:smollm2`; nothing else changes.
"""

import sys
from pathlib import Path

import chargehand as ch
from chargehand.tools.calculator import calculate
from chargehand.tools.files import files

DATA = Path(__file__).parent / "data"


def crew(model: str) -> list[ch.Worker]:
    return [
        ch.Worker(
            "researcher", "Finds facts in documents", tools=files(DATA / "reviews"), model=model
        ),
        ch.Worker("analyst", "Calculates", tools=[calculate], model=model),
    ]


def plan() -> ch.Plan:
    return ch.Plan(
        goal="What people say, and a sum",
        tasks=[
            ch.Task(
                id="kettle", description="What is annoying about the kettle?", worker="researcher"
            ),
            ch.Task(
                id="strap",
                description="What is said about the strap of the backpack?",
                worker="researcher",
            ),
            ch.Task(id="sum", description="Calculate 39.90 * 412", worker="analyst"),
        ],
    )


def main(model: str = "offline") -> ch.RunResult:
    result = ch.Supervisor(crew(model)).run_sync(plan())
    for id_, task in result.tasks.items():
        print(
            f"{task.task.description}\n  {str(task.output or task.why).replace(chr(10), chr(10) + '  ')}"
        )
        if task.taint:
            print(f"  (rests on {', '.join(task.taint)})")
        steps = [
            step.name for span in result.trace.attempts if span.task == id_ for step in span.steps
        ]
        print(f"  steps: {', '.join(steps)}\n")
    return result


if __name__ == "__main__":
    main(*sys.argv[1:2])
