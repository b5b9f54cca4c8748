"""Serves the files of the dashboard; without a build, a page that says how to build it."""

import html
import mimetypes
import re
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

STATIC = Path(__file__).parent.parent / "static"
#: file names with a digest, as Vite writes them: browsers may cache such files forever
_DIGESTED = re.compile(r"[.-][A-Za-z0-9_-]{8,}\.[a-z0-9]+$")
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
UNBUILT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>chargehand</title>
<meta name="viewport" content="width=device-width, initial-scale=1"></head>
<body><h1>chargehand is serving</h1>
<p>The dashboard is not built in this checkout. Build it with <code>make ui</code> (it needs node 20),
then reload this page. An installed wheel has it built in.</p>
<p>The API works without it: <code>{base}/api/v1</code>. See docs/http_api.md.</p></body></html>
"""


class StaticFiles:
    """Serves the built dashboard. A path that is not a file is a page of the dashboard."""

    def __init__(self, base: str, folder: Path = STATIC) -> None:
        self._base = base
        self._folder = folder

    def index(self) -> Response:
        """The HTML page for all paths of the dashboard."""
        page = self._folder / "index.html"
        headers = {"cache-control": "no-cache"}
        base = html.escape(self._base, quote=True)
        if not page.is_file():
            return Response(UNBUILT.format(base=base), 200, headers, media_type="text/html")
        text = page.read_text(encoding="utf-8")
        # With this base, relative addresses in the page work under any base path.
        text = re.sub(r"<base [^>]*>", "", text)
        text = text.replace("<head>", f'<head><base href="{base}/">', 1)
        return Response(text, 200, headers, media_type="text/html")

    async def serve(self, request: Request) -> Response:
        """Serve a file, or the HTML page for any other path."""
        path = request.path_params.get("path", "")
        if path == "api" or path.startswith("api/"):
            raise HTTPException(404, "there is no such route")
        file = self._file(path)
        if file is None:
            if Path(path).suffix and not path.endswith(".html"):
                return Response("not found", 404, media_type="text/plain")
            return self.index()
        kind = _TYPES.get(file.suffix) or mimetypes.guess_type(file.name)[0]
        is_kept = _DIGESTED.search(file.name) is not None
        age = "public, max-age=31536000, immutable" if is_kept else "no-cache"
        return Response(
            file.read_bytes(),
            200,
            {"cache-control": age},
            media_type=kind or "application/octet-stream",
        )

    def _file(self, path: str) -> Path | None:
        """The file at this path in the folder; None if there is none or it is outside the folder."""
        if not path or "\0" in path or path == "index.html":
            return None
        try:
            file = (self._folder / path).resolve()
            is_inside = file.is_relative_to(self._folder.resolve())
            return file if is_inside and file.is_file() else None
        except (OSError, ValueError):
            return None
