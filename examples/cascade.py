"""How far a failure spreads: T1 fails, T3 needs it, T4 does not, T5 needs both T3 and T4.

        T1 ──> T3 ──┐
                    ├──> T5
        T2 ──> T4 ──┘

T1 fails, so T3 is skipped. T4 runs, because it needs only T2. The plan decides about T5: if its need of T3 is
optional, it runs and finds in `brief.missing` what is missing; if the need is required, T5 is skipped too. In
both cases the run ends `partial` and names its gaps.
"""

import chargehand as ch


@ch.worker("archive", "Fetches the report of a year")
async def fetch(brief: ch.Brief) -> int:
    if brief.args["year"] == 2023:
        raise PermissionError("the report of 2023 is locked away")  # denied: not tried again
    return 1200


@ch.worker("clerk", "Adds the tax to the sales of a year")
async def add_tax(brief: ch.Brief) -> int:
    (sales,) = brief.inputs.values()
    return int(sales) * 120 // 100


@ch.worker("editor", "Writes the comparison of two years")
async def compare(brief: ch.Brief) -> str:
    told = ", ".join(f"{task}: {value}" for task, value in brief.inputs.items())
    missing = "".join(f"; without {task}" for task in brief.missing)
    return f"{told}{missing}"


def plan(*, optional: bool) -> ch.Plan:
    """The five tasks; `optional` says whether T5 can do without T3."""
    return ch.Plan(
        goal="Compare the sales of two years",
        tasks=[
            ch.Task(
                id="T1",
                description="Fetch the report of 2023",
                worker="archive",
                args={"year": 2023},
            ),
            ch.Task(
                id="T2",
                description="Fetch the report of 2024",
                worker="archive",
                args={"year": 2024},
            ),
            ch.Task(
                id="T3",
                description="Add the tax to the sales of 2023",
                worker="clerk",
                needs=["T1"],
            ),
            ch.Task(
                id="T4",
                description="Add the tax to the sales of 2024",
                worker="clerk",
                needs=["T2"],
            ),
            ch.Task(
                id="T5",
                description="Compare the two years, tax included",
                worker="editor",
                needs=[ch.Need("T3", optional=optional), "T4"],
            ),
        ],
    )


def run(*, optional: bool) -> ch.RunResult:
    return ch.Supervisor([fetch, add_tax, compare]).run_sync(plan(optional=optional))


def main() -> None:
    for optional in (True, False):
        kind = "optional" if optional else "required"
        result = run(optional=optional)
        print(f"T5's need of T3 is {kind}: the run is {result.status.value}.\n")
        for id_, task in result.tasks.items():
            print(f"  {id_}  {task.state.value:<8} {task.output if task.output else task.why}")
        print(f"\n  answer: {result.answer.output or 'none'}")
        for gap in result.answer.gaps:
            print(f"  missing: {gap}")
        print()


if __name__ == "__main__":
    main()
