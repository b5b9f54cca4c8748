"""Paths at the command line that no file can have: every option and argument refuses them in one line."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from click.testing import CliRunner, Result

from chargehand.cli import main
from chargehand.cli.given_path import GivenPath
from chargehand.errors import UsageError
from chargehand.evaluation import load_suite
from chargehand.journal.open_journal import open_journal
from chargehand.models.open_model import open_model
from chargehand.recordings.recording_file import SUFFIX
from chargehand.supervisor_factory import Choice, crew_for
from chargehand.tools.files import files
from chargehand.tools.sql_tables import data

#: by what is wrong with it
HOSTILE = {
    "NUL": "a\0b",
    "long name": "x" * 300,
    "long path": "x/" * 3_000 + "x",
    "loop": "loop/x",
}
#: what else a path may say that is none of the file meant
FOLDERS = (".", "/", "..")
ODD = (*FOLDERS, "", "  ", "\udcff")
#: parameters that name a path among other things, by their metavars: endings that make it one
MIXED: dict[str, tuple[str, ...]] = {
    "CREW": (".toml", ".py:boss"),
    "FILE|DSN": ("",),
    "RUN|FILE": (SUFFIX,),
    "[RUN|FILE…]": (SUFFIX,),
}
#: of `diff`, which compares runs and files
MIXED_ARGUMENTS: dict[str, tuple[str, ...]] = {"a": (SUFFIX,), "b": (SUFFIX,)}


class Parameter(NamedTuple):
    """An option or an argument that takes a path, and the command line before and after it."""

    command: tuple[str, ...]
    parameter: click.Parameter
    #: makes a path of any text
    ending: str

    @property
    def words(self) -> str:
        return f"{' '.join(self.command)} {self.parameter.name}{self.ending}"

    @property
    def serves_with_any(self) -> bool:
        """Whether it wants a folder, and would serve until it is stopped."""
        return self.command[0] in ("serve", "mcp") and self.parameter.name == "files"

    def line(self, value: str) -> list[str]:
        command = _command(self.command)
        given = {each.name: "x" for each in command.params if each.required}
        if "request" in {each.name for each in command.params} and self.parameter.name not in (
            "plan_file",
            "check",
            "edit",
        ):
            given["request"] = "x"
        given[self.parameter.name] = value + self.ending
        options: list[str] = []
        arguments: list[str] = []
        for each in command.params:
            if each.name not in given:
                continue
            if isinstance(each, click.Option):
                options += [each.opts[-1], given[each.name]]
            else:
                arguments.append(given[each.name])
        return [*self.command, *options, "--", *arguments]


def _command(names: tuple[str, ...]) -> click.Command:
    command: click.Command = main
    for name in names:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    return command


def _commands(names: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    command = _command(names)
    if not isinstance(command, click.Group):
        yield names
        return
    for name in command.list_commands(click.Context(command)):
        yield from _commands((*names, name))


def _parameters() -> Iterator[Parameter]:
    for command in _commands():
        for each in _command(command).params:
            if isinstance(each.type, click.Path):
                yield Parameter(command, each, "")
            endings = MIXED.get(each.metavar or "") or MIXED_ARGUMENTS.get(each.name or "", ())
            yield from (Parameter(command, each, ending) for ending in endings)


PARAMETERS = list(_parameters())


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHARGEHAND_MODEL", "offline")
    (tmp_path / "loop").symlink_to("loop")
    return tmp_path


def invoke(line: list[str]) -> Result:
    return CliRunner().invoke(main, line, input="")


def assert_one_line(result: Result, line: list[str]) -> None:
    assert result.exception is None or isinstance(result.exception, SystemExit), (
        line,
        result.exception,
    )
    assert result.exit_code == 2, (line, result.output)
    told = result.stderr.splitlines()
    assert [each for each in told if each.startswith("chargehand: ")] == told[-1:], told
    assert len(told[-1]) < 1_000, "a long path is cut"


@pytest.mark.parametrize("parameter", PARAMETERS, ids=lambda each: each.words)
def test_a_path_that_no_file_can_have_is_refused_in_one_line(parameter: Parameter) -> None:
    for value in HOSTILE.values():
        line = parameter.line(value)
        assert_one_line(invoke(line), line)


@pytest.mark.parametrize(
    "parameter",
    [each for each in PARAMETERS if not each.ending and not each.serves_with_any],
    ids=lambda each: each.words,
)
def test_a_folder_and_other_odd_paths_never_end_in_a_stack(parameter: Parameter) -> None:
    for value in FOLDERS if parameter.command[0] in ("serve", "mcp") else ODD:
        result = invoke(parameter.line(value))
        assert result.exception is None or isinstance(result.exception, SystemExit), (
            parameter.line(value),
            result.exception,
        )
        assert "Traceback" not in result.output


@pytest.mark.parametrize("crew", ["~nosuchuser/crew.toml", "~nosuchuser/crew.py:boss"])
def test_the_home_of_a_user_who_is_not_there_is_named(crew: str) -> None:
    for command in ("run", "plan", "serve", "mcp", "submit"):
        line = [command, "--crew", crew, *(["x"] if command not in ("serve", "mcp") else [])]
        result = invoke(line)
        assert_one_line(result, line)
        assert "the home folder of ~nosuchuser is not known" in result.stderr


def test_every_parameter_that_says_it_is_a_file_is_checked() -> None:
    """A new option for a file has to be a `GivenPath`, or to be listed above."""
    for command in _commands():
        for each in _command(command).params:
            name = each.metavar or each.name or ""
            if any(word in name.upper() for word in ("FILE", "PATH", "SUITE", "PLAN")):
                is_path = isinstance(each.type, GivenPath) or name in MIXED
                is_flag = isinstance(each, click.Option) and each.is_flag
                is_url = each.name == "base_path"
                assert is_path or is_flag or is_url, (command, name)
            if isinstance(each.type, click.Path):
                assert isinstance(each.type, GivenPath), (command, name)


@pytest.mark.parametrize("value", [".", "/"])
def test_a_folder_is_no_journal_and_no_file_of_tokens(value: str) -> None:
    for line in (["runs", "--journal", value], ["tokens", "list", "--token-file", value]):
        result = invoke(line)
        assert_one_line(result, line)
        assert f"{value} is a folder" in result.stderr


@pytest.mark.parametrize("value", list(HOSTILE.values()), ids=list(HOSTILE))
def test_a_path_that_no_file_can_have_is_a_usage_error_in_python(value: str, folder: Path) -> None:
    (folder / "crew.toml").write_text(
        f"[[worker]]\nname = 'w'\ncrew = {_toml(value + '.toml')}\n", encoding="utf-8"
    )
    for use in (
        lambda: open_journal(value),
        lambda: files(value),
        lambda: data(value),
        lambda: load_suite(value),
        lambda: crew_for(Choice(crew=f"{value}.toml")),
        lambda: crew_for(Choice(crew=f"{value}.py:boss")),
        lambda: crew_for(Choice(crew="crew.toml")),
        lambda: open_model(f"local:{value}"),
        lambda: open_model(f"written:{value}"),
    ):
        with pytest.raises(UsageError):
            use()


KEYS = ("crew.prompts", "worker.prompts", "worker.crew", "tools.folders", "mcp.cwd")


@pytest.mark.parametrize("value", list(HOSTILE.values()), ids=list(HOSTILE))
@pytest.mark.parametrize("key", KEYS)
def test_a_path_in_a_crew_file_that_no_file_can_have_is_a_fault(
    key: str, value: str, folder: Path
) -> None:
    table, _, name = key.partition(".")
    given = f"{name} = {_toml(value + ('.toml' if name == 'crew' else ''))}\n"
    worker = "[[worker]]\nname = 'w'\ndescription = 'd'\n"
    tables = {
        "crew": f"[crew]\n{given}{worker}",
        "worker": f"{worker}{given}",
        "tools": f"[tools.own]\nuse = 'files'\n{given.replace('= ', '= [').strip()}]\n{worker}tools = ['own']\n",
        "mcp": f"[[mcp]]\nname = 'm'\ncommand = ['true']\n{given}{worker}tools = ['m']\n",
    }
    (folder / "crew.toml").write_text(tables[table], encoding="utf-8")
    with pytest.raises(UsageError, match="cannot be used as a path"):
        crew_for(Choice(crew="crew.toml"))


def _toml(text: str) -> str:
    return '"' + text.replace("\0", "\\u0000") + '"'
