"""The border of the HTTP API: rows I8 to I18 of the fault list, over a real socket."""

import asyncio
import errno
import os
import resource
import socket
import stat
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
import pytest
from fastapi.routing import iter_route_contexts

import chargehand as ch
from chargehand.errors import JournalFull, UsageError
from chargehand.server.http import logged_out_sessions
from chargehand.server.http.access_tokens import SESSION, AccessTokens, Scope
from chargehand.server.http.app import api_app
from chargehand.server.http.authentication_guard import MOST_BODY, MOST_DEPTH, OPEN
from chargehand.server.http.logged_out_sessions import MOST_OVER
from chargehand.server.http.web_server import WebOptions, WebServer
from chargehand.server.listening_socket import listening
from tests.server.conftest import CREW, Reply, Served, serving, task

RUN, QUESTION = "r0000", "r0000:a:1-00"
PARAMETERS = {
    "{run}": RUN,
    "{question}": QUESTION,
    "{call}": "7",
    "{task:path}": "a",
    "{key:path}": "k",
    "{name}": "clerk",
}
#: what browsers send along for a page of another site
FOREIGN = (
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "same-origin", "Origin": "https://evil.example"},
)
PAYLOADS = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</title><svg onload=alert(1)>",
    "javascript:alert(1)",
    "\u202egnp.exe",
    "\x1b]0;owned\x07",
    "&lt;b&gt;",
)


def routes_of(served: Served) -> list[tuple[str, str]]:
    """Every method and path of the application, found from the application itself."""
    found: list[tuple[str, str]] = []
    for route in iter_route_contexts(api_app(served.web.api).routes):
        path = str(route.path)
        for name, value in PARAMETERS.items():
            path = path.replace(name, value)
        found.extend((method, path) for method in route.methods or ())
    return found


async def test_i9_every_route_refuses_without_a_credential(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        routes = routes_of(served)
        assert len([path for _, path in routes if "/api/" in path]) >= 40
        for method, path in routes:
            assert "{" not in path.replace("{path:path}", ""), f"say what stands for {path}"
            if (method, path) in OPEN or path == "/{path:path}":
                continue
            body = b"{}" if method in ("POST", "PUT") else None
            for wrong in ("", "wrong", served.token[:-1], f"{served.token}x"):
                reply = await served.call(method, path, token=wrong, data=body)
                assert reply.status in (401, 403), (method, path, reply)
            slash = await served.call(method, f"{path}/", token="", data=body)
            assert slash.status in (401, 403), (method, path, slash)
            for variant in (path.upper(), f"/{path}"):  # no route of the API, if anything
                reply = await served.call(method, variant, token="", data=body)
                is_page = b"<!doctype html>" in reply.body.lower() or method == "HEAD"
                assert reply.status in (401, 403, 404) or is_page, (method, variant, reply)
            for odd in ("HEAD", "OPTIONS", "TRACE", "DELETE", "PATCH", "PROPFIND"):
                reply = await served.call(odd, path, token="")
                assert reply.status in (401, 403), (odd, path, reply)


async def test_i9_websockets_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await served.session.ws_connect(f"{served.url}/api/v1/runs/{RUN}/events")
        assert refused.value.status in (400, 401, 403, 404, 426)


async def test_i10_a_token_that_was_rotated_or_revoked_is_refused_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        old = served.token
        login = await served.post("login", {"token": old}, token="")
        assert login.status == 204
        cookie = login.headers["set-cookie"].partition(";")[0]
        assert "HttpOnly" in login.headers["set-cookie"]
        assert "SameSite=Strict" in login.headers["set-cookie"]
        assert (await served.call("GET", "me", token="", headers={"Cookie": cookie})).status == 200
        new = (await served.post("tokens/rotate")).json["token"]
        assert (await served.call("GET", "me", token=old)).status == 401
        assert (await served.call("GET", "me", token="", headers={"Cookie": cookie})).status == 401
        assert (await served.call("GET", "me", token=new)).status == 200
        beside = AccessTokens(tmp_path / "tokens.json")
        _, guest = beside.add("guest", Scope.READ)
        assert (await served.call("GET", "me", token=guest)).status == 200
        beside.revoke("guest")
        assert (await served.call("GET", "me", token=guest)).status == 401
        login = await served.post("login", {"token": new}, token="")
        cookie = login.headers["set-cookie"].partition(";")[0]
        same = {"Cookie": cookie, "Sec-Fetch-Site": "same-origin"}
        assert (await served.post("logout", token="", headers=same)).status == 204
        assert (await served.call("GET", "me", token="", headers={"Cookie": cookie})).status == 401
        forged = cookie.replace("owner", "admin")
        assert (await served.call("GET", "me", token="", headers={"Cookie": forged})).status == 401


async def logged_in(served: Served) -> dict[str, str]:
    """The headers of a browser that has exchanged the owner's token for a cookie."""
    login = await served.post("login", {"token": served.token}, token="")
    cookie = login.headers["set-cookie"].partition(";")[0]
    return {"Cookie": cookie, "Sec-Fetch-Site": "same-origin"}


async def test_i10_a_session_that_was_logged_out_stays_so_after_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        port = int(served.web.api.rules.cookie.rpartition("-")[2])
        ended, kept = await logged_in(served), await logged_in(served)
        assert (await served.post("logout", token="", headers=ended)).status == 204
    async with serving(tmp_path, port=port) as served:
        assert (await served.call("GET", "me", token="", headers=ended)).status == 401
        assert (await served.call("GET", "me", token="", headers=kept)).status == 200
    file = tmp_path / "tokens.logouts"
    assert file.stat().st_mode & 0o077 == 0
    assert ended["Cookie"].rpartition(".")[2] not in file.read_text()  # the signature


def test_i10_logouts_of_two_servers_are_kept_until_their_sessions_end(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    first, second = AccessTokens(path), AccessTokens(path)
    owner = first.owner()
    early = [first.open_session(owner, now=0) for _ in range(MOST_OVER + 1)]
    for number, cookie in enumerate(early):
        (first, second)[number % 2].end_session(cookie, now=1)
    assert all(
        each.find_session(cookie, now=2) is None for cookie in early for each in (first, second)
    )
    later = SESSION * 2
    sessions = [first.open_session(owner, now=later) for _ in range(3)]
    first.end_session(sessions[0], now=later)
    assert (
        len((tmp_path / "tokens.logouts").read_text().splitlines()) == 1
    )  # the old ones are dropped
    with (tmp_path / "tokens.logouts").open("a") as file:
        file.write("99")  # cut off when the disk was full
    second.end_session(sessions[1], now=later)
    third = AccessTokens(path)
    found = [third.find_session(each, now=later) is None for each in sessions]
    assert found == [True, True, False]


def test_i10_without_a_file_no_session_outlives_the_server() -> None:
    """Its logouts are forgotten, so they must not be needed."""
    token = "a-token-of-some-length"
    first, second = AccessTokens(None, token), AccessTokens(None, token)
    cookie = first.open_session(first.grants[0])
    assert first.find_session(cookie) is not None
    assert second.find_session(cookie) is None
    first.end_session(cookie)
    assert first.find_session(cookie) is None


async def test_i10_a_full_disk_keeps_tokens_as_they_are_and_a_logout_holds_until_the_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: Any, **more: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with serving(tmp_path) as served:
        ended = await logged_in(served)
        monkeypatch.setattr(logged_out_sessions, "_write", refuse)
        monkeypatch.setattr("tempfile.mkstemp", refuse)
        reply = await served.post("logout", token="", headers=ended)
        assert (reply.status, reply.kind) == (507, "JournalFull"), reply
        assert "Max-Age=0" in reply.headers["set-cookie"]
        assert (await served.call("GET", "me", token="", headers=ended)).status == 401
        reply = await served.post("tokens/rotate")
        assert (reply.status, reply.kind) == (507, "JournalFull"), reply
        assert (await served.call("GET", "me")).status == 200
        with pytest.raises(JournalFull, match="disk is full"):
            AccessTokens(tmp_path / "tokens.json").add("late", Scope.READ)


@pytest.mark.parametrize("how", ["revoked", "logged out"])
async def test_i10_a_stream_ends_when_its_token_is_revoked(tmp_path: Path, how: str) -> None:
    """Nothing that happens afterwards is sent."""
    async with serving(tmp_path) as served:
        run = await served.submit(task("a", "asker"))
        await served.until(run, "waiting")
        beside = AccessTokens(tmp_path / "tokens.json")
        _, guest = beside.add("guest", Scope.READ)
        cookie = await logged_in(served)
        sent = {"Authorization": f"Bearer {guest}"} if how == "revoked" else cookie
        address = f"{served.url}/api/v1/runs/{run}/events"
        async with served.session.get(address, headers=sent) as stream, asyncio.timeout(20):
            seen = b""
            while b"NeedsInput" not in seen and b"Which colour?" not in seen:
                seen += await stream.content.readany()
            if how == "revoked":
                beside.revoke("guest")
            else:
                assert (await served.post("logout", token="", headers=cookie)).status == 204
            (question,) = (await served.get(f"runs/{run}/questions"))["questions"]
            await served.post(f"questions/{question['id']}/answer", {"text": "blue"})
            rest = await stream.read()
        assert rest == b"event: bye\ndata: {}\n\n"


async def test_i10_no_scope_reaches_beyond_itself(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        tokens = served.web.tokens
        reader, operator = tokens.add("reader", Scope.READ)[1], tokens.add("op", Scope.OPERATE)[1]
        for method, path in routes_of(served):
            if method in ("POST", "PUT") and (method, path) not in OPEN:
                reply = await served.call(method, path, {}, token=reader)
                is_harmless = path.endswith(("/logout", "/plan/check"))
                assert is_harmless or reply.status == 403, (path, reply)
        for path in ("tokens/rotate", "workers/clerk/drain", "workers/clerk/join"):
            assert (await served.post(path, token=operator)).status == 403
        other = tokens.add("other", Scope.ADMIN, "team-b")[1]
        for path in ("workers/clerk/drain", "workers/clerk/join"):
            refused = await served.post(path, token=other)
            assert (refused.status, refused.kind) == (403, "NamespaceShared")
        assert (await served.get("workers"))["workers"][0]["state"] == "idle"
        assert (await served.get("me", token=operator))["scopes"] == ["read", "operate"]


async def test_i10_tokens_are_kept_where_only_their_owner_reads(tmp_path: Path) -> None:
    tokens = AccessTokens(tmp_path / "tokens.json")
    tokens.owner()
    _, guest = tokens.add("guest", Scope.READ)
    assert stat.S_IMODE((tmp_path / "tokens.json").stat().st_mode) == 0o600
    assert guest not in (tmp_path / "tokens.json").read_text()
    (tmp_path / "tokens.json").chmod(0o644)
    os.utime(tmp_path / "tokens.json", (1, 1))
    with pytest.raises(UsageError, match="chmod 600"):
        AccessTokens(tmp_path / "tokens.json").owner()


async def test_i11_pages_of_other_sites_change_and_read_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        login = await served.post("login", {"token": served.token}, token="")
        cookie = {"Cookie": login.headers["set-cookie"].partition(";")[0]}
        plan = {"plan": {"goal": "x", "tasks": [task("a")]}}
        for foreign in FOREIGN:
            for more in (cookie, {}):
                token = "" if more else None
                sent = {**more, **foreign}
                assert (await served.post("runs", plan, token=token, headers=sent)).status == 403
            assert (
                await served.call("GET", "runs", token="", headers={**cookie, **foreign})
            ).status == 403
        same = {**cookie, "Sec-Fetch-Site": "same-origin"}
        assert (await served.post("runs", plan, token="", headers=cookie)).status == 403
        assert (await served.post("runs", plan, headers={"X-Chargehand": "-"})).status == 403
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "-"):
            reply = await served.post(
                "runs", plan, token="", headers={**same, "Content-Type": kind}
            )
            assert reply.status == 415, kind
        preflight = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
        reply = await served.call("OPTIONS", "runs", token="", headers=preflight)
        assert reply.status == 403
        assert not [name for name in reply.headers if name.startswith("access-control")]
        assert (await served.get("runs"))["runs"] == []
        assert (await served.post("runs", plan, token="", headers=same)).status == 202


async def test_i11_behind_tls_the_cookie_is_bound_to_the_host(tmp_path: Path) -> None:
    async with serving(tmp_path, is_secure=True) as served:
        login = await served.post("login", {"token": served.token}, token="")
        cookie = login.headers["set-cookie"]
        assert cookie.startswith("__Host-")
        assert "; Secure" in cookie
        assert "; Path=/;" in cookie
        assert "strict-transport-security" in login.headers


@pytest.mark.parametrize("base", ["", "/ops/chargehand"])
async def test_i12_only_known_hosts_are_answered(tmp_path: Path, base: str) -> None:
    async with serving(tmp_path, hosts=("ops.example",), base=base) as served:
        port = served.url.rpartition(":")[2].partition("/")[0]
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "localhost.evil.example",
                     "0.0.0.0", "169.254.169.254", "[::]", "a@127.0.0.1", "127.0.0.1:x", ""):  # fmt: skip
            for path in (f"{base}/api/v1/me", f"{base}/", f"{base}/api/v1/health"):
                reply = await raw(
                    served,
                    f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {served.token}\r\n",
                )
                assert reply[:12] in (b"HTTP/1.1 403", b"HTTP/1.1 400"), (host, path, reply)
        for host in (
            f"localhost:{port}",
            "LOCALHOST",
            f"127.0.0.1:{port}",
            "[::1]",
            "ops.example",
            "ops.example.",
        ):
            reply = await raw(served, f"GET {base}/api/v1/health HTTP/1.1\r\nHost: {host}\r\n")
            assert reply.startswith(b"HTTP/1.1 200"), (host, reply)
        if base:
            page = await raw(served, f"GET {base}?a=b HTTP/1.1\r\nHost: localhost\r\n")
            assert page.startswith(b"HTTP/1.1 308")
            assert f"location: {base}/?a=b\r\n".encode() in page


async def raw(
    served: Served, head: str, body: bytes = b"", *, wait: float = 5, closes: bool = True
) -> bytes:
    """What a server answers to these bytes until it hangs up; `closes` asks it to."""
    port = served.web.api.rules.cookie.rpartition("-")[2]
    reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
    try:
        close = "Connection: close\r\n" if closes else ""
        writer.write(f"{head}{close}\r\n".encode() + body)
        async with asyncio.timeout(wait):
            return await reader.read()
    finally:
        writer.close()


async def test_i13_hostile_words_come_back_as_json_text(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        tasks = [
            task(f"t{n}", "failing", description=f"Do {words}", args={"x": words})
            for n, words in enumerate(PAYLOADS)
        ]
        run = await served.submit(*tasks)
        await served.until(run, "failed", "partial")
        for path in (
            "",
            f"/{run}/snapshot",
            f"/{run}/log",
            f"/{run}/result",
            f"/{run}/tasks/t0",
            f"/{run}/trace",
        ):
            reply = await served.call("GET", f"runs{path}")
            assert reply.headers["content-type"] == "application/json"
            assert reply.headers["x-content-type-options"] == "nosniff"
            assert "script-src 'self';" in reply.headers["content-security-policy"]
            assert reply.headers["cache-control"] == "no-store"
        described = [
            each["description"] for each in (await served.get(f"runs/{run}/snapshot"))["tasks"]
        ]
        assert described == [f"Do {words}" for words in PAYLOADS]
        for words in PAYLOADS:
            reply = await served.call("GET", f"runs/{quote(words, safe='')}/snapshot")
            assert reply.status == 404
            assert reply.headers["content-type"] == "application/json"


async def test_i15_one_namespace_sees_nothing_of_another(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        mine = served.web.tokens.add("mine", Scope.ADMIN, "team-a")[1]
        theirs = served.web.tokens.add("theirs", Scope.ADMIN, "team-b")[1]
        plan = {"plan": {"goal": "Secret goal", "tasks": [task("a", "asker")]}, "key": "same"}
        secret = (await served.post("runs", plan, token=mine)).json["id"]
        await served_until(served, secret, mine)
        question = (await served.get("questions", token=mine))["questions"][0]["id"]
        for token in (theirs, served.token):
            assert (await served.get("runs", token=token))["runs"] == []
            assert (await served.get("questions", token=token))["questions"] == []
            assert (await served.get("attention", token=token))["questions"] == 0
            assert b"Secret" not in (await served.call("GET", "workers", token=token)).body
            for method, path in routes_of(served):
                if RUN not in path and QUESTION not in path:
                    continue
                own = path.replace(QUESTION, question).replace(RUN, secret)
                other = path.replace(QUESTION, "r9999:a:1-00").replace(RUN, "r9999")
                body: Any = (
                    {"text": "red"}
                    if "answer" in path
                    else {"note": "x"}
                    if "steer" in path
                    else {"value": 1}
                    if "board" in path
                    else {"plan": {}}
                    if method == "PUT"
                    else {}
                )
                sent = None if method in ("GET", "HEAD") else body
                there = await served.call(method, own, sent, token=token)
                absent = await served.call(method, other, sent, token=token)
                assert (there.status, absent.status) == (404, 404), (method, own, there, absent)
                shown = there.body.decode().replace(question, "").replace(secret, "")
                assert shown == absent.body.decode().replace("r9999:a:1-00", "").replace(
                    "r9999", ""
                ), own
            both = await served.call("GET", f"compare?a={secret}&b={secret}", token=token)
            assert both.status == 404
            after = {"request": "Go on", "after": secret}
            assert (await served.post("runs", after, token=token)).status == 404
        twin = (await served.post("runs", plan, token=theirs)).json["id"]
        assert twin != secret
        assert [each["id"] for each in (await served.get("runs", token=theirs))["runs"]] == [twin]
        assert (await served.get(f"runs/{secret}/snapshot", token=mine))["run"][
            "state"
        ] == "waiting"


async def served_until(served: Served, run: str, token: str) -> None:
    while (await served.get(f"runs/{run}/snapshot", token=token))["run"]["state"] != "waiting":
        await served.boss.journal.mail.wait_changed()


async def test_i8_huge_deep_and_compressed_bodies_are_refused_before_they_are_parsed(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as served:
        await served.get("me")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        lie = f"POST /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {served.token}\r\nX-Chargehand: 1\r\nContent-Type: application/json\r\n"
        assert (await raw(served, f"{lie}Content-Length: 999999999999\r\n")).startswith(
            b"HTTP/1.1 413"
        )
        assert (await raw(served, f"{lie}Content-Length: -1\r\n")).startswith(b"HTTP/1.1 400")

        async def endless() -> Any:
            for _ in range(MOST_BODY // 65_536 + 64):
                yield b" " * 65_536

        sent = {
            "Authorization": f"Bearer {served.token}",
            "X-Chargehand": "1",
            "Content-Type": "application/json",
        }
        async with served.session.post(
            f"{served.url}/api/v1/runs", data=endless(), headers=sent
        ) as reply:
            assert reply.status == 413
        deep = b'{"plan":' + b"[" * (MOST_DEPTH + 1) + b"]" * (MOST_DEPTH + 1) + b"}"
        assert (await served.call("POST", "runs", data=deep)).status == 413
        assert (await served.call("POST", "runs", data=b"[" * 100_000)).status == 413
        wide = b'{"plan":{"goal":[' + b"1," * 300_000 + b"1]}}"
        assert (await served.call("POST", "runs", data=wide)).status == 413
        packed = await served.call(
            "POST", "runs", data=b"\x1f\x8b", headers={"Content-Encoding": "gzip"}
        )
        assert packed.status == 415
        login = await served.call(
            "POST", "login", data=b'{"token":"' + b"x" * 10_000 + b'"}', token=""
        )
        assert login.status == 413
        for broken in (
            b"{",
            b"\xff",
            b'{"request": 3}',
            b'{"request":"x","crew":"os:system"}',
            b"[]",
            b"null",
            b'{"priority":1e999}',
        ):
            refused = await served.call("POST", "runs", data=broken)
            assert 400 <= refused.status < 500, (broken, refused)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024


HALF = MOST_BODY // 2


WORST = {
    b'"' + b'\\"' * (HALF - 1): "NotJson",
    b'"' * MOST_BODY: "TooManyValues",
    b'"\\' * HALF: "NotJson",
    b"\\" * MOST_BODY: "NotJson",
    b"]" * MOST_BODY: "NotJson",
    b"[" + b'"",' * 1_398_100: "TooManyValues",
    b'{"plan":"' + b"\\u0041" * 699_000: "NotJson",
    b'{"reason":"' + b"x" * (MOST_BODY - 30) + b'","plan":{}}': "",
    b'{"reason":"' + b"one line\\n" * 400_000 + b'","plan":{}}': "",
}


async def test_i8_no_body_keeps_the_server_from_others(tmp_path: Path) -> None:
    """Each has four megabytes, and is the worst for one way to look at it."""
    async with serving(tmp_path) as served:
        for body, kind in WORST.items():
            assert MOST_BODY * 0.9 < len(body) <= MOST_BODY
            begun = time.process_time()
            reply = await served.call("POST", "plan/check", data=body)
            used = time.process_time() - begun
            assert (reply.kind if reply.status != 200 else "") == kind, (body[:20], reply.body)
            assert used < 0.5, body[:20]  # also for sending it; a quadratic scan takes hours


async def test_a_lone_surrogate_is_named(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for body, half in (
            (rb'{"plan":{"goal":"\ud800"}}', r"\ud800 at byte 17"),
            (rb'{"plan":{"goal":"\ud83d\ude00\\\uDC01"}}', r"\uDC01 at byte 31"),
            (rb'{"plan":{"\ud800\u0041":1}}', r"\ud800 at byte 10"),
        ):
            reply = await served.call("POST", "plan/check", data=body)
            assert (reply.status, reply.kind) == (400, "NotJson")
            words = f"the body: {half} is half a character (a lone surrogate)"
            assert reply.json["error"]["message"].startswith(words)
        whole = rb'{"plan":{"goal":"\ud83d\ude00"}}'
        assert (await served.call("POST", "plan/check", data=whole)).status == 200
        cut = await served.call("POST", "plan/check", data=rb'{"plan":{"goal":"\\ud800')
        assert cut.json["error"]["message"] == "the body: Input data was truncated"


async def test_i8_a_body_that_dribbles_in_is_given_up(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        rules = msgspec.structs.replace(served.web.api.rules, body_time=0.2)
        served.web.guard._rules = rules
        head = f"POST /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {served.token}\r\nX-Chargehand: 1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"
        assert (await raw(served, head, b"{")).startswith(b"HTTP/1.1 408")
        assert (await served.call("GET", "me")).status == 200


async def test_i8_a_body_with_two_lengths_is_refused_and_the_connection_closed(
    tmp_path: Path,
) -> None:
    """What follows may be the end of a body to a proxy, and a request to us."""
    async with serving(tmp_path) as served:
        own = f"Host: localhost\r\nAuthorization: Bearer {served.token}\r\nX-Chargehand: 1\r\nContent-Type: application/json\r\n"
        head = f"POST /api/v1/runs HTTP/1.1\r\n{own}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"
        smuggled = f"GET /api/v1/me HTTP/1.1\r\n{own}\r\n".encode()
        reply = await raw(served, head, b"0\r\n\r\n" + smuggled, closes=False)
        assert reply.startswith(b"HTTP/1.1 400"), reply
        assert b"TwoLengths" in reply
        assert reply.count(b"HTTP/1.1 ") == 1


async def closed_for_silence(served: Served, *sent: bytes) -> None:
    """Send this, each part once the one before was answered, and wait until the server hangs up."""
    port = int(served.web.api.rules.cookie.rpartition("-")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    *whole, begun = sent
    for request in whole:
        writer.write(request)
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
    writer.write(begun)
    async with asyncio.timeout(4):  # less than the time after which uvicorn hangs up by itself
        while await reader.read(65536):
            pass
    writer.close()


async def test_i8_a_head_that_does_not_come_is_given_up(tmp_path: Path) -> None:
    """Only the connection that owes a request is closed, not one with an open stream."""
    health = b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with serving(tmp_path, head_time=0.2) as served:
        run = await served.submit(task("a", "asker"))
        await served.until(run, "waiting")
        address = f"{served.url}/api/v1/runs/{run}/events"
        credential = {"Authorization": f"Bearer {served.token}"}
        async with served.session.get(address, headers=credential) as stream:
            await closed_for_silence(served, b"")
            await closed_for_silence(served, b"GET /api/v1/me HTTP/1.1\r\nHost: loc")
            await closed_for_silence(served, health, b"GET /api")
            (question,) = (await served.get(f"runs/{run}/questions"))["questions"]
            await served.post(f"questions/{question['id']}/answer", {"text": "red"})
            assert b"event: end" in await stream.read()


async def test_i8_connections_that_cannot_be_accepted_are_said_once_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    full = OSError(errno.EMFILE, "Too many open files")
    async with serving(tmp_path) as served:
        await served.get("me")
        loop = asyncio.get_running_loop()
        for _ in range(2_000):
            told = {"message": "socket.accept() out of system resource", "exception": full}
            loop.call_exception_handler(told)
        lines = [each.getMessage() for each in caplog.records if "accept" in each.getMessage()]
        assert len(lines) == 1
        assert "Too many open files" in lines[0]
        loop.call_exception_handler({"message": "another", "exception": ValueError("broken")})
        assert caplog.records[-1].getMessage().startswith("another")
        assert (await served.call("GET", "me")).status == 200
    assert loop.get_exception_handler() is None


def test_i18_a_certificate_that_cannot_be_served_is_refused_at_the_start(tmp_path: Path) -> None:
    """Before it, the address was printed and nothing listened there."""
    boss = ch.Supervisor(list(CREW), journal=tmp_path / "runs.db")
    wrong, missing = tmp_path / "wrong.pem", tmp_path / "missing.pem"
    wrong.write_text("no certificate")
    for certificate, key, words in (
        (str(missing), str(missing), "--tls-cert .*missing.pem cannot be read"),
        (str(wrong), str(missing), "--tls-key .*missing.pem cannot be read"),
        (str(wrong), "", "--tls-cert .*wrong.pem needs --tls-key"),
        ("", str(wrong), "--tls-key .*wrong.pem needs --tls-cert"),
        (str(wrong), str(wrong), "wrong.pem are not a certificate and its key"),
    ):
        options = WebOptions(
            port=0, token_file=str(tmp_path / "tokens.json"), certificate=certificate, key=key
        )
        with pytest.raises(UsageError, match=words):
            WebServer(boss, options)


def test_i18_a_public_address_without_a_token_is_refused(tmp_path: Path) -> None:
    boss = ch.Supervisor(list(CREW), journal=tmp_path / "runs.db")
    file = str(tmp_path / "tokens.json")
    with pytest.raises(UsageError, match="other machines"):
        WebServer(boss, WebOptions(host="0.0.0.0", port=0, token_file=file))
    with pytest.raises(UsageError, match="at least 16"):
        WebServer(boss, WebOptions(host="127.0.0.1", port=0, token_file=file, token="short"))
    AccessTokens(tmp_path / "tokens.json").add("ops", Scope.OPERATE)
    web = WebServer(boss, WebOptions(host="0.0.0.0", port=0, token_file=file))
    assert web.owner is None
    web.close()


async def test_read_only_changes_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, is_read_only=True) as served:
        reply: Reply = await served.post("runs", {"plan": {"goal": "x", "tasks": [task("a")]}})
        assert (reply.status, reply.kind) == (403, "ReadOnly")
        me = await served.get("me")
        assert (me["read_only"], me["can_submit"]) == (True, False)


async def test_files_outside_the_dashboard_are_not_served(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for path in (
            "/../tokens.json",
            "/..%2f..%2fetc/passwd",
            "/%2e%2e/%2e%2e/pyproject.toml",
            "//etc/passwd",
            "/etc/passwd%00.js",
        ):
            head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n"
            reply = await raw(served, head)
            assert b"root:" not in reply
            assert served.token.encode() not in reply


def test_a_reply_in_two_parts_does_not_wait_for_an_acknowledgement() -> None:
    """Without `TCP_NODELAY`, each reply on a kept connection takes 40 ms longer."""
    with listening("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), listener.accept()[0] as connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
