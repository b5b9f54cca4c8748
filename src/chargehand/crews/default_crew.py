"""The default crew: four specialists that share no tool and work on the user's files."""

import os
from collections.abc import Sequence
from pathlib import Path

from chargehand.crews.crew import Crew
from chargehand.errors import UsageError
from chargehand.roles.llm_worker import Worker
from chargehand.tools.search_engines import BRAVE_KEY


def default_crew(files: Sequence[Path]) -> Crew:
    """A researcher, an analyst, a writer and a reviewer. They can read only `files`.

    The researcher can also search the web if the environment has a key for it.
    """
    if not files:
        raise UsageError("the default crew has nothing to read; say what with --files PATH")
    # Imported here, because most programs do not need them.
    from chargehand.tools.calculator import maths
    from chargehand.tools.files import files as file_tools
    from chargehand.tools.sql_tables import data
    from chargehand.tools.web import web as web_tools

    web = web_tools(["*"]) if os.environ.get(BRAVE_KEY, "").strip() else ()
    return Crew(
        workers=(
            Worker(
                "researcher",
                "Finds facts in documents and files" + (" and on the web" if web else ""),
                instructions="Search before you read. Give every fact with its source, as file:line"
                + (" or address" if web else "")
                + ". Say what you looked for and did not find.",
                tools=[*file_tools(files), *web],
                destinations=["*"] if web else (),
            ),
            Worker(
                "analyst",
                "Answers questions about tables of data, and calculates",
                instructions="Look at the tables before you query them. Calculate with your tools, "
                "never in your head. Give numbers with their units and with the table they come from.",
                tools=[*data(files), *maths()],
            ),
            Worker(
                "writer",
                "Writes texts, reports and summaries from what others have found",
                instructions="Use only what you are given; keep its sources. Short and plain.",
            ),
            Worker(
                "reviewer",
                "Reviews a text: checks it for mistakes, gaps and claims without a source",
                instructions="Name each mistake with its place and how to mend it. "
                "If there is none, say so.",
            ),
        ),
        name="default",
        origin="the default crew",
    )
