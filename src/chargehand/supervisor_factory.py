"""From flags, a crew and the environment to a supervisor. The only module that knows all adapters."""

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from chargehand.crews.crew import Crew, Hand, all_rates, nested_crews, unused_when_nested
from chargehand.crews.default_files_folder import working_folder
from chargehand.errors import JournalDamaged, UsageError
from chargehand.journal.head_mark import HeadMark
from chargehand.journal.postgres_address import is_dsn, place_of
from chargehand.journal.storage_check import real_path
from chargehand.models.gateway import ModelGateway
from chargehand.notify.base import NoticeKind, Subscription
from chargehand.roles.roster import Member
from chargehand.roles.shared_resources import ModelChoice
from chargehand.supervisor import Supervisor
from chargehand.usable_path import checked_path

#: below the working folder
JOURNAL = Path(".chargehand") / "runs.db"
#: the file beside a journal that holds the tokens of its server
TOKENS = "tokens.json"
JOURNAL_VARIABLE, MODEL_VARIABLE = "CHARGEHAND_JOURNAL", "CHARGEHAND_MODEL"
USUAL_MODELS = {
    "OPENAI_API_KEY": "openai:gpt-5-mini",
    "ANTHROPIC_API_KEY": "anthropic:claude-sonnet-5",
}
#: by the key that is there
BETTER = f"for more, set {' or '.join(USUAL_MODELS)}, or give --model ollama:… or local:…"

Say = Callable[[str], None]
"""Hears in one line what was chosen for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a user has chosen, such as options of the command line; everything has a default."""

    #: a TOML file, or `path.py:name`; empty: the default crew
    crew: str = ""
    files: Sequence[Path] = field(default=())
    model: str = ""
    journal: str = ""
    parallel: int | None = None
    #: who is notified of questions and of the end, in addition to the crew's own `notify`
    notify: Sequence[str] = ()

    def source(self) -> dict[str, Any]:
        """Where the crew comes from, so that it can be found again from any folder."""
        is_python = ".py:" in self.crew
        path, colon, name = self.crew.rpartition(":") if is_python else (self.crew, "", "")
        crew = f"{Path(path).absolute()}{colon}{name}" if path else ""
        # A crew in Python reads the working folder only if it says so itself.
        usual = [] if is_python else [Path.cwd()]
        files = [str(Path(file).absolute()) for file in self.files or usual]
        return {"crew": crew, "files": files, "model": self.model}

    def or_as(self, source: Mapping[str, Any]) -> "Choice":
        """This choice, completed with what a run was started with."""
        if self.crew or self.files:
            source = {"model": source.get("model", "")}
        return replace(
            self,
            crew=self.crew or source.get("crew", ""),
            files=self.files or [Path(file) for file in source.get("files", ())],
            model=self.model or source.get("model", ""),
        )

    def in_found_journal(self) -> "Choice":
        """The same, with the journal in which its run was found, whichever one the crew names for new runs."""
        return replace(self, journal=os.fspath(journal_place(self.journal)))


def supervisor_for(choice: Choice, say: Say = print) -> Supervisor:
    """A supervisor with the chosen crew, on a durable journal. If the crew is a `Supervisor`, it keeps its own settings."""
    crew, taken = _crew_and_taken(choice, say)
    boss = _taken(crew, choice, taken) if isinstance(crew, Supervisor) else _made(crew, choice, say)
    if choice.notify:
        boss.notify_also([Subscription(to, tuple(NoticeKind)) for to in choice.notify])
    return boss


def _made(crew: Crew, choice: Choice, say: Say) -> Supervisor:
    model = choice.model or crew.model or _usual_model(say)
    for inner in nested_crews(crew):
        if unused := unused_when_nested(inner):
            say(f"{inner.origin} is a nested crew; its {', '.join(unused)} have no effect")
    return supervisor_of(
        replace(crew, parallel=choice.parallel or crew.parallel),
        model,
        journal=journal_place(choice.journal or crew.journal).with_folder(),
        retention=crew.retention,
    )


def crew_for(choice: Choice, say: Say = print) -> Crew | Supervisor:
    """The chosen crew."""
    return _crew_and_taken(choice, say)[0]


def with_journal_of(boss: Supervisor, choice: Choice) -> Choice:
    """The same, with the journal of this supervisor if it is another one: commands about its runs must name it."""
    return _with_journal(boss.kept_in, choice)


def with_journal_of_crew(choice: Choice) -> Choice:
    """The same, with the journal that the chosen crew names, unless the user names one: its runs are there."""
    if choice.journal or not choice.crew:
        return choice
    crew = crew_for(choice, lambda _: None)
    return _with_journal(crew.kept_in if isinstance(crew, Supervisor) else crew.journal, choice)


def _with_journal(kept_in: str, choice: Choice) -> Choice:
    if not kept_in or JournalPlace(kept_in).is_same(journal_place(choice.journal)):
        return choice
    return replace(choice, journal=kept_in)


def _crew_and_taken(choice: Choice, say: Say) -> tuple[Crew | Supervisor, frozenset[str]]:
    """The chosen crew, and which of the flags the function that made it has taken in."""
    from chargehand.crews.default_crew import default_crew
    from chargehand.crews.python_references import python_crew, without_name
    from chargehand.crews.toml_crews import toml_crew

    if not choice.crew:
        return default_crew(choice.files or _working_folder(say)), frozenset()
    if choice.crew.endswith(".toml"):
        return toml_crew(Path(choice.crew), choice.files or None), frozenset()
    if choice.crew.endswith(".py"):
        raise without_name(choice.crew)
    if ":" not in choice.crew:
        raise UsageError(
            f"{choice.crew!r} is not a crew; give a TOML file (crew.toml), or Python as path.py:name"
        )
    offered = {
        "model": choice.model or None,
        "files": list(choice.files),
        "journal": os.fspath(journal_place(choice.journal)),
        "parallel": choice.parallel,
    }
    return python_crew(choice.crew, offered)


class JournalPlace(os.PathLike[str]):
    """Where runs are kept: the path of a file, or the DSN of a PostgreSQL database.

    It is opened by `os.fspath`, and shown by `str` without the password.
    """

    def __init__(self, given: str, *, is_default: bool = False) -> None:
        self._given = given
        #: nobody has named it: then it need not be there yet
        self.is_default = is_default
        self._is_server = is_dsn(given)

    def __fspath__(self) -> str:
        return self._given

    def __str__(self) -> str:
        return place_of(self._given) if self._is_server else self._given

    def exists(self) -> bool:
        """Whether there may be runs to read; of a server, opening it tells.

        Raises `JournalDamaged` if only the file that lies beside a journal is there.
        """
        if self._is_server:
            return True
        path = real_path(Path(self._given.removeprefix("sqlite:")))
        if path.exists():
            return True
        if (mark := HeadMark(path).path).exists():
            raise JournalDamaged(
                f"the journal {self} is missing, and {mark} shows that there was one; put the file back, from a "
                f"backup if need be, or delete {mark.name} to begin with an empty journal"
            )
        return False

    def is_to_be_read(self) -> bool:
        """Whether there may be runs to read. Raises `UsageError` if somebody has named this place and there is no journal."""
        if self.exists():
            return True
        if not self.is_default:
            raise UsageError(f"there is no journal at {self}; give another one with --journal")
        return False

    def command(self, *words: str) -> str:
        """A `chargehand` command about this journal, to be pasted into a shell."""
        return shlex.join(["chargehand", *words, "--journal", str(self)])

    def is_same(self, other: "JournalPlace") -> bool:
        """Whether both name one journal."""
        places = [
            each if is_dsn(each) else _file_of(each) for each in map(os.fspath, (self, other))
        ]
        return places[0] == places[1]

    def with_folder(self) -> "JournalPlace":
        """The same place, after making the folder that the file is to lie in."""
        folder = checked_path(self._given.removeprefix("sqlite:"), "the journal").parent
        try:
            if not self._is_server:
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"the journal {self} cannot be created: {error.strerror}; "
                f"give another place with --journal or {JOURNAL_VARIABLE}"
            ) from None
        return self


def _file_of(given: str) -> str:
    return str(real_path(Path(given.removeprefix("sqlite:"))))


def journal_place(given: str = "") -> JournalPlace:
    """Where runs are kept: as given, or as the environment says, or below the working folder."""
    named = given or os.environ.get(JOURNAL_VARIABLE, "")
    return JournalPlace(str(named or JOURNAL), is_default=not named)


def token_file_beside(journal: str) -> Path:
    """Where the tokens of a journal's server are kept."""
    place = os.fspath(journal_place(journal))
    if is_dsn(place):
        state = os.environ.get("XDG_STATE_HOME", "") or "~/.local/state"
        return checked_path(state, "the folder of tokens", home=True) / "chargehand" / TOKENS
    return checked_path(place.removeprefix("sqlite:"), "the journal").absolute().parent / TOKENS


def reader_of(journal: JournalPlace) -> Supervisor:
    """A supervisor without workers: to look at runs, cancel them and answer their questions."""
    return Supervisor([], journal=journal)


def _working_folder(say: Say) -> Sequence[Path]:
    """What the default crew reads without --files."""
    here = working_folder()
    say(f"files: the crew can read everything in {here}; to limit this, use --files PATH")
    return [here]


def _usual_model(say: Say) -> str:
    """What is used where neither a flag nor a crew names a model."""
    named = os.environ.get(MODEL_VARIABLE, "").strip()
    if named:
        return named
    for key, model in USUAL_MODELS.items():
        if os.environ.get(key, "").strip():
            say(f"model: {model}, because {key} is set; --model chooses another")
            return model
    say(f"model: offline, which uses rules, not an LLM: it computes and quotes; {BETTER}")
    return "offline"


def _taken(boss: Supervisor, choice: Choice, taken: frozenset[str]) -> Supervisor:
    """A supervisor that its author has made; only where it keeps its runs may still be chosen."""
    given = {"model": choice.model, "files": choice.files, "parallel": choice.parallel}
    refused = [flag for flag, value in given.items() if value and flag not in taken]
    if refused:
        raise UsageError(
            f"--{refused[0]} cannot change {choice.crew}, which is a finished Supervisor; change it there, "
            "or make it a function with a parameter of that name, or a list of workers"
        )
    if not boss.is_kept or (choice.journal and "journal" not in taken):
        # What a command does must still be there for the next one: `trace`, `resume`, `answer`.
        boss.keep_in(journal_place(choice.journal).with_folder())
    return boss


def _member(hand: Hand, model: ModelChoice) -> Member:
    """A worker as it is; a nested crew as a supervisor of its own, with the model from above."""
    if not isinstance(hand, Crew):
        return hand
    return _supervisor(hand, hand.model or model, name=hand.name, description=hand.description)


def supervisor_of(crew: Crew, model: ModelChoice, **own: Any) -> Supervisor:
    """A supervisor with this crew and model; on a journal in memory unless `own` says otherwise.

    Nested crews share its gateway, so that a rate limit holds for all that call the account.
    """
    rates = all_rates(crew)
    return _supervisor(crew, model, gateway=ModelGateway(rates) if rates else None, **own)


def _supervisor(crew: Crew, model: ModelChoice, **own: Any) -> Supervisor:
    return Supervisor(
        [_member(hand, model) for hand in crew.workers],
        model=model,
        settings=crew.settings,
        limits=crew.limits,
        retry=crew.retry,
        on_failure=crew.on_failure,
        default=crew.default,
        parallel=crew.parallel,
        balance=crew.balance,
        prompts=crew.prompts,
        notify=crew.notify,
        secrets=crew.secrets,
        **own,
    )
