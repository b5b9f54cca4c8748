"""Files that a person names are read whole, within a bound, and never waited for."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from chargehand.errors import UsageError
from chargehand.regular_file import read_regular_file


def test_a_regular_file_is_read_whole_also_through_a_link(tmp_path: Path) -> None:
    data = os.urandom(3 * 2**20 + 1)
    (tmp_path / "file").write_bytes(data)
    (tmp_path / "link").symlink_to("file")
    assert read_regular_file(tmp_path / "link") == data
    assert read_regular_file(tmp_path / "file", len(data)) == data
    (tmp_path / "empty").touch()
    assert read_regular_file(tmp_path / "empty") == b""


def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for path, kind in (
            (tmp_path / "pipe", "a pipe"),
            (tmp_path / "socket", "a socket"),
            (tmp_path, "a folder"),
            (Path("/dev/zero"), "a device"),
        ):
            with pytest.raises(UsageError, match=f"is {kind}, not a regular file; ask for another"):
                read_regular_file(path, way_out="ask for another")


def test_a_pipe_that_takes_the_place_of_a_file_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.touch()
    real = os.open

    def swapped(name: Path, flags: int) -> int:
        path.unlink()
        os.mkfifo(path)
        return real(name, flags)

    monkeypatch.setattr(os, "open", swapped)
    with pytest.raises(UsageError, match="is a pipe"):
        read_regular_file(path)


def test_more_than_the_bound_is_refused_also_where_the_size_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 2_001)
    for path in (tmp_path / "large", Path("/proc/self/smaps")):
        if path.exists():
            with pytest.raises(UsageError, match=r"is larger than 2\.0 kB; check the path"):
                read_regular_file(path, 2_000)


@pytest.mark.parametrize("name", ["a\0b", "\udc00\ud800"])
def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="is not the path of a file"):
        read_regular_file(tmp_path / name)


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.symlink_to("nowhere")])
def test_a_file_that_is_not_there_is_the_error_of_the_system(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "file")
    with pytest.raises(FileNotFoundError):
        read_regular_file(tmp_path / "file")
