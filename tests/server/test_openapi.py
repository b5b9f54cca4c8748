"""The OpenAPI document, and requests drawn from it: none of them is answered with a 500.

Fifty examples of every operation are sent with CHARGEHAND_SCHEMATHESIS=all; `make test` sends a few of each.
"""

import asyncio
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.server.conftest import Served, serving, task

EXAMPLES = 50 if os.environ.get("CHARGEHAND_SCHEMATHESIS") == "all" else 4


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server in a thread, with a finished run in it."""
    ready, over = threading.Event(), threading.Event()
    found: list[Served] = []

    async def serve() -> None:
        async with serving(tmp_path_factory.mktemp("openapi")) as each:
            await each.until(await each.submit(task("a"), key="known"), "succeeded")
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


def operations(served: Served) -> list[Any]:
    document = served.web.guard._app.openapi()  # type: ignore[attr-defined]  # the FastAPI application
    schema: Any = schemathesis.openapi.from_dict(document)
    return [each.ok() for each in schema.get_all_operations()]


def test_no_request_that_fits_the_document_breaks_the_server(served: Served) -> None:
    headers = {"Authorization": f"Bearer {served.token}", "X-Chargehand": "1"}
    tried = 0
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
            reply = case.call(base_url=served.url, headers=headers)
            assert reply.status_code < 500, (case.method, case.path, reply.text)
            assert reply.status_code != 401 or case.path.endswith("/login"), case.path

        send()
    assert tried > 30 * EXAMPLES / 4


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
