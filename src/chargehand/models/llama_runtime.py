"""The llama.cpp runtime inside this process: one model, one thread, one generation at a time."""

import asyncio
import os
import secrets
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from chargehand.errors import ModelRefused, UsageError
from chargehand.regular_file import refuse_special_file
from chargehand.sync_async_bridge import naming_shortage

Json = dict[str, Any]

#: said where the package that runs local models is missing
HOW_TO_INSTALL = "pip install 'chargehand[local]'"
MAGIC = b"GGUF"
#: tokens of a prompt taken in at once; between two batches a call can be given up
BATCH = 256

GUIDANCE = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "lenient": True,  # a keyword that it does not know is left out, and not the whole schema
}

_lock = threading.Lock()
_runtimes: "dict[tuple[int, Path, int, int], LlamaRuntime]" = {}


class LlamaRuntime:
    """A loaded model. Calls queue up, whatever loop or thread they come from.

    The model is loaded with the first call. A call that nobody waits for any more is stopped at
    its next token, or never started.
    """

    def __init__(self, path: Path, context: int, threads: int) -> None:
        self._path = path
        self._context = context
        self._threads = threads
        self._server: Any = None
        # One worker is the queue. Two generations at once would each be half as fast, and the
        # runtime's own slots would share the context between them.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"llama {path.stem}")

    async def chunks(self, body: Json) -> AsyncIterator[Json]:
        """What the runtime says to a chat request, piece by piece."""
        loop = asyncio.get_running_loop()
        arrived: asyncio.Queue[Json | BaseException | None] = asyncio.Queue()
        is_unwanted = threading.Event()

        def tell(what: Json | BaseException | None) -> None:
            try:
                loop.call_soon_threadsafe(arrived.put_nowait, what)
            except RuntimeError:  # the loop has been closed: nobody listens any more
                is_unwanted.set()

        with naming_shortage():
            self._executor.submit(self._generate, body, tell, is_unwanted)
        try:
            while (what := await arrived.get()) is not None:
                if isinstance(what, BaseException):
                    raise what
                yield what
        finally:
            is_unwanted.set()

    def _generate(self, body: Json, tell: Any, is_unwanted: threading.Event) -> None:
        """Run one generation, on the thread of this runtime."""

        def take(chunk: Json) -> bool:
            tell(chunk)
            return is_unwanted.is_set()

        try:
            if not is_unwanted.is_set():
                self._loaded().handle_chat_completions(_held(body), take)
            tell(None)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (it is raised where it is awaited)
            tell(error)

    def _loaded(self) -> Any:
        if self._server is None:
            self._server = self._load()
        return self._server

    def _load(self) -> Any:
        import xllamacpp  # type: ignore[import-untyped] # it has no stubs

        params = xllamacpp.CommonParams()
        params.model.path = str(self._path)
        params.n_ctx = self._context
        params.n_parallel = 1
        params.n_batch = params.n_ubatch = BATCH
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = self._threads
        params.warmup = False
        params.verbosity = 0
        params.fit_params = (
            False  # nothing is to be fitted into a graphics card; a third of the time
        )
        params.cache_ram_mib = 0  # prompts of other calls, up to 8 GB of them by default
        params.ui = False
        # The runtime also listens on a port of this machine. Nobody is told this key, so that
        # neither another user nor a page in a browser can use the model behind our back.
        params.api_keys = [secrets.token_hex(32)]
        try:
            return xllamacpp.Server(params)
        except (RuntimeError, ValueError, MemoryError) as error:
            raise ModelRefused(
                f"the model {self._path.name} cannot be loaded ({str(error)[:200]}); "
                "is the file whole, of a kind that llama.cpp knows, and is there memory enough?"
            ) from error


def _held(body: Json) -> Json:
    """The request with its schema as a grammar without indentation, where the runtime has those.

    Small models spend half of their tokens on indentation otherwise.
    """
    from xllamacpp import json_schema_to_grammar

    if "json_schema" not in body:
        return body
    rest = {key: value for key, value in body.items() if key != "json_schema"}
    try:
        return {
            **rest,
            "grammar": json_schema_to_grammar({**body["json_schema"], "x-guidance": GUIDANCE}),
        }
    except (RuntimeError, ValueError):
        return body


def runtime_of(path: Path, context: int, threads: int | None = None) -> LlamaRuntime:
    """The runtime of this model; those who ask for the same share it. Loads nothing yet."""
    _check_installed()
    check_weights(path)
    count = threads or max(1, (os.cpu_count() or 2) - 1)  # one core is left for the event loop
    key = (os.getpid(), path.resolve(), context, count)  # threads do not outlive a fork
    with _lock:
        if key not in _runtimes:
            _runtimes[key] = LlamaRuntime(path, context, count)
        return _runtimes[key]


def is_installed() -> bool:
    """Whether the package that runs local models is there."""
    return find_spec("xllamacpp") is not None


def _check_installed() -> None:
    if not is_installed():
        raise UsageError(f"local models need xllamacpp; {HOW_TO_INSTALL}")


def check_weights(path: Path) -> None:
    """Raise `UsageError` unless there is a file that begins as weights in GGUF do."""
    refuse_special_file(path)
    try:
        with path.open("rb") as file:
            start = file.read(len(MAGIC))
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); check the path") from None
    if start != MAGIC:
        raise UsageError(f"{path} holds no weights in GGUF; give the path of a .gguf file")
