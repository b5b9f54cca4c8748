"""Crews: from TOML, from Python, ready-made; and what is refused, with its place and the way out."""

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

import chargehand as ch
from chargehand.crews.crew import Crew
from chargehand.crews.crew_schema import LimitsForm
from chargehand.crews.default_crew import default_crew
from chargehand.crews.python_references import load, python_crew
from chargehand.crews.toml_crews import toml_crew
from chargehand.errors import ChargehandError, UsageError
from chargehand.facts.durations import length_of, shown_length
from chargehand.supervisor_factory import Choice, crew_for, journal_place, supervisor_for
from chargehand.testing.model_server import Say, model_server

ROOT = Path(__file__).parents[2]
DATA = ROOT / "examples" / "data"
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "CHARGEHAND_MODEL", "CHARGEHAND_JOURNAL")


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty folder, no keys, and no trace of the modules that a test has loaded."""
    monkeypatch.chdir(tmp_path)
    for key in (*KEYS, "BRAVE_SEARCH_API_KEY"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    loaded = [(name, getattr(module, "__file__", "")) for name, module in sys.modules.items()]
    for name, file in loaded:
        if str(file).startswith(str(tmp_path)):
            del sys.modules[name]


def crew_in(text: str, name: str = "crew.toml", files: tuple[Path, ...] = (DATA,)) -> Crew:
    Path(name).write_text(text, encoding="utf-8")
    return toml_crew(Path(name), files)


def workers_of(crew: Crew) -> dict[str, ch.Worker]:
    return {each.name: each for each in crew.workers if isinstance(each, ch.Worker)}


WRITER = '[[worker]]\nname = "writer"\ndescription = "Writes"\n'

TOOLS = '''
import chargehand as ch

@ch.tool(effect="pure")
def count(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())

@ch.worker("shouter", "Upper-cases a text", capacity=3)
async def shout(brief: ch.Brief) -> str:
    return brief.task.description.upper()

def plain(brief):
    return "plain"

number = 7
'''


# TOML


def test_a_crew_file_says_everything_a_worker_can_be() -> None:
    Path("prompts").mkdir()
    crew = crew_in("""
[crew]
name = "office"
model = ["openai:gpt-5-mini", "offline"]
parallel = 3
journal = "kept/runs.db"
prompts = "prompts"

[crew.limits]
money = 2
deadline = "1h30m"
turns = 7

[crew.settings]
temperature = 0.5

[[worker]]
name = "researcher"
description = "Finds facts"
instructions = "Cite."
tools = ["files:read", "files:search_files", "maths"]
model = "offline"
skills = ["search"]
capacity = 2
weight = 1.5
timeout = "90s"
destinations = ["example.org"]
settings = { temperature = 0.0, max_tokens = 100, reasoning = "low" }
[worker.rules]
init = ["search_files"]
child = { search_files = ["read_file"] }
max = { read_file = 3 }
required = ["read_file"]
approval = ["calculate"]
""")
    (worker,) = workers_of(crew).values()
    assert crew.name == "office"
    assert crew.model == ["openai:gpt-5-mini", "offline"]
    assert crew.parallel == 3
    assert Path(crew.journal) == Path.cwd() / "kept" / "runs.db"
    assert crew.limits == ch.Limits(money=2, deadline=timedelta(minutes=90), turns=7)
    assert crew.settings == ch.ModelSettings(temperature=0.5)
    assert worker.toolbox.names == ("read_file", "search_files", "calculate")
    assert worker.settings == ch.ModelSettings(temperature=0, max_tokens=100, reasoning="low")
    assert worker.timeout == timedelta(seconds=90)
    assert worker.place.capacity == 2
    assert worker.rules.allowed([]) == "search_files"
    assert worker.rules.needs_approval("calculate")
    assert "Cite." in worker.opening.text


SUMS = """
import chargehand as ch

@ch.worker("ada", "Adds", skills=["sums"])
async def ada(brief: ch.Brief) -> str:
    return brief.worker

@ch.worker("bob", "Adds too", skills=["sums"])
async def bob(brief: ch.Brief) -> str:
    return brief.worker
"""


@pytest.mark.parametrize(
    ("balance", "shares"),
    [('balance = "weighted"', (9, 3)), ('balance = "round_robin"', (6, 6)), ("", (6, 6))],
)
def test_a_crew_file_says_how_tasks_are_shared_among_workers(
    balance: str, shares: tuple[int, int]
) -> None:
    Path("sums.py").write_text(SUMS)
    crew_in(
        f'[crew]\n{balance}\n[[worker]]\nfunction = "sums.py:ada"\nweight = 3\n'
        '[[worker]]\nfunction = "sums.py:bob"\nweight = 1\n'
    )
    boss = supervisor_for(Choice(crew="crew.toml", model="offline"), lambda _: None)
    tasks = [ch.Task(id=f"t{n}", description=f"Add {n}", skill="sums") for n in range(12)]
    result = boss.run_sync(ch.Plan(goal="Twelve sums", tasks=tasks))
    done = [task.output for task in result.tasks.values()]
    assert (done.count("ada"), done.count("bob")) == shares


def test_a_crew_file_can_set_every_limit() -> None:
    assert set(LimitsForm.model_fields) == set(ch.Limits.__struct_fields__)


def test_a_worker_can_be_a_function_with_tools_of_python_beside_it() -> None:
    Path("things.py").write_text(TOOLS)
    crew = crew_in("""
[[worker]]
function = "things.py:shout"
[[worker]]
name = "plain"
description = "Says plain"
function = "things.py:plain"
[[worker]]
name = "counter"
description = "Counts"
tools = ["things.py:count"]
""")
    shouter, plain, counter = crew.workers
    assert isinstance(shouter, ch.FunctionWorker)
    assert (shouter.name, shouter.capacity) == ("shouter", 3)
    assert plain.name == "plain"
    assert isinstance(counter, ch.Worker)
    assert counter.toolbox.names == ("count",)


def test_a_worker_can_be_a_crew_of_its_own() -> None:
    Path("inner.toml").write_text('[crew]\nname = "scribes"\ndescription = "Write"\n' + WRITER)
    crew = crew_in('[[worker]]\ncrew = "inner.toml"\n[[worker]]\nname = "a"\ndescription = "b"\n')
    inner, _ = crew.workers
    assert isinstance(inner, Crew)
    assert (inner.name, inner.description) == ("scribes", "Write")


OUTER = '[[worker]]\nname = "team"\ndescription = "A team"\ncrew = "inner.toml"\n'


def nested_plan(*tasks: ch.Task) -> ch.Plan:
    """A plan whose one task hands these tasks to the crew `team`."""
    below = json.loads(ch.Plan(goal="Below", tasks=list(tasks)).to_json())
    task = ch.Task(id="all", description="All", worker="team", args={"plan": below})
    return ch.Plan(goal="Above", tasks=[task])


@pytest.mark.parametrize(
    ("above", "most"), [("", 2), ("requests = 600", 2), ("concurrency = 1", 1)]
)
async def test_a_nested_crew_keeps_the_address_and_the_rate_limits_of_its_models(
    above: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account is one for the whole tree: of two limits for it, the lower one holds."""
    monkeypatch.setenv("HOUSE_KEY", "k" * 20)
    async with model_server() as server:
        server.always = Say(text="done")
        house = f"""
[models.house]
model = "openai:llama"
base_url = "{server.url}/v1"
key_variable = "HOUSE_KEY"
"""
        Path("inner.toml").write_text(f'{house}concurrency = 2\n{WRITER}model = "house"\n')
        Path("crew.toml").write_text(f"{house}{above}\n{OUTER}")
        async with supervisor_for(Choice(crew="crew.toml", model="offline"), print) as boss:
            task = ch.Task(id="t", description="Write", worker="writer")
            assert (await boss.run(nested_plan(task))).status == "succeeded"
            (load,) = boss.provider_loads()
    assert len(server.requests) == 1
    assert load.most == most


async def test_a_refused_key_of_a_crew_file_is_named_by_its_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOUSE_KEY", "k" * 20)
    async with model_server() as server:
        server.key = "another"
        Path("crew.toml").write_text(
            f'[models.house]\nmodel = "openai:llama"\nbase_url = "{server.url}/v1"\n'
            f'key_variable = "HOUSE_KEY"\n{WRITER}model = "house"\n'
        )
        async with supervisor_for(Choice(crew="crew.toml", model="offline"), print) as boss:
            task = ch.Task(id="t", description="Write", worker="writer")
            result = await boss.run(ch.Plan(goal="g", tasks=[task]))
    assert "check HOUSE_KEY (key_variable), and what" in str(result.tasks["t"].error)


def test_two_models_of_a_file_with_one_account_share_the_lower_limits() -> None:
    crew = crew_in(
        '[models.a]\nmodel = "openai:x"\nkey_variable = "PATH"\nrequests = 60\n'
        '[models.b]\nmodel = "openai:y"\nkey_variable = "PATH"\nrequests = 90\ntokens = 5\n'
        + WRITER
    )
    (rates,) = crew.rates.values()
    assert rates == ch.Rates(requests=60, tokens=5)


FAILS = """
import chargehand as ch

@ch.worker("caller", "Calls a service that is down")
async def caller(brief: ch.Brief) -> str:
    raise ch.WorkerError("no connection", kind="network")
"""


def test_a_nested_crew_keeps_its_retry_policy() -> None:
    """Its wait of hours would end after the deadline, so there is no second try."""
    Path("fails.py").write_text(FAILS)
    Path("inner.toml").write_text(
        '[crew.retry]\nfirst = "2h"\ncap = "9h"\n[[worker]]\nfunction = "fails.py:caller"\n'
    )
    Path("crew.toml").write_text(OUTER)
    boss = supervisor_for(Choice(crew="crew.toml", model="offline"), lambda _: None)
    task = ch.Task(id="t", description="Call", worker="caller")
    result = boss.run_sync(nested_plan(task), deadline=60)
    assert result.status == "failed"
    assert "tried" not in str(result.tasks["all"].error)


def test_what_a_nested_crew_cannot_use_is_said_by_name() -> None:
    Path("inner.toml").write_text(
        '[crew]\njournal = "own.db"\ndefault = "writer"\n[crew.retention]\nkeep = 5\n' + WRITER
    )
    Path("crew.toml").write_text(OUTER)
    said: list[str] = []
    supervisor_for(Choice(crew="crew.toml", model="ollama:x"), said.append)
    (line,) = said
    assert "inner.toml is a nested crew; its journal, retention, default have no effect" in line
    said.clear()
    supervisor_for(Choice(crew="inner.toml", model="ollama:x"), said.append)
    assert said == []


def test_crews_nested_in_a_circle_are_refused() -> None:
    Path("a.toml").write_text('[[worker]]\ncrew = "b.toml"\nname = "b"\ndescription = "B"\n')
    Path("b.toml").write_text('[[worker]]\ncrew = "a.toml"\nname = "a"\ndescription = "A"\n')
    with pytest.raises(UsageError, match=r"in a circle: a.toml → b.toml → a.toml"):
        toml_crew(Path("a.toml"))


def test_two_sets_of_one_kind_have_a_prefix_to_tell_them_apart() -> None:
    crew = crew_in(f"""
[[worker]]
name = "buyer"
description = "Knows reviews"
tools = ["files"]
[[worker]]
name = "lawyer"
description = "Knows contracts"
tools = ["contracts:read"]
[tools.contracts]
use = "files"
folders = ["{DATA.as_posix()}"]
prefix = "contract_"
""")
    assert workers_of(crew)["lawyer"].toolbox.names == ("contract_read_file",)


def test_a_secret_is_taken_from_the_environment_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    text = WRITER + 'secrets = ["OFFICE_TOKEN"]\n'
    with pytest.raises(UsageError, match=r"worker 'writer' needs OFFICE_TOKEN, which is not in"):
        crew_in(text)
    monkeypatch.setenv("OFFICE_TOKEN", "a-very-secret-thing")
    crew = crew_in(text)
    assert crew.secrets == {"OFFICE_TOKEN": "a-very-secret-thing"}
    assert "very-secret" not in repr(crew)


MCP = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("shop")


@server.tool()
def price(article: str) -> dict[str, float]:
    \"\"\"What an article costs.\"\"\"
    return {"price": 1.0}


@server.tool()
def stock(article: str) -> dict[str, int]:
    \"\"\"How many there are.\"\"\"
    return {"stock": 1}


server.run("stdio")
"""


def test_tools_of_an_mcp_server_are_named_by_it() -> None:
    Path("shop.py").write_text(MCP)
    crew = crew_in(f"""
[[mcp]]
name = "shop"
command = ["{sys.executable}", "{Path("shop.py").resolve()}"]
[[worker]]
name = "clerk"
description = "Knows prices"
tools = ["shop:price"]
[[worker]]
name = "keeper"
description = "Knows the stock"
tools = ["shop:stock"]
""")
    names = [worker.toolbox.names for worker in workers_of(crew).values()]
    assert names == [("price",), ("stock",)]


SLOW = """
import sys, time
from mcp.server.mcpserver import MCPServer

if sys.argv[1] == "mute":
    time.sleep(100)
server = MCPServer("shop")


@server.tool()
async def price(article: str) -> dict[str, float]:
    \"\"\"What an article costs.\"\"\"
    import anyio
    await anyio.sleep(100)
    return {"price": 1.0}


server.run("stdio")
"""


def slow_shop(how: str, terms: str) -> Crew:
    Path("shop.py").write_text(SLOW)
    command = f'["{sys.executable}", "{Path("shop.py").resolve()}", "{how}"]'
    server = f'[[mcp]]\nname = "shop"\ncommand = {command}\n{terms}\n'
    return crew_in(server + WRITER + 'tools = ["shop:price"]\n')


def test_an_mcp_server_of_a_crew_file_has_so_long_for_a_call() -> None:
    (price,) = workers_of(slow_shop("slow", 'timeout = "200ms"'))["writer"].toolbox
    with pytest.raises(ch.errors.ToolError, match=r"shop.* 0\.2 s") as raised:
        asyncio.run(price.call(ch.ToolContext(), '{"article": "lamp"}'))
    assert raised.value.kind == "timeout"


def test_an_mcp_server_of_a_crew_file_has_so_long_to_tell_its_tools() -> None:
    with pytest.raises(ChargehandError, match=r"shop.* 0\.3 s"):
        slow_shop("mute", 'connect = "300ms"')


ROUTED = """
[crew]
default = "clerk"
[[worker]]
function = "desk.py:count"
[[worker]]
function = "desk.py:clerk"
"""

DESK = """
import chargehand as ch

@ch.worker("counter", "Counts coins and notes")
async def count(brief: ch.Brief) -> str:
    return "counter"

@ch.worker("clerk", "Keeps the door")
async def clerk(brief: ch.Brief) -> str:
    return "clerk"
"""


@pytest.mark.parametrize(
    ("request_", "who"),
    [("Count the coins and the notes", "counter"), ("Whistle a tune", "clerk")],
)
def test_a_request_that_is_nobodys_goes_to_the_default_of_the_crew_file(
    request_: str, who: str
) -> None:
    Path("desk.py").write_text(DESK)
    Path("crew.toml").write_text(ROUTED)
    boss = supervisor_for(Choice(crew="crew.toml", model="offline"), lambda _: None)
    result = boss.run_sync(request_, approach="route")
    assert [task.worker for task in result.tasks.values()] == [who]
    assert (result.status, result.tasks[next(iter(result.tasks))].output) == ("succeeded", who)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (WRITER + "[crew]\ndefault = 'nobody'\n", r"nobody"),
        (
            WRITER + "[[mcp]]\nname = 'm'\ncommand = ['x']\ntimeout = 'soon'\n",
            r"timeout: 'soon' is no",
        ),
        (
            WRITER + "[[mcp]]\nname = 'm'\ncommand = ['x']\nconnect = 5\n",
            r"connect: must be a length",
        ),
        (
            WRITER + "[[mcp]]\nname = 'm'\ncommand = ['x']\nrates = 5\n",
            r"rates: is not a known key",
        ),
        ("[crew]\nname = \n", r"crew.toml is not TOML: .*line 2"),
        ("[crew]\nname = 'x'\n", r"\[worker\]: is missing; a crew needs at least one"),
        ("[[worker]]\nname = 'a'\n", r"\[\[worker\]\] 1 \('a'\): needs a name and a description"),
        (
            WRITER + "tool = ['x']\n",
            r"\('writer'\), tool: is not a known key; did you mean 'tools'",
        ),
        (WRITER + "capacity = 'two'\n", r"\('writer'\), capacity: .* not 'two'"),
        (WRITER + "timeout = 5\n", r"timeout: must be a length of time in quotes"),
        (WRITER + "timeout = 'soon'\n", r"timeout: 'soon' is not a length of time; write 90s"),
        (WRITER + "tools = ['flies']\n", r"1 \('writer'\): no tools .* did you mean 'files'"),
        (WRITER + "tools = ['files:write']\n", r"'files:write' names no tools; there are list_f"),
        (WRITER + "tools = ['nope.py:x']\n", r"there is no file 'nope.py'"),
        (WRITER + "tools = ['web']\n", r"tools of the web need destinations"),
        (WRITER + "prompts = 'nowhere'\n", r"prompts = 'nowhere' is not a folder"),
        (WRITER + "process = true\n", r"only a function runs in a process"),
        (WRITER + "function = 'a.py:f'\ntools = ['maths']\n", r"is a function, which has no tools"),
        (WRITER + "crew = 'a.toml'\nskills = ['x']\n", r"is a crew, which has no skills"),
        (WRITER + "function = 'a.py:f'\ncrew = 'b.toml'\n", r"function or a crew, not both"),
        (WRITER + "crew = 'none.toml'\n", r"there is no crew file .*none.toml.* chargehand init"),
        (WRITER + "[worker.rules]\ninit = ['x']\n", r"'writer'\): a rule names the tool 'x'"),
        (WRITER + "[crew.limits]\nmoney = -1\n", r"\[crew\], limits money"),
        (WRITER + "[[mcp]]\nname = 'm'\n", r"\[\[mcp\]\] 1 \('m'\): needs either command"),
        (WRITER + "tools = ['x']\n[tools.x]\nprefix = 'y'\n", r"\[tools.x\] needs use = one of"),
        (WRITER + WRITER, r"\[\[worker\]\] 2 \('writer'\): two workers are named 'writer'"),
        (
            WRITER + "[crew]\nbalance = 'fair'\n",
            r"\[crew\], balance: .*'least_busy', 'round_robin' or 'weighted', not 'fair'",
        ),
        (WRITER + "[crew]\nnotify = 5\n", r"\[crew\], notify: .* not 5"),
        (WRITER + "[crew]\nnotify = ''\n", r"notify: '' is not a way to notify"),
        (WRITER + "[crew]\nnotify = 'gopher://x'\n", r"notify: 'gopher' is not a way to notify"),
        (WRITER + "[crew]\nnotify = { to = 'log', of = ['rain'] }\n", r"notify .* not 'rain'"),
        (WRITER + "[crew]\nshare = ['nope']\n", r"share names 'nope', which no worker has"),
        (WRITER + "[crew]\nshare = ['']\n", r"share names '', which no worker has"),
        (
            WRITER + "[crew]\nshare = ['writer']\n",
            r"share names 'writer', .* no worker has any tool",
        ),
        (
            WRITER + "tools = ['maths']\n[crew]\nshare = ['calculat']\n",
            r"did you mean 'calculate'\? there are calculate",
        ),
        (
            WRITER + "tools = ['exits.py:x']\n",
            r"\('writer'\): exits.py cannot be loaded: it ends the",
        ),
        (WRITER + "function = 'exits.py:x'\n", r"\('writer'\): exits.py cannot be loaded: it ends"),
    ],
)
def test_what_is_wrong_with_a_crew_file_is_told_with_its_place_and_the_way_out(
    text: str, told: str
) -> None:
    Path("exits.py").write_text("raise SystemExit(7)\n")
    with pytest.raises(UsageError, match=told):
        crew_in(text)


@pytest.mark.parametrize(
    ("notify", "count"),
    [
        ("'log'", 1),
        ("{ to = 'log', of = ['question', 'failed'] }", 1),
        ("['log', { to = 'log', of = ['failed'] }]", 2),
        ("[]", 0),
    ],
)
def test_one_way_to_notify_needs_no_list(notify: str, count: int) -> None:
    assert len(crew_in(f"{WRITER}[crew]\nnotify = {notify}\n").notify) == count


def test_faults_that_show_only_when_the_crew_is_made_are_told_at_once_too() -> None:
    """A tool that is not there, a secret, a policy, a file: found one by one, told together."""
    with pytest.raises(UsageError, match="5 faults") as caught:
        crew_in(
            '[crew]\non_failure = ["perhaps"]\ndefault = "nobody"\n'
            + WRITER
            + 'tools = ["no_such_tool"]\n[[worker]]\nname = "b"\ndescription = "B"\n'
            'secrets = ["NOT_SET_ANYWHERE"]\n[[worker]]\nfunction = "no_such.py:f"\n'
        )
    told = str(caught.value)
    for word in ("perhaps", "nobody", "no_such_tool", "NOT_SET_ANYWHERE", "no_such.py"):
        assert word in told
    assert told.count("crew.toml") == 1


def test_a_model_of_the_file_has_an_address_rates_and_a_name() -> None:
    crew = crew_in(
        '[crew]\nmodel = "mine"\ndefault = "writer"\n[crew.retry]\nfirst = "5s"\n'
        '[models.mine]\nmodel = "openai:llama"\nbase_url = "http://127.0.0.1:1/v1"\nrequests = 60\n'
        + WRITER
        + 'model = ["mine", "offline"]\n'
    )
    own = workers_of(crew)["writer"].model
    assert isinstance(own, list)
    assert own[0] is crew.model
    assert [rates.requests for rates in crew.rates.values()] == [60]
    assert crew.retry is not None
    assert crew.retry.first == timedelta(seconds=5)
    boss = supervisor_for(Choice(crew="crew.toml", journal="runs.db"), lambda _: None)
    assert boss.roster.get("writer") is not None


@pytest.mark.parametrize("wrong", ["requests = 0", 'base_url = "nowhere"', "rate = 5"])
def test_what_is_wrong_with_a_model_of_the_file_is_told_with_its_place(wrong: str) -> None:
    with pytest.raises(UsageError, match="mine"):
        crew_in(f'[models.mine]\nmodel = "openai:x"\nkey_variable = "PATH"\n{wrong}\n{WRITER}')


def test_all_faults_of_a_crew_file_are_told_at_once() -> None:
    with pytest.raises(UsageError, match="3 faults") as caught:
        crew_in(WRITER + "tool = []\ncapacity = 0\n[crew]\nbalance = 'fair'\n")
    assert str(caught.value).count("\n  - ") == 3


def test_several_faults_of_each_worker_and_of_every_kind_are_told_at_once() -> None:
    """Nobody is to mend a file fault by fault, and to start the command again after each."""
    Path("tools.py").write_text(TOOLS)
    with pytest.raises(UsageError) as caught:
        crew_in(
            '[crew]\nmodel = "house"\nmodle = "x"\n[[worker]]\nname = "b"\ndescription = "Does things"\n'
            'tools = ["tools.py:nope", "fils", "tools.py:count"]\nmodel = ["offline", "spare"]\n'
            '[worker.on_failure]\nsteps = ["agian"]\n'
            '[[worker]]\nname = "a"\ndescription = "Counts"\ntools = ["tools.py:count"]\ncapacty = 2\n'
            '[worker.rules]\ninit = ["shout"]\nterminal = ["whisper"]\n'
            '[[worker]]\nname = "b"\ndescription = "Twice"\n[[worker]]\nname = "c"\nmodel = "opnai:x"\n'
        )
    told = str(caught.value)
    for place, word in (
        ("[crew], modle:", "did you mean 'model'?"),
        ("[crew], model:", "no model is called 'house'"),
        ("[[worker]] 1 ('b'):", "nope"),
        ("[[worker]] 1 ('b'):", "no tools are called 'fils'"),
        ("[[worker]] 1 ('b'):", "no model is called 'spare'"),
        ("[[worker]] 1 ('b'):", "'agian'"),
        ("[[worker]] 2 ('a'), capacty:", "did you mean 'capacity'?"),
        ("[[worker]] 2 ('a'):", "'shout'"),
        ("[[worker]] 2 ('a'):", "'whisper'"),
        ("[[worker]] 3 ('b'):", "two workers are named 'b', this one and [[worker]] 1"),
        ("[[worker]] 4 ('c'):", "needs a name and a description"),
        ("[[worker]] 4 ('c'):", "no model is called 'opnai:x'"),
    ):
        lines = [line for line in told.splitlines() if place in line and word in line]
        assert len(lines) == 1, (place, word, told)
    assert told.startswith("crew.toml has 12 faults:")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '[[worker]]\nname = "a"\ndescription = ""\ncapacity = 0\n',
            ["capacity: input should be", "needs a name and a description"],
        ),
        (
            WRITER + 'tools = ["filez", "files:nope", 5]\n',
            ["tools item 3: input should be", "'filez'", "'files:nope'"],
        ),
        (
            "[crew]\njournal = 5\nsettings = { temperature = 9.0 }\n" + WRITER,
            ["[crew], journal:", "[crew], settings: temperature=9.0"],
        ),
    ],
)
def test_a_fault_of_the_form_hides_no_other(text: str, words: list[str]) -> None:
    with pytest.raises(UsageError, match=f"has {len(words)} faults") as caught:
        crew_in(text)
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize("wrong", ["descripton = 'x'", "description = 5"])
def test_a_key_that_cannot_be_read_is_not_missing_as_well(wrong: str) -> None:
    with pytest.raises(UsageError, match="has 1 fault:"):
        crew_in(f"[[worker]]\nname = 'a'\n{wrong}\n")


def test_faults_of_models_are_told_without_those_that_would_follow_from_them() -> None:
    with pytest.raises(UsageError, match="1 fault:") as caught:
        crew_in(
            WRITER + 'model = "house"\n[models.house]\nmodle = "openai:x"\nmodel = "openai:x"\n'
        )
    assert "did you mean 'model'?" in str(caught.value)


def test_the_file_that_init_writes_is_a_sound_crew() -> None:
    template = (ROOT / "src" / "chargehand" / "crews" / "template.toml").read_text()
    assert [each.name for each in crew_in(template).workers] == ["researcher", "analyst", "writer"]


# Tools in one pair of hands


SHARED = """
[[worker]]
name = "one"
description = "Reads"
tools = ["files"]
[[worker]]
name = "two"
description = "Reads too"
tools = ["files:read"]
"""


def test_a_tool_of_two_workers_is_refused_with_both_named() -> None:
    with pytest.raises(UsageError) as caught:
        crew_in(SHARED)
    for word in ("'one'", "'two'", "'read_file'", 'share = ["read_file"]'):
        assert word in str(caught.value)


def test_a_tool_of_two_workers_is_fine_if_the_crew_says_so() -> None:
    assert len(crew_in('[crew]\nshare = ["read_file"]\n' + SHARED).workers) == 2


# Python


def test_a_list_of_workers_in_python_is_a_crew() -> None:
    Path("mine.py").write_text(TOOLS + "\ncrew = [shout]\n")
    crew = python_crew("mine.py:crew", {})[0]
    assert isinstance(crew, Crew)
    assert [each.name for each in crew.workers] == ["shouter"]


def test_a_function_is_given_what_it_asks_for() -> None:
    Path("asking.py").write_text(
        TOOLS + "\ndef crew(model, extra=1):\n    return ch.Supervisor([shout], model=model)\n"
    )
    boss = python_crew("asking.py:crew", {"model": "offline", "files": []})[0]
    assert isinstance(boss, ch.Supervisor)


def test_a_file_finds_its_neighbours() -> None:
    Path("neighbour.py").write_text(TOOLS)
    Path("home.py").write_text("from neighbour import shout\ncrew = [shout]\n")
    assert isinstance(python_crew("home.py:crew", {})[0], Crew)


def test_a_file_called_like_a_module_that_is_there_is_still_found() -> None:
    Path("json.py").write_text("crew = 'mine'\n")
    assert load("json.py:crew", Path.cwd()) == "mine"


@pytest.mark.parametrize(
    ("reference", "text", "told"),
    [
        ("w1.py:crew", "", r"w1.py has no 'crew'; it has nothing of its own"),
        ("w2.py:number", TOOLS, r"w2.py:number is a int; a crew is a Supervisor, a list"),
        ("w3.py:crew", "x = 1\ny = z\n", r"w3.py cannot be loaded: NameError: .*\(w3.py, line 2\)"),
        ("w4.py:crew", "def f(:\n", r"w4.py cannot be loaded: SyntaxError"),
        ("w5.py:crew", "def crew(place): ...", r"wants place; .* may ask for model"),
        ("w6.py:crew", "def crew(): return 1 / 0", r"w6.py:crew failed: ZeroDivisionError"),
        ("w7.py:crew", "crew = []", r"w7.py:crew has no workers"),
        ("w8.py:crew", "x = 1\nraise SystemExit(7)", r"w8.py cannot be .*: 7\) \(w8.py, line 2\)"),
        ("w9.py:crew", "import sys\nsys.exit()", r"w9.py cannot be loaded: it ends the program"),
        ("w10.py:crew", "quit('bye')", r"w10.py cannot be loaded: it ends the program .*: bye"),
        ("w11.py:crew", "def crew(): raise SystemExit(0)", r"w11.py:crew failed: it ends the"),
        (
            "w12.py:crew",
            "def __getattr__(n): raise SystemExit",
            r"w12.py:crew cannot be read: it ends",
        ),
        (
            "w13.py:crew",
            "import other_that_exits",
            r"w13.py cannot .*\(other_that_exits.py, line 1",
        ),
    ],
)
def test_what_is_wrong_with_a_crew_in_python_is_told(reference: str, text: str, told: str) -> None:
    Path("other_that_exits.py").write_text("raise SystemExit(7)\n")
    Path(reference.partition(":")[0]).write_text(text)
    with pytest.raises(UsageError, match=told):
        python_crew(reference, {"model": None})


# The default crew


def test_the_default_crew_has_four_specialists_who_share_no_tool() -> None:
    workers = workers_of(default_crew([DATA]))
    assert list(workers) == ["researcher", "analyst", "writer", "reviewer"]
    names = [name for worker in workers.values() for name in worker.toolbox.names]
    assert len(names) == len(set(names))
    assert workers["researcher"].toolbox.names == ("list_files", "read_file", "search_files")
    assert workers["analyst"].toolbox.names == ("describe_tables", "query_tables", "calculate")
    assert not workers["writer"].toolbox.names


def test_with_a_key_for_it_the_researcher_searches_the_web(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAVE_SEARCH_API_KEY", "k" * 20)
    researcher = workers_of(default_crew([DATA]))["researcher"]
    assert "search_web" in researcher.toolbox
    assert researcher.destinations == {"*"}


def test_tables_among_several_files_are_found() -> None:
    Path("docs").mkdir()
    Path("docs/more.csv").write_text("a,b\n1,2\n")
    crew = default_crew([DATA / "prices.csv", Path("docs")])
    describe = workers_of(crew)["analyst"].toolbox.find("describe_tables")
    found = [table["file"] for table in describe()["tables"].values()]
    assert found == ["docs/more.csv", "prices.csv"]


READERS = {
    "files": WRITER + 'tools = ["files"]\n',
    "data": WRITER + 'tools = ["data:query_tables"]\n',
    "named": WRITER + 'tools = ["own"]\n[tools.own]\nuse = "files"\nhidden = true\n',
    "nested": '[[worker]]\nname = "in"\ndescription = "In"\ncrew = "reader.toml"\n',
}


@pytest.mark.parametrize("is_link", [False, True])
@pytest.mark.parametrize("crew", ["", *READERS])
def test_a_home_folder_is_not_read_unasked(
    crew: str, monkeypatch: pytest.MonkeyPatch, *, is_link: bool
) -> None:
    home = Path.cwd()
    Path("reader.toml").write_text(READERS["files"])
    if crew:
        Path("crew.toml").write_text(READERS[crew])
    if is_link:
        home = home.with_name(f"{home.name}-link")
        home.symlink_to(Path.cwd())
    monkeypatch.setenv("HOME", str(home))
    choice = Choice(crew="crew.toml" if crew else "")
    with pytest.raises(UsageError, match="say what it may read with --files"):
        crew_for(choice)
    crew_for(replace(choice, files=[home]))


@pytest.mark.parametrize("tools", ["maths", "files"])
def test_a_crew_that_reads_nothing_else_works_in_a_home_folder(
    tools: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(Path.cwd()))
    Path("letters").mkdir()
    text = f'{WRITER}tools = ["{tools}"]\n[tools.files]\nfolders = ["letters"]\n'
    Path("crew.toml").write_text(text)
    crew_for(Choice(crew="crew.toml"))


# Settings


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({}, "model: offline, which uses rules, not an LLM"),
        ({"OPENAI_API_KEY": "k"}, "model: openai:gpt-5-mini, because OPENAI_API_KEY is set"),
        ({"ANTHROPIC_API_KEY": "k"}, "model: anthropic:claude-sonnet-5, because"),
        ({"CHARGEHAND_MODEL": "ollama:qwen3", "OPENAI_API_KEY": "k"}, ""),
        ({"CHARGEHAND_MODEL": "offline"}, ""),
    ],
)
async def test_the_model_that_was_chosen_for_the_user_is_said_in_one_line(
    environment: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    said: list[str] = []
    await supervisor_for(Choice(files=[DATA]), said.append).close()
    assert len(said) == bool(told)
    assert told in "".join(said)


@pytest.mark.parametrize("wrong", ["nope", "bos"])
def test_a_wrong_name_of_a_crew_lists_what_can_be_one_nearest_first(wrong: str) -> None:
    Path("team.py").write_text("""
import os, sys
from pathlib import Path
from typing import Any, Literal
import chargehand as ch

@ch.tool(effect="pure")
def note(text: str) -> str:
    "Write a note."
    return text

@ch.worker("ada", "Adds")
async def ada(brief): return 1

def helper(reply): return reply
def make(journal="runs.db"): return boss
crew = [ada]
names = ["ada"]
boss = ch.Supervisor([ada])
""")
    with pytest.raises(UsageError) as refused:
        python_crew(f"team.py:{wrong}", {"journal": ""})
    listed = str(refused.value).partition("; it has ")[2].split(", ")
    assert sorted(listed) == ["boss", "crew", "make"]
    assert wrong == "nope" or listed[0] == "boss"


def test_a_file_without_a_crew_says_what_one_is() -> None:
    Path("lone.py").write_text("def helper(reply): return reply")
    with pytest.raises(UsageError, match="nothing that can be one: a Supervisor, a list of worker"):
        python_crew("lone.py:crew", {})


def test_a_model_that_cannot_be_opened_is_one_fault_wherever_it_is_used() -> None:
    house = '[models.house]\nmodel = "openai:x"\nkey_variable = "HOUSE_KEY"\n'
    worker = '[[worker]]\nname = "{}"\ndescription = "W"\nmodel = "house"\n'
    with pytest.raises(UsageError) as refused:
        crew_in('[crew]\nmodel = "house"\n' + house + worker.format("a") + worker.format("b"))
    assert str(refused.value) == (
        "crew.toml has 1 fault:\n  - [models.house]: key_variable needs HOUSE_KEY, which is not in the environment; set it"
    )


def test_a_server_that_cannot_be_started_is_one_fault_however_many_workers_use_it() -> None:
    server = '[[mcp]]\nname = "desk"\ncommand = ["true"]\nenv = { KEY = "$DESK_KEY" }\n'
    worker = '[[worker]]\nname = "{}"\ndescription = "W"\ntools = ["desk"]\n'
    with pytest.raises(UsageError, match=r"has 1 fault:\n.*DESK_KEY, which is not in the env"):
        crew_in(server + worker.format("a") + worker.format("b"))


def test_a_journal_in_a_database_is_no_path_beside_the_crew_file() -> None:
    place = "postgresql://ada@db.example/runs"
    assert crew_in(f'[crew]\njournal = "{place}"\n{WRITER}').journal == place


async def test_nothing_is_said_of_the_offline_model_where_the_user_chose_it() -> None:
    said: list[str] = []
    await supervisor_for(Choice(files=[DATA], model="offline"), said.append).close()
    assert not said


async def test_a_supervisor_without_a_journal_keeps_its_runs_all_the_same() -> None:
    Path("bare.py").write_text(TOOLS + "\nboss = ch.Supervisor([shout])\n")
    boss = supervisor_for(Choice(crew="bare.py:boss"))
    task = ch.Task(id="t", description="say it", worker="shouter")
    async with boss:
        await boss.run(ch.Plan(goal="g", tasks=[task]))
    assert journal_place().exists()


def test_a_finished_supervisor_is_not_changed_by_flags() -> None:
    Path("made.py").write_text(TOOLS + "\nboss = ch.Supervisor([shout])\n")
    with pytest.raises(UsageError, match=r"--model cannot change made.py:boss"):
        supervisor_for(Choice(crew="made.py:boss", model="offline"))
    with pytest.raises(UsageError, match=r"--files cannot change made.py:boss"):
        supervisor_for(Choice(crew="made.py:boss", files=[Path.cwd()]))


# Lengths of time


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("5m", 300), ("1h30m", 5400), ("0.5s", 0.5), ("250ms", 0.25)]
)
def test_lengths_of_time_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert length_of(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "5", "m", "5 minutes", "-5m", "0s", "1e9s", "9" * 400 + "d"])
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        length_of(text)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0.0s"), (0.44, "0.4s"), (12, "12s"), (185, "3m05s"), (7620, "2h07m"), (500_000, "5d")],
)
def test_lengths_of_time_are_shown_in_a_few_characters(seconds: float, shown: str) -> None:
    assert shown_length(timedelta(seconds=seconds)) == shown
