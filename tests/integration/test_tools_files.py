"""The file tools: what they read, how they find, and that nothing gets them out of their folder."""

import asyncio
import contextlib
import io
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from chargehand.errors import ToolError, UsageError
from chargehand.tools import document_text as documents
from chargehand.tools import passage_index as passages
from chargehand.tools import safe_open as beneath
from chargehand.tools.base import Tool, ToolContext
from chargehand.tools.files import files
from chargehand.tools.safe_open import Root
from chargehand.tools.sql_tables import data

SCALE = float(os.environ.get("CHAOS_SCALE", "1"))
SECRET = "the secret outside"


async def call(called: Tool, **arguments: Any) -> Any:
    return (await called.call(ToolContext(), json.dumps(arguments))).value


async def refused(called: Tool, **arguments: Any) -> ToolError:
    with pytest.raises(ToolError) as caught:
        await call(called, **arguments)
    return caught.value


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file, a folder in it, and a secret beside it."""
    inside = tmp_path / "inside"
    (inside / "deep").mkdir(parents=True)
    (inside / "a.txt").write_text("inside")
    (inside / "deep" / "b.txt").write_text("deep inside")
    (inside / ".env").write_text("KEY=1")
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "b.txt").write_text(SECRET)
    return inside


@pytest.fixture
def odd(folder: Path) -> Path:
    """The folder, with a file and a folder in it whose names are not UTF-8."""
    try:
        (folder / os.fsdecode(b"deep/\xff.txt")).write_text("oddly named")
        (folder / os.fsdecode(b"\xfe")).mkdir()
    except (OSError, UnicodeError):
        pytest.skip("this file system has no such names")
    (folder / os.fsdecode(b"\xfe/c.csv")).write_text("a,b\n1,2\n")
    return folder


@pytest.fixture(params=["kernel", "steps", "checked"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each of the three ways to open, whatever this system would choose."""
    if request.param == "kernel" and not sys.platform.startswith("linux"):
        pytest.skip("needs Linux")
    if request.param != "kernel":
        monkeypatch.setattr(beneath, "_open_beneath", lambda folder, path: None)
    if request.param == "checked":
        monkeypatch.setattr(os, "supports_dir_fd", set())
    return str(request.param)


# I5


def traversals(folder: Path) -> list[str]:
    secret = folder.parent / "secret.txt"
    return [
        "../secret.txt",
        "deep/../../secret.txt",
        "./../secret.txt",
        "deep/./../../secret.txt",
        "..",
        "../",
        "....//secret.txt",
        "..././secret.txt",
        "..\\secret.txt",
        "deep\\..\\..\\secret.txt",
        str(secret),
        f"/{secret}",
        f"file://{secret}",
        "//etc/passwd",
        "/etc/passwd",
        "/proc/self/environ",
        "/proc/self/root/etc/passwd",
        "/dev/stdin",
        "~/secret.txt",
        "~root/.profile",
        "C:\\secret.txt",
        "C:/secret.txt",
        "\\\\server\\share",
        "a.txt\0.md",
        "../secret.txt\0a.txt",
        "\0",
        "%2e%2e/secret.txt",
        "%2e%2e%2fsecret.txt",
        "..%2fsecret.txt",
        "..%c0%afsecret.txt",
        "%252e%252e%252fsecret.txt",
        "．．/secret.txt",
        "‥/secret.txt",
        "..∕secret.txt",
        "..⁄secret.txt",
        "․․/secret.txt",
        "..\u202e/secret.txt",
        "\ufeff../secret.txt",
        "..\u200b/secret.txt",
        "a.txt\n../secret.txt",
        "../" * 300 + "etc/passwd",
        "a/" * 5_000,
        "x" * 100_000,
        "é" * 300,
        "link.txt",
        "link_absolute.txt",
        "link_to_folder/b.txt",
        "link_up/secret.txt",
        "chain/secret.txt",
        "loop",
        "loop/x",
        "proc/environ",
        "pipe",
        "deep",
        ".env",
        "deep/.hidden",
        "",
        ".",
        "/",
        " ",
        "a.txt/",
        "a.txt/b",
    ]


def plant_links(folder: Path) -> None:
    (folder / "link.txt").symlink_to("../secret.txt")
    (folder / "link_absolute.txt").symlink_to(folder.parent / "secret.txt")
    (folder / "link_to_folder").symlink_to("../outside")
    (folder / "link_up").symlink_to("..")
    (folder / "chain").symlink_to("link_up")
    (folder / "loop").symlink_to("loop")
    (folder / "proc").symlink_to("/proc/self")
    os.mkfifo(folder / "pipe")


async def test_i5_no_path_leads_out_of_the_folder(folder: Path, way: str) -> None:
    plant_links(folder)
    _, read_file, _ = files(folder)
    for path in traversals(folder):
        if path != "a.txt/":  # an end that no file has, but which leads nowhere else
            assert SECRET not in str(await refused(read_file, path=path))


async def test_i5_files_inside_can_be_read_in_every_way(folder: Path, way: str) -> None:
    _, read_file, _ = files(folder)
    for path in ("a.txt", "./a.txt", "deep/b.txt", "deep//b.txt"):
        assert "inside" in await call(read_file, path=path)


async def test_i5_a_refusal_is_denied_and_says_so(folder: Path) -> None:
    plant_links(folder)
    _, read_file, _ = files(folder)
    for path in ("../secret.txt", "/etc/passwd", "link.txt", "link_to_folder/b.txt", ".env"):
        assert (await refused(read_file, path=path)).kind == "denied", path


async def test_i5_links_are_neither_listed_nor_searched(folder: Path) -> None:
    plant_links(folder)
    list_files, _, search_files = files(folder)
    listed = {file["path"] for file in (await call(list_files))["files"]}
    assert listed == {"a.txt", "deep/b.txt"}
    found = await call(search_files, query="secret outside")
    assert found == {"passages": []}


async def test_i5_a_link_that_stays_inside_is_followed(folder: Path) -> None:
    (folder / "same.txt").symlink_to("deep/b.txt")
    _, read_file, _ = files(folder)
    assert await call(read_file, path="same.txt") == "deep inside"


def swap(path: Path, target: str, is_over: threading.Event) -> None:
    """Turn a file or folder into a link that leads out, and back, as fast as can be."""
    real, link = path.with_name(f"{path.name}.real"), path.with_name(f"{path.name}.link")
    link.symlink_to(target)
    while not is_over.is_set():
        path.rename(real)
        link.rename(path)
        path.rename(link)
        real.rename(path)


@pytest.mark.parametrize("opened", ["kernel", "steps"])
@pytest.mark.parametrize("swapped", ["deep", "deep/b.txt"], ids=["folder", "file"])
def test_i5_no_read_escapes_while_links_are_swapped(
    folder: Path, opened: str, swapped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if opened == "steps":
        monkeypatch.setattr(beneath, "_open_beneath", lambda folder, path: None)
    root, is_over = Root(folder), threading.Event()
    target = "../outside" if swapped == "deep" else "../../outside/b.txt"
    swapper = threading.Thread(target=swap, args=(folder / swapped, target, is_over))
    seen = {"read": 0, "refused": 0}
    swapper.start()
    try:
        for _ in range(int(3_000 * SCALE)):
            try:
                with root.open("deep/b.txt") as file:
                    assert file.read() == b"deep inside"
                    seen["read"] += 1
            except ToolError:
                seen["refused"] += 1
            for _path, _ in root.files() if seen["read"] % 50 == 0 else ():
                pass
    finally:
        is_over.set()
        swapper.join()
    assert all(seen.values()), f"one side never won: {seen}"


def handles() -> int:
    place = Path("/proc/self/fd")
    return len(list(place.iterdir())) if place.exists() else 0


def test_i5_no_handle_is_left_open(folder: Path, way: str) -> None:
    plant_links(folder)
    root = Root(folder)
    before = handles()
    for path in traversals(folder):
        with contextlib.suppress(ToolError):
            root.open(path).close()
    assert handles() == before


async def test_hidden_files_are_read_only_on_request(folder: Path) -> None:
    _, read_file, _ = files(folder, hidden=True)
    assert await call(read_file, path=".env") == "KEY=1"


# Roots


async def test_several_folders_and_single_files_are_told_apart(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.txt").write_text(name)
    (tmp_path / "single.md").write_text("alone")
    (tmp_path / "other.md").write_text(SECRET)
    list_files, read_file, _ = files([tmp_path / "one", tmp_path / "two", tmp_path / "single.md"])
    listed = [file["path"] for file in (await call(list_files))["files"]]
    assert listed == ["one/x.txt", "two/x.txt", "single.md"]
    assert [await call(read_file, path=path) for path in listed] == ["one", "two", "alone"]
    for path in ("other.md", "single.md/other.md", "one/../two/x.txt", "x.txt"):
        await refused(read_file, path=path)


async def test_a_single_file_gives_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "single.md").write_text("alone")
    (tmp_path / "other.md").write_text(SECRET)
    list_files, read_file, _ = files(tmp_path / "single.md")
    assert [file["path"] for file in (await call(list_files))["files"]] == ["single.md"]
    assert await call(read_file, path="single.md") == "alone"
    await refused(read_file, path="other.md")


def test_folders_that_cannot_be_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a" / "same").mkdir(parents=True)
    (tmp_path / "same").mkdir()
    with pytest.raises(UsageError, match="no folder"):
        files(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="same name"):
        files([tmp_path / "same", tmp_path / "a" / "same"])
    with pytest.raises(UsageError, match="at least one"):
        files([])


# Documents

PAGE = b"""<html><head><title>Bees</title><style>p{}</style><script>steal()</script></head>
<body><h2>Queens &amp; eggs</h2><p>A queen lays<br>2000 eggs.</p><ul><li>one<li>two</ul>
<noscript>no</noscript></body></html>"""


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.txt", "Grüße\r\nzwei".encode(), "Grüße\nzwei"),
        ("a.txt", "Grüße".encode("utf-8-sig"), "Grüße"),
        ("a.txt", "Grüße".encode("utf-16"), "Grüße"),
        ("a.txt", "Grüße".encode("latin-1"), "Grüße"),
        ("a.csv", b"a,b\n1,2\n", "a,b\n1,2"),
        ("a.html", PAGE, "Bees\n## Queens & eggs\nA queen lays\n2000 eggs.\n- one\n- two"),
    ],
)
async def test_documents_are_read_as_text(
    tmp_path: Path, name: str, content: bytes, text: str
) -> None:
    (tmp_path / name).write_bytes(content)
    assert await call(files(tmp_path)[1], path=name) == text


def pdf_of(*pages: str) -> bytes:
    """A small PDF with these words on its pages."""
    from pypdf import PdfWriter
    from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

    writer = PdfWriter()
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
    for words in pages:
        page = writer.add_blank_page(300, 300)
        content = DecodedStreamObject()
        content.set_data(f"BT /F1 12 Tf 20 200 Td ({words}) Tj ET".encode())
        page[NameObject("/Contents")] = writer._add_object(content)
        page[NameObject("/Resources")] = DictionaryObject(
            {NameObject("/Font"): DictionaryObject({NameObject("/F1"): font})}
        )
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


async def test_a_pdf_is_read_page_by_page_and_found(tmp_path: Path) -> None:
    (tmp_path / "report.pdf").write_bytes(pdf_of("Profit rose", "Losses fell sharply"))
    _, read_file, search_files = files(tmp_path)
    assert await call(read_file, path="report.pdf") == (
        "[page 1]\nProfit rose\n\n[page 2]\nLosses fell sharply"
    )
    (best,) = (await call(search_files, query="losses"))["passages"]
    assert best["where"].startswith("report.pdf:")


async def test_without_its_package_a_pdf_is_refused_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "report.pdf").write_bytes(b"%PDF-1.4")
    (tmp_path / "a.txt").write_text("word")
    monkeypatch.setitem(sys.modules, "pypdf", None)
    _, read_file, search_files = files(tmp_path)
    assert "chargehand[documents]" in str(await refused(read_file, path="report.pdf"))
    found = await call(search_files, query="word")
    assert "chargehand[documents]" in found["not_searched"]["report.pdf"]
    assert len(found["passages"]) == 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("keep", range(0, 900, 60))
async def test_a_damaged_pdf_is_a_tool_error(tmp_path: Path, keep: int) -> None:
    whole = pdf_of("Profit rose")
    (tmp_path / "report.pdf").write_bytes(whole[:keep] + b"\xff" * 40 + whole[keep + 55 :])
    with contextlib.suppress(ToolError):
        assert isinstance(await call(files(tmp_path)[1], path="report.pdf"), str)


async def test_what_is_no_text_or_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.bin").write_bytes(b"\x00\x01\x02")
    (tmp_path / "b.txt").write_text("x" * 101)
    monkeypatch.setattr(documents, "MOST_BYTES", 100)
    _, read_file, _ = files(tmp_path)
    assert "binary" in str(await refused(read_file, path="a.bin"))
    assert "too large" in str(await refused(read_file, path="b.txt"))


async def test_a_long_file_is_read_in_pages(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n".join(map(str, range(1, 1_001))))
    _, read_file, _ = files(tmp_path)
    page = await call(read_file, path="a.txt", first_line=500, lines=2)
    assert page == "[lines 500 to 501 of 1000]\n500\n501"
    assert "only 1000 lines" in str(await refused(read_file, path="a.txt", first_line=2_000))
    await refused(read_file, path="a.txt", lines=0)


async def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old")
    _, read_file, _ = files(tmp_path)
    assert await call(read_file, path="a.txt") == "old"
    (tmp_path / "a.txt").write_text("new")
    assert await call(read_file, path="a.txt") == "new"


async def test_a_misspelt_path_gets_a_hint(folder: Path) -> None:
    assert "did you mean 'deep/b.txt'" in str(await refused(files(folder)[1], path="deep/bb.txt"))


# Search


async def test_the_best_passage_comes_first_with_a_line_that_exists(tmp_path: Path) -> None:
    filler = "\n\n".join(f"Paragraph {n} about nothing in particular. " * 8 for n in range(20))
    (tmp_path / "long.md").write_text(f"# Start\n\n{filler}\n\n# Bees\n\nQueens lay eggs.\n")
    (tmp_path / "other.txt").write_text("Eggs are eaten for breakfast, says everybody.")
    _, read_file, search_files = files(tmp_path)
    best = (await call(search_files, query="queen laying egg"))["passages"][0]
    path, line = best["where"].rsplit(":", 1)
    assert best["heading"] == "Bees"
    shown = await call(read_file, path=path, first_line=int(line), lines=1)
    assert shown.endswith("# Bees")


async def test_rows_of_a_table_are_found_with_their_columns(tmp_path: Path) -> None:
    (tmp_path / "cities.csv").write_text('city,note\nBern,"old\ntown"\nZug,lake\n')
    (found,) = (await call(files(tmp_path)[2], query="lake"))["passages"]
    assert found == {"where": "cities.csv:4", "text": "city: Zug; note: lake"}


@pytest.mark.parametrize(
    "query",
    ['" OR 1', "a AND", "NEAR(", "text:*", "'; drop table passage; --", "* ^ ( )a", "NOT a", "ü"],
)
async def test_i7_a_query_cannot_be_anything_but_words(folder: Path, query: str) -> None:
    _, _, search_files = files(folder)
    assert "passages" in await call(search_files, query=query)
    assert len((await call(search_files, query="inside"))["passages"]) == 2


async def test_a_query_without_words_is_refused(folder: Path) -> None:
    assert "no words" in str(await refused(files(folder)[2], query=' "*" '))


async def test_the_search_follows_the_files(tmp_path: Path) -> None:
    _, _, search_files = files(tmp_path)

    async def found(query: str) -> list[str]:
        return [hit["where"] for hit in (await call(search_files, query=query))["passages"]]

    assert await found("zebra") == []
    (tmp_path / "a.txt").write_text("a zebra")
    assert await found("zebra") == ["a.txt:1"]
    (tmp_path / "a.txt").write_text("a horse")
    assert (await found("zebra"), await found("horse")) == ([], ["a.txt:1"])
    (tmp_path / "a.txt").rename(tmp_path / "b.txt")
    assert await found("horse") == ["b.txt:1"]
    (tmp_path / "b.txt").unlink()
    assert await found("horse") == []


async def test_too_much_text_is_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passages, "MOST_TEXT", 10)
    (tmp_path / "a.txt").write_text("zebra")
    (tmp_path / "b.txt").write_text("zebra zebra zebra")
    found = await call(files(tmp_path)[2], query="zebra")
    assert [hit["where"] for hit in found["passages"]] == ["a.txt:1"]
    assert "b.txt" in found["not_searched"]


async def test_many_searches_at_once_agree(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number}.txt").write_text(f"word{number} common")
    _, _, search_files = files(tmp_path)
    queries = [call(search_files, query=f"word{number}") for number in range(30)]
    found = await asyncio.gather(*queries)
    assert [hit["passages"][0]["where"] for hit in found] == [f"{n}.txt:1" for n in range(30)]


async def test_a_long_list_is_shortened_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chargehand.tools.files.MOST_LISTED", 2)
    for name in "abc":
        (tmp_path / name).write_text("")
    listed = await call(files(tmp_path)[0])
    assert [file["path"] for file in listed["files"]] == ["a", "b"]
    assert "1 are not shown" in listed["more"]


@pytest.mark.parametrize("line", ["x" * 5_000, "word " * 2_000])
def test_a_passage_is_never_too_long(line: str) -> None:
    found = list(passages.passages_of("a.txt", line))
    assert "".join(passage.text for passage in found).replace(" ", "") == line.replace(" ", "")
    assert all(len(passage.text) <= 2 * passages.LONGEST for passage in found)


async def test_names_that_are_not_utf8_are_shown_escaped_and_read_so(odd: Path, way: str) -> None:
    listing, reading, searching = files(odd)
    paths = [each["path"] for each in (await call(listing))["files"]]
    assert paths == ["a.txt", "deep/b.txt", "deep/\\udcff.txt", "\\udcfe/c.csv"]
    assert await call(reading, path="deep/\\udcff.txt") == "oddly named"
    (passage,) = (await call(searching, query="oddly", most=1))["passages"]
    assert passage["where"] == "deep/\\udcff.txt:1"
    assert "there is no file" in str(await refused(reading, path="deep/\\udcfd.txt"))
    only, read_only, _ = files([odd / os.fsdecode(b"deep/\xff.txt"), odd / os.fsdecode(b"\xfe")])
    for each in (await call(only))["files"]:
        assert await call(read_only, path=each["path"])


async def test_a_table_in_a_folder_that_is_not_utf8_is_read(odd: Path) -> None:
    describe, _ = data(odd)
    assert "udcfe" in json.dumps(await call(describe))
