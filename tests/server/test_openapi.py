"""The OpenAPI document, and requests drawn from it: none of them is answered with a 500.

Fifty examples of every operation are sent with CHARGEHAND_SCHEMATHESIS=all; `make test` sends a few of each. Every second
one is about something that is there: what is drawn for an id leads nowhere but to a 404.
"""

import asyncio
import json
import os
import re
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings

from chargehand.server.http.run_views import GROUPS, STATES
from tests.server.conftest import Served, serving, task

PAGE = (Path(__file__).parents[2] / "docs" / "http_api.md").read_text(encoding="utf-8")

#: what a path may name beside a run and a question
THERE = {"task": "a", "call": "3", "name": "clerk", "key": "k"}
EXAMPLES = 50 if os.environ.get("CHARGEHAND_SCHEMATHESIS") == "all" else 4


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server in a thread, with a finished run in it and one that asks a person."""
    ready, over = threading.Event(), threading.Event()
    found: list[Served] = []

    async def serve() -> None:
        async with serving(tmp_path_factory.mktemp("openapi")) as each:
            await each.until(await each.submit(task("a"), key="known"), "succeeded")
            asking = await each.submit(task("a", "asker"), task("b", "clerk", "a"))
            await each.until(asking, "waiting")
            found.append(each)
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(60)
        yield found[0]
    finally:
        over.set()
        thread.join(30)


def runs_of(served: Served, headers: dict[str, str]) -> Iterator[dict[str, str]]:
    """What names the runs of a server, and the questions that they ask."""

    def get(path: str) -> Any:
        asked = urllib.request.Request(f"{served.url}/api/v1/{path}", headers=headers)
        with urllib.request.urlopen(asked) as reply:
            return json.loads(reply.read())

    for run in get("runs")["runs"]:
        asked = get(f"runs/{run['id']}/questions")["questions"]
        yield {"run": run["id"], "question": asked[0]["id"] if asked else f"{run['id']}:a:1"}


def operations(served: Served) -> list[Any]:
    document = served.web.guard._app.openapi()  # type: ignore[attr-defined]  # the FastAPI application
    schema: Any = schemathesis.openapi.from_dict(document)
    return [each.ok() for each in schema.get_all_operations()]


def test_no_request_that_fits_the_document_breaks_the_server(served: Served) -> None:
    headers = {"Authorization": f"Bearer {served.token}", "X-Chargehand": "1"}
    known = [{**THERE, **each} for each in runs_of(served, headers)]
    tried = 0
    replies: Counter[int] = Counter()
    for operation in operations(served):
        if operation.path.endswith(("/events", "/tokens/rotate")):
            continue  # a stream without an end; and the token is needed for the others

        @seed(7)
        @settings(
            max_examples=EXAMPLES,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def send(case: Any) -> None:
            nonlocal tried
            tried += 1
            case.headers.pop("Authorization", None)  # drawn like the rest
            if tried % 2:
                there = known[tried // 2 % len(known)]
                case.path_parameters = {
                    name: there.get(name, value) for name, value in case.path_parameters.items()
                }
            reply = case.call(base_url=served.url, headers=headers)
            replies[reply.status_code] += 1
            assert reply.status_code < 500, (case.method, case.path, reply.text)
            assert reply.status_code != 401 or case.path.endswith("/login"), case.path

        send()
    print(f"{tried} requests: {sorted(replies.items())}")
    assert tried > 30 * EXAMPLES / 4
    assert replies[200] > tried / 10, "what is there is found"


def documented_bodies() -> dict[str, tuple[set[str], set[str]]]:
    """By route: the required and the optional fields that docs/http_api.md names."""
    section = PAGE.partition("### Request bodies")[2].partition("###")[0]
    rows = re.findall(r"^\| `((?:POST|PUT) [^`]+)` \|([^|]*)\|([^|]*)\|$", section, re.MULTILINE)
    return {route: (_named(required), _named(optional)) for route, required, optional in rows}


def _named(cell: str) -> set[str]:
    """The fields in a cell; what stands in brackets explains them."""
    return set(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", cell)))


def test_the_documentation_names_the_fields_of_every_body(served: Served) -> None:
    document = served.web.guard._app.openapi()  # type: ignore[attr-defined]  # the FastAPI application
    schemas = document["components"]["schemas"]
    found, without = {}, set()
    for path, methods in document["paths"].items():
        for method in methods.keys() & {"post", "put"}:
            route = f"{method.upper()} {path.removeprefix('/api/v1/')}"
            body = methods[method].get("requestBody")
            if body is None:
                without.add(route)
                continue
            name = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
            required = set(schemas[name].get("required", []))
            found[route] = (required, set(schemas[name]["properties"]) - required)
    told = documented_bodies()
    start = PAGE.partition("### Start a run")[2].partition("###")[0]
    told["POST runs"] = (set(), set(re.findall(r"^\| `(\w+)` \|", start, re.MULTILINE)))
    assert told == found
    (sentence,) = re.findall(r"^(`POST .*) have no body\.$", PAGE, re.MULTILINE)
    assert set(re.findall(r"`([^`]+)`", sentence)) == without


def test_the_documentation_names_every_state_and_group_of_runs() -> None:
    section = PAGE.partition("### List runs")[2].partition("###")[0]
    states, _, groups = section.partition("| group |")
    named = [re.findall(r"`(\w+)`", cell) for cell in re.findall(r"^\|([^|]+)\|", states, re.M)]
    assert {each for cell in named for each in cell} == {"state", *STATES}
    rows = dict(re.findall(r"^\| `(\w+)` \|([^|:;]*)", groups, re.MULTILINE))
    assert {group: set(re.findall(r"`(\w+)`", row)) for group, row in rows.items()} == {
        group: set(states) for group, states in GROUPS.items()
    }


def test_the_document_names_every_route_and_its_errors(served: Served) -> None:
    document = served.web.guard._app.openapi()  # type: ignore[attr-defined]  # the FastAPI application
    assert document["openapi"].startswith("3.1")
    assert {"Snapshot", "RunList", "QuestionView", "Error"} <= set(
        document["components"]["schemas"]
    )
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation.get("description"), f"{method} {path} says nothing of itself"
            assert "401" in operation["responses"]
