"""Behind a reverse proxy with TLS and a base path, with a certificate of its own, and as a service."""

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from chargehand.client import Client
from chargehand.errors import ServerUnreachable
from tests.server.conftest import Served, serving
from tests.server.test_client import plan_of

ROOT = Path(__file__).parents[2]
BASE = "/ops/chargehand"


def certificate(place: Path) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out cert.pem -days 1 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    subprocess.run(command.split(), cwd=place, check=True, capture_output=True)
    return place / "cert.pem", place / "key.pem"


@asynccontextmanager
async def tls_proxy(served: Served, place: Path) -> AsyncIterator[str]:
    """A proxy that speaks TLS with clients and plain HTTP with the server; it passes the Host header on."""
    cert, key = certificate(place)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    port = int(served.web.api.rules.cookie.rpartition("-")[2])

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            target.write(data)
            await target.drain()
        target.close()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, forth), pump(back, writer), return_exceptions=True)

    proxy = await asyncio.start_server(forward, "127.0.0.1", 0, ssl=context)
    async with proxy:
        yield f"https://localhost:{proxy.sockets[0].getsockname()[1]}{BASE}"


async def test_a_proxy_with_tls_and_a_base_path(tmp_path: Path) -> None:
    async with serving(tmp_path, base=BASE, is_secure=True) as served:
        async with tls_proxy(served, tmp_path) as address:
            async with Client(address, token=served.token, ca_file=tmp_path / "cert.pem") as client:
                result = await client.run(plan_of("clerk"))
                assert result.answer == "did t0"
            async with Client(address, token=served.token) as trusting:
                with pytest.raises(ServerUnreachable):
                    await trusting.runs()
        served.url = served.url.removesuffix(BASE)
        page = await served.call("GET", f"{BASE}/runs/x", token="")
        assert page.status == 200
        for path in (f"{BASE}/api/v1/me", "/api/v1/me"):  # as it is, or stripped by the proxy
            assert (await served.call("GET", path)).status == 200
            assert (await served.call("GET", path, token="")).status == 401
        assert (await served.call("GET", f"{BASE}/api/v1/nothing")).status == 404


async def test_a_server_with_a_certificate_of_its_own(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    async with serving(tmp_path, certificate=str(cert), key=str(key)) as served:
        port = served.url.rpartition(":")[2]
        async with Client(f"https://localhost:{port}", token=served.token, ca_file=cert) as client:
            assert (await client.run(plan_of("clerk"))).status == "succeeded"


def test_the_systemd_unit_is_sound(tmp_path: Path) -> None:
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("needs systemd-analyze")
    unit = (ROOT / "deploy" / "chargehand.service").read_text()
    # The program and its user exist on the machine that it is installed on, not here.
    unit = unit.replace("/opt/chargehand/bin/chargehand", "/bin/true").replace(
        "User=chargehand", "User=root"
    )
    (tmp_path / "chargehand.service").write_text(unit)
    told = subprocess.run(
        [verify, "verify", str(tmp_path / "chargehand.service")], capture_output=True, text=True
    )
    about_it = [line for line in told.stderr.splitlines() if "chargehand.service" in line]
    assert (told.returncode, about_it) == (0, []), told.stderr
