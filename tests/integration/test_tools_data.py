"""The data tools: what they take in, and that a query can do nothing but read the tables."""

import importlib.util
import json
import re
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from chargehand.errors import ToolError
from chargehand.tools import sql_tables as data_module
from chargehand.tools import table_process as tables
from chargehand.tools.base import Tool, ToolContext
from chargehand.tools.sql_tables import data

CANARY = "canary-7d1f"


async def call(called: Tool, **arguments: Any) -> Any:
    return (await called.call(ToolContext(), json.dumps(arguments))).value


async def refused(called: Tool, **arguments: Any) -> ToolError:
    with pytest.raises(ToolError) as caught:
        await call(called, **arguments)
    return caught.value


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "inside"
    (inside / "more").mkdir(parents=True)
    (inside / "cities.csv").write_text("city,people\nBern,134000\nZug,31000\n")
    (inside / "more" / "people.jsonl").write_text('{"name": "Ada", "at": {"city": "Bern"}}\n')
    (tmp_path / "secret.csv").write_text(f"a\n{CANARY}\n")
    return inside


async def test_files_become_tables(folder: Path) -> None:
    import duckdb

    with duckdb.connect() as connection:
        connection.execute(
            f"copy (select 1 as n, date '2024-01-02' as day) to '{folder / 'facts.parquet'}'"
        )
    (folder / "2024 sales.tsv").write_text("item\tprice\nsoap\t1.50\n")
    (folder / "more" / "cities.json").write_text('[{"city": "Basel"}]')
    describe_tables, query_tables = data(folder)
    described = (await call(describe_tables))["tables"]
    assert {name: table["file"] for name, table in described.items()} == {
        "t_2024_sales": "2024 sales.tsv",
        "cities": "cities.csv",
        "facts": "facts.parquet",
        "cities_2": "more/cities.json",
        "people": "more/people.jsonl",
    }
    assert described["cities"]["rows"] == 2
    assert described["facts"]["first_rows"] == [[1, "2024-01-02"]]
    answer = await call(
        query_tables,
        sql="select p.name, c.people from people p join cities c on c.city = p.at.city",
    )
    assert answer == {"columns": ["name", "people"], "rows": [["Ada", 134000]]}


async def test_tables_follow_the_files(folder: Path) -> None:
    describe_tables, query_tables = data(folder)
    assert set((await call(describe_tables))["tables"]) == {"cities", "people"}
    (folder / "cities.csv").write_text("city,people\nGenf,200000\n")
    (folder / "more" / "people.jsonl").unlink()
    (folder / "new.csv").write_text("a\n1\n")
    assert (await call(query_tables, sql="from cities"))["rows"] == [["Genf", 200000]]
    assert set((await call(describe_tables))["tables"]) == {"cities", "new"}
    assert "people" in str(await refused(query_tables, sql="from people"))


ATTACKS = [
    "select * from read_csv('{secret}')",
    "select * from '{secret}'",
    "from '{secret}'",
    'select * from "{secret}"',
    "select * from read_text('{secret}')",
    "select * from read_blob('{secret}')",
    "select * from read_json_auto('{secret}')",
    "select * from read_parquet('{secret}')",
    "select * from parquet_metadata('{secret}')",
    "select * from sniff_csv('{secret}')",
    "select * from glob('{folder}/*')",
    "select * from read_csv('/proc/self/environ')",
    "select * from read_text('/etc/passwd')",
    "select * from 'https://example.org/x.csv'",
    "select * from read_csv('s3://bucket/x.csv')",
    "select * from query('select * from read_text(''{secret}'')')",
    "select * from query_table('{secret}')",
    "select content from (select * from read_text('{secret}'))",
    "with x as (from read_text('{secret}')) select * from x",
    "select (select content from read_text('{secret}'))",
    "copy cities to '{out}'",
    "copy (select 1) to '{out}' (format parquet)",
    "copy cities from '{secret}'",
    "export database '{out}'",
    "import database '{folder}'",
    "attach '{out}' as other",
    "attach '{secret}' as other (type sqlite)",
    "create table x (a int)",
    "create or replace view cities as select 1",
    "create macro f(a) as a",
    "create secret (type s3)",
    "insert into cities values ('x', 1)",
    "update cities set people = 0",
    "delete from cities",
    "drop table cities",
    "truncate cities",
    "alter table cities add column x int",
    "install httpfs",
    "load httpfs",
    "install 'httpfs' from 'http://example.org'",
    "set enable_external_access = true",
    "set memory_limit = '100GB'",
    "reset memory_limit",
    "pragma enable_profiling",
    "pragma database_list",
    "call pragma_version()",
    "checkpoint",
    "vacuum",
    "begin",
    "prepare x as select 1",
    "execute x",
    "explain analyze copy cities to '{out}'",
    "select 1; copy cities to '{out}'",
    "select 1; drop table cities",
    "select 1 -- \n; drop table cities",
    "/* */ drop table cities",
    "'; drop table cities; --",
    "select getenv('PATH')",
    "select * from folder",
    "select * from sys",
    "select * from connection",
    "select * from duckdb_secrets()",
    "use other",
    "",
    ";",
    "\0",
    "select",
    "(((",
]


def aimed(attack: str, folder: Path) -> str:
    """An attack with the paths of this test in it."""
    for name, path in (("secret", "secret.csv"), ("folder", ""), ("out", "out")):
        attack = attack.replace(f"{{{name}}}", str(folder.parent / path))
    return attack


@pytest.mark.parametrize("attack", ATTACKS)
def test_i7_no_statement_reads_outside_writes_or_loads(folder: Path, attack: str) -> None:
    """In this process, where there is more to be had than in the one where queries run."""
    database = str(folder.parent / "d.duckdb")
    cities = {"name": "cities", "file": str(folder / "cities.csv"), "form": "csv"}
    assert tables.load(database, [cities], []).get("failed") == {}
    before = sorted(folder.parent.rglob("*"))
    answer = tables.query(database, aimed(attack, folder), 10)
    assert "error" in answer
    assert CANARY not in json.dumps(answer)
    assert sorted(folder.parent.rglob("*")) == before
    assert tables.query(database, "select count(*) from cities", 1)["rows"] == [[2]]


@pytest.mark.parametrize("attack", ATTACKS[::11])
async def test_i7_the_model_is_told_of_a_refusal(folder: Path, attack: str) -> None:
    failure = await refused(data(folder)[1], sql=aimed(attack, folder))
    assert failure.kind == "logic"
    assert CANARY not in str(failure)


async def test_i7_names_of_files_and_columns_are_only_names(tmp_path: Path) -> None:
    evil = 'a"; drop table b; --'
    (tmp_path / f"{evil}.csv").write_text(f'"{evil.replace(chr(34), chr(34) * 2)}",b\n1,2\n')
    (tmp_path / "b.csv").write_text("x\n1\n")
    describe_tables, query_tables = data(tmp_path)
    described = (await call(describe_tables))["tables"]
    assert set(described) == {"a_drop_table_b", "b"}
    assert (await call(query_tables, sql="from a_drop_table_b"))["columns"][0] == evil


async def test_i5_a_link_out_of_the_folder_is_no_table(folder: Path) -> None:
    (folder / "link.csv").symlink_to("../secret.csv")
    describe_tables, _ = data(folder)
    described = await call(describe_tables)
    assert "link" not in described["tables"]
    assert CANARY not in json.dumps(described)


async def test_the_environment_is_not_handed_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", CANARY)
    seen: list[Any] = []
    run = subprocess.run

    def spied(*args: Any, **kwargs: Any) -> Any:
        seen.append(kwargs["env"])
        return run(*args, **kwargs)

    monkeypatch.setattr(subprocess, "run", spied)
    await call(data(folder)[0])
    assert seen == [{}]


async def test_a_query_that_takes_too_long_is_ended(folder: Path) -> None:
    _, query_tables = data(folder, timeout=timedelta(seconds=2))
    endless = (
        "select count(*) from range(1000000) a, range(1000000) b where a.range * b.range % 7 = 3"
    )
    failure = await refused(query_tables, sql=endless)
    assert failure.kind == "timeout"


@pytest.mark.parametrize(
    "sql",
    [
        "select repeat('x', 4000000000)",
        "select list(range) from range(1000000000)",
        "select string_agg(repeat('x', 1000000)) from range(100000)",
    ],
)
async def test_a_query_that_takes_too_much_memory_is_a_failure_of_its_own(
    folder: Path, sql: str
) -> None:
    _, query_tables = data(folder)
    await refused(query_tables, sql=sql)
    assert (await call(query_tables, sql="select 1 as one"))["rows"] == [[1]]


async def test_rows_and_cells_are_bounded(folder: Path) -> None:
    _, query_tables = data(folder)
    answer = await call(query_tables, sql="select * from range(5000)", most=10)
    assert len(answer["rows"]) == 10
    assert answer["more"] == "only the first 10 rows are shown"
    ((cell,),) = (await call(query_tables, sql="select repeat('x', 100000)"))["rows"]
    assert cell.endswith("(100000 characters)")
    assert len(cell) < 2_100
    await refused(query_tables, sql="select 1", most=100_000)


async def test_every_kind_of_value_comes_out_as_json(folder: Path) -> None:
    _, query_tables = data(folder)
    sql = """
    select 1::hugeint * 10::hugeint ** 0 as one, 170141183460469231731687303715884105727 as huge,
      1.10::decimal(10, 2) as price, 'nan'::double as nan, timestamptz '2024-01-02 03:04:05+00' as at,
      time '12:00' as noon, [1, 2] as list, {'a': 1} as struct, 'ab'::blob as bytes, null as nothing,
      uuid '00000000-0000-0000-0000-000000000001' as id, interval 1 day as span, true as yes
    """
    answer = await call(query_tables, sql=sql)
    row = dict(zip(answer["columns"], answer["rows"][0], strict=True))
    assert row["huge"] == "170141183460469231731687303715884105727"
    assert (row["price"], row["nan"], row["list"], row["struct"]) == (1.1, "nan", [1, 2], {"a": 1})
    assert row["at"].startswith("2024-01-02 03:04:05")
    assert (row["noon"], row["bytes"], row["nothing"]) == ("12:00:00", "6162", None)


async def test_a_mistake_is_told_in_the_databases_words_with_the_tables(folder: Path) -> None:
    _, query_tables = data(folder)
    failure = await refused(query_tables, sql="select peple from cities")
    assert "people" in str(failure)
    assert "- cities: city, people\n- people: name, at" in str(failure)


async def test_a_file_that_is_no_table_is_told_and_the_others_work(folder: Path) -> None:
    (folder / "broken.parquet").write_bytes(b"PAR1 no")
    (folder / "mixed.csv").write_text("n\n" + "1\n" * 30_000 + "x\n")
    describe_tables, query_tables = data(folder)
    described = (await call(describe_tables))["tables"]
    assert "error" in described["broken"]
    assert described["mixed"]["columns"] == {"n": "VARCHAR"}
    assert (await call(query_tables, sql="select count(*) from cities"))["rows"] == [[2]]


async def test_a_file_that_is_too_large_is_named_and_not_taken_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_module, "MOST_BYTES", 40)
    (folder / "large.csv").write_text("a\n" + "1\n" * 100)
    assert "larger than" in (await call(data(folder)[0]))["tables"]["large"]["error"]


async def test_an_empty_folder_has_no_tables(tmp_path: Path) -> None:
    assert (await call(data(tmp_path)[0]))["tables"] == {}


@pytest.fixture
def no_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "duckdb" else find(name)
    )


@pytest.mark.usefixtures("no_duckdb")
async def test_without_its_package_the_way_out_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    error = await refused(data(tmp_path)[0])
    assert "chargehand[data]" in str(error)
    assert error.kind == "denied"
    (tmp_path / "b.csv").write_text("n\n1\n")
    tables = (await call(data(tmp_path)[0]))["tables"]
    assert "chargehand[data]" in tables["a"]["error"]
    assert tables["b"]["rows"] == 1


MIXED = """id,name,born,weight,paid,note
1,Ada,2020-01-31,"1,200",yes,"a, b"
2,Bo,,n/a,no,
3,Cy,2021-12-01,7,yes,-
"""
QUERIES = (
    "select count(*), sum(weight), avg(weight), min(born), count(born) from t",
    "select name, cast(born as varchar), cast(paid as varchar), rowid + 2 from t order by name",
    "select cast(paid as varchar), count(*) from t group by 1 order by 2 desc",
    "select name from t where cast(born as varchar) >= '2021' and weight > 5",
    "select note from t where id = 2 union all select note from t where id = 1",
    "select name from t where id = 9",
)


async def test_sqlite_and_duckdb_give_the_same_types_and_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.csv").write_text(MIXED)
    told = []
    for find in (importlib.util.find_spec, lambda _: None):
        monkeypatch.setattr(importlib.util, "find_spec", find)
        describe_tables, query_tables = data(tmp_path)
        columns = (await call(describe_tables))["tables"]["t"]["columns"]
        rows = [(await call(query_tables, sql=sql))["rows"] for sql in QUERIES]
        told.append((columns, rows))
    assert told[0][0] == told[1][0]
    assert [list(map(str, each)) for each in told[0][1]][1:] == [
        list(map(str, each)) for each in told[1][1]
    ][1:]
    assert told[1][1][0][0][:2] == [3, 1207]


@pytest.mark.usefixtures("no_duckdb")
@pytest.mark.parametrize(
    "sql",
    [
        *("delete from t", "attach '/etc/passwd' as x", "pragma writable_schema = 1", "vacuum"),
        *("select 1; select 2", "select load_extension('x')", "create table x (a)", "", "-- no"),
        "update t set id = 1 returning id",
    ],
)
async def test_sqlite_runs_one_select_and_nothing_else(tmp_path: Path, sql: str) -> None:
    (tmp_path / "t.csv").write_text(MIXED)
    query_tables = data(tmp_path)[1]
    await refused(query_tables, sql=sql)
    assert (await call(query_tables, sql="select count(*) from t"))["rows"] == [[3]]


async def test_what_comes_out_of_data_is_untrusted(folder: Path) -> None:
    describe_tables, _ = data(folder)
    result = await describe_tables.call(ToolContext(), "")
    assert result.taint == ("tool:describe_tables",)


#: what a file holds, and what must be read of it: the names and types of the columns, the number of rows, some row
LAYOUTS: dict[str, tuple[str, dict[str, str], int, list[Any]]] = {
    "a column is added later": (
        "product,amount\n" + "hat,10\n" * 30 + "hat,10,ok\n" * 70,
        {"product": "VARCHAR", "amount": "BIGINT", "column2": "VARCHAR"},
        100,
        ["hat", 10, None],
    ),
    "a column is added after what is sampled": (
        "product,amount\n" + "hat,10\n" * 30_000 + "hat,10,ok\n",
        {"product": "VARCHAR", "amount": "BIGINT", "column2": "VARCHAR"},
        30_001,
        ["hat", 10, None],
    ),
    "a type changes after what is sampled": (
        "a,b\n" + "1,2\n" * 30_000 + "x,3\n",
        {"a": "VARCHAR", "b": "BIGINT"},
        30_001,
        ["1", 2],
    ),
    "a short row": (
        "a,b,c\n1,2\n3,4,5\n",
        {"a": "BIGINT", "b": "BIGINT", "c": "BIGINT"},
        2,
        [1, 2, None],
    ),
    "a cell begins with #": (
        "order,amount\n#2,20\n3,30\n",
        {"order": "VARCHAR", "amount": "BIGINT"},
        2,
        ["#2", 20],
    ),
    "a day that does not exist": (
        "due,amount\n2024-02-30,20\n2024-03-01,40\n",
        {"due": "VARCHAR", "amount": "BIGINT"},
        2,
        ["2024-02-30", 20],
    ),
    "codes with leading zeros": (
        "account,owner\n00123,ann\n1234,bob\n",
        {"account": "VARCHAR", "owner": "VARCHAR"},
        2,
        ["00123", "ann"],
    ),
    "titles above the columns": (
        "Report of May\n# by ann, bob, and cy\n\nproduct,amount\nhat,10\ncoat,20\n",
        {"product": "VARCHAR", "amount": "BIGINT"},
        2,
        ["hat", 10],
    ),
    "a comment with as many cells as there are columns": (
        "# made by X, 2025\n# for Y, 2026\nid,v\n1,2\n3,4\n",
        {"id": "BIGINT", "v": "BIGINT"},
        2,
        [1, 2],
    ),
    "names that begin with #": (
        "#,item\n1,n/a\n2,hat\n",
        {"#": "BIGINT", "item": "VARCHAR"},
        2,
        [1, "n/a"],
    ),
    "a line that names the delimiter": (
        "sep=;\nproduct;amount\nhat;10\ncoat;20\n",
        {"product": "VARCHAR", "amount": "BIGINT"},
        2,
        ["hat", 10],
    ),
    "titles that are filled up with delimiters": (
        "Report of May,,\nAccount:,123,\n,,\nday,product,amount\n2024-05-01,hat,10\n2024-05-02,coat,20\n",
        {"day": "DATE", "product": "VARCHAR", "amount": "BIGINT"},
        2,
        ["2024-05-01", "hat", 10],
    ),
    "a title above words only": (
        "Report of May,,\nproduct,color,shop\nhat,red,North\ncoat,blue,South\n",
        {"product": "VARCHAR", "color": "VARCHAR", "shop": "VARCHAR"},
        2,
        ["hat", "red", "North"],
    ),
    "a name is missing": (
        "product,\nhat,10\ncoat,20\n",
        {"product": "VARCHAR", "column1": "BIGINT"},
        2,
        ["hat", 10],
    ),
    "the first name is missing": (
        ",amount\nhat,10\ncoat,20\n",
        {"column0": "VARCHAR", "amount": "BIGINT"},
        2,
        ["hat", 10],
    ),
    "names in two rows": (
        ",2023,,2024,\nproduct,units,price,units,price\nhat,1,2,3,4\ncoat,1,2,3,4\n",
        {
            "column0": "VARCHAR",
            "2023": "VARCHAR",
            "column2": "VARCHAR",
            "2024": "VARCHAR",
            "column4": "VARCHAR",
        },
        3,
        ["product", "units", "price", "units", "price"],
    ),
    "commas in decimals": (
        "product;amount\nhat;10,5\ncoat;20,5\n",
        {"product": "VARCHAR", "amount": "VARCHAR"},
        2,
        ["hat", "10,5"],
    ),
    "a line break in a cell": (
        'a,b\n"x\ny",1\n"x,y",2\n',
        {"a": "VARCHAR", "b": "BIGINT"},
        2,
        ["x\ny", 1],
    ),
    "line breaks in a name": (
        'product,"unit\nprice\n(EUR)"\nlamp,10\ndesk,20\nbed,30\n',
        {"product": "VARCHAR", "unit\nprice\n(EUR)": "BIGINT"},
        3,
        ["lamp", 10],
    ),
    "line breaks of several kinds in cells, and a long row": (
        'a,b\r\n"x\ny",1\r\n"x\r\ny",2\r\n"x\ry",3,4\r\n',
        {"a": "VARCHAR", "b": "BIGINT", "column2": "BIGINT"},
        3,
        ["x\ny", 1, None],
    ),
    "a line break in a title": (
        '"Report\nof June"\nname,amount\nhat,10\ncoat,20\n',
        {"name": "VARCHAR", "amount": "BIGINT"},
        2,
        ["hat", 10],
    ),
    "a line break in a name, and a long row": (
        '"na\nme",amount\nhat,10\ncoat,20,9\n',
        {"na\nme": "VARCHAR", "amount": "BIGINT", "column2": "BIGINT"},
        2,
        ["hat", 10, None],
    ),
    "one column with a comma": (
        "name\nann\nSmith, bob\n",
        {"name": "VARCHAR"},
        2,
        ["ann"],
    ),
    "no names": (
        "hat,10\ncoat,20\n",
        {"column0": "VARCHAR", "column1": "BIGINT"},
        2,
        ["hat", 10],
    ),
    "years for names": (
        "product,2023,2024\nhat,10,20\n",
        {"product": "VARCHAR", "2023": "BIGINT", "2024": "BIGINT"},
        1,
        ["hat", 10, 20],
    ),
    "other line separators in a name": (
        "prod\u2028uct\x0c,amount\nhat,10\ncoat,20\n",
        {"prod\u2028uct": "VARCHAR", "amount": "BIGINT"},
        2,
        ["hat", 10],
    ),
    "only names": ("a,b\n", {"a": "VARCHAR", "b": "VARCHAR"}, 0, []),
}


@pytest.mark.parametrize("engine", ["duckdb", "sqlite"])
@pytest.mark.parametrize("name", LAYOUTS)
async def test_no_row_and_no_value_of_a_csv_file_is_lost(
    name: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_module, "_has_duckdb", lambda: engine == "duckdb")
    text, columns, rows, first = LAYOUTS[name]
    (tmp_path / "t.csv").write_text(text, newline="")
    describe_tables, query_tables = data(tmp_path)
    told = (await call(describe_tables))["tables"]["t"]
    assert (told.get("columns"), told.get("rows")) == (columns, rows), told
    assert told["first_rows"][:1] == ([first] if first else [])
    assert (await call(query_tables, sql="select count(*) from t"))["rows"] == [[rows]]


async def test_large_whole_numbers_in_json_are_not_rounded(tmp_path: Path) -> None:
    """Two ids that differ only beyond 64 bits stay two."""
    large, larger = 2**64 + 1, 2**64 + 2
    (tmp_path / "t.json").write_text(
        f"""[{{"it's": {large}, "v": 0.5, "w": {10**40 + 1}}}, {{"it's": {larger}, "v": 1e300}}]"""
    )
    (tmp_path / "list.json").write_text(f"[1, {large}]")
    describe_tables, query_tables = data(tmp_path)
    tables = (await call(describe_tables))["tables"]
    assert tables["t"]["columns"] == {"it's": "HUGEINT", "v": "DOUBLE", "w": "VARCHAR"}
    rows = (await call(query_tables, sql="from t order by 1"))["rows"]
    assert rows == [[str(large), 0.5, str(10**40 + 1)], [str(larger), 1e300, None]]
    rows = (await call(query_tables, sql="from list"))["rows"]
    assert rows == [[1], [str(large)]]


async def test_json_texts_beside_numbers_have_no_quotation_marks(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(
        '[{"id": 123, "of": [1]}, {"id": "1\\"4", "of": "x"}, {"id": null}, {"id": true}]'
    )
    describe_tables, query_tables = data(tmp_path)
    columns = (await call(describe_tables))["tables"]["t"]["columns"]
    assert columns == {"id": "VARCHAR", "of": "JSON"}
    rows = (await call(query_tables, sql="select id from t"))["rows"]
    assert rows == [["123"], ['1"4'], [None], ["true"]]


@pytest.mark.parametrize("engine", ["duckdb", "sqlite"])
@pytest.mark.parametrize(
    ("dates", "first", "order"),
    [
        ("03/04/2025 3/12/2025", "2025-04-03", "day/month/year"),
        ("03-04-2025 03-04-2025", "2025-04-03", "day/month/year"),
        # One row shows the order.
        ("03/04/2025 13/04/2025", "2025-04-03", ""),
        ("03/04/2025 04/13/2025", "2025-03-04", ""),
        ("2025-04-03 2025-04-05", "2025-04-03", ""),
    ],
)
async def test_how_dates_were_read_is_told_if_no_row_shows_it(
    dates: str,
    first: str,
    order: str,
    engine: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(data_module, "_has_duckdb", lambda: engine == "duckdb")
    (tmp_path / "t.csv").write_text("name,day\n" + "".join(f"hat,{day}\n" for day in dates.split()))
    told = (await call(data(tmp_path)[0]))["tables"]["t"]
    assert (told["columns"]["day"], told["first_rows"][0]) == ("DATE", ["hat", first])
    note = f"read as {order}; the file does not say whether that is meant"
    assert told.get("dates") == ({"day": note} if order else None)


async def test_dates_with_two_digits_for_the_year_are_told_as_read(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("name,day\nhat,03/04/25\ncoat,05/06/25\n")
    told = (await call(data(tmp_path)[0]))["tables"]["t"]
    assert told["first_rows"][0] == ["hat", "2003-04-25"]
    assert told["dates"]["day"].startswith("read as year/month/day;")


REPEATED = "day,product,amount\n2024-05-01,hat,10\n,,\nday,product,amount\n2024-05-02,coat,20\n\nday,product,amount\n"


@pytest.mark.parametrize("engine", ["duckdb", "sqlite"])
async def test_rows_that_repeat_the_names_are_left_out_and_counted(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are joined with their names, and spreadsheets export empty rows."""
    monkeypatch.setattr(data_module, "_has_duckdb", lambda: engine == "duckdb")
    (tmp_path / "t.csv").write_text(REPEATED)
    (tmp_path / "words.csv").write_text("word\nhat\n\nword\n")
    describe_tables, query_tables = data(tmp_path)
    assert describe_tables.holds is not None
    (before, _) = describe_tables.holds().tables
    tables = (await call(describe_tables))["tables"]
    told = tables["t"]
    assert told["columns"] == {"day": "DATE", "product": "VARCHAR", "amount": "BIGINT"}
    assert (told["rows"], "first_line" in told) == (2, False)
    assert told["left_out"] == "2 rows that repeat the names of the columns"
    assert (before.rows, dict(before.columns)) == (2, told["columns"])
    rows = (await call(query_tables, sql="select product, amount from t order by 1"))["rows"]
    assert rows == [["coat", 20], ["hat", 10]]
    # In a table of one column, such a row may be data.
    assert (tables["words"]["rows"], "left_out" in tables["words"]) == (2, False)


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("t.csv", b'a,b\n1,"x\n3,4\n', "a cell in quotation marks does not end"),
        ("t.csv", b"a,b\n1,x\0y\n", "binary data"),
        ("t.xlsx", b"PK", "spreadsheets cannot be read; save it as CSV"),
        ("t.csv", b"", "it is empty"),
        ("t.json", b'[{"a": 1}, {"a": 2},', r"cut off: it begins with \["),
        ("t.jsonl", b'{"a": 1}\n{"a":', "unexpected end of data"),
    ],
)
async def test_a_file_that_cannot_be_read_whole_is_refused(
    file: str, text: bytes, why: str, tmp_path: Path
) -> None:
    (tmp_path / file).write_bytes(text)
    told = (await call(data(tmp_path)[0]))["tables"]["t"]
    assert set(told) == {"file", "error"}
    assert re.search(why, told["error"]), told
    assert str(tmp_path) not in told["error"]
    assert "chargehand-tables" not in told["error"]


@pytest.mark.parametrize("engine", ["duckdb", "sqlite"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252"])
async def test_csv_files_are_read_in_the_encodings_in_which_texts_are(
    encoding: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_module, "_has_duckdb", lambda: engine == "duckdb")
    (tmp_path / "t.csv").write_bytes("place,n\ncafé,1\n€ bar,2\n".encode(encoding))
    describe_tables, query_tables = data(tmp_path)
    assert describe_tables.holds is not None
    (entry,) = describe_tables.holds().tables
    assert (entry.columns[0], entry.sample) == (("place", "VARCHAR"), "café, 1")
    rows = (await call(query_tables, sql="select place, n from t order by n"))["rows"]
    assert rows == [["café", 1], ["€ bar", 2]]


async def test_planners_are_told_of_tables_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n1\n")
    (tmp_path / "b.xlsx").write_bytes(b"PK")
    describe_tables, _ = data(tmp_path)
    assert describe_tables.holds is not None
    before = describe_tables.holds()
    await call(describe_tables)
    for held in (before, describe_tables.holds()):
        assert [(t.name, bool(t.error)) for t in held.tables] == [("a", False), ("b", True)]


@pytest.mark.parametrize("engine", ["duckdb", "sqlite"])
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a,b\n1,2\n3,4\n", 2),
        ("a,b\r\n1,2\r\n3,4\r\n\r\n", 2),
        ("hat,10\ncoat,20\n", 1),
        ("Report of May\n\nproduct,amount\nhat,10\ncoat,20", 4),
        # No row can be found by counting lines.
        ("a,b\n1,2\n\n3,4\n", None),
        ('a,b\n"x\ny",2\nz,4\n', None),
        ("a,b\n", None),
    ],
)
async def test_the_line_of_the_first_row_is_told_if_rows_are_lines(
    text: str, line: int | None, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_module, "_has_duckdb", lambda: engine == "duckdb")
    (tmp_path / "t.csv").write_bytes(text.encode())
    assert (await call(data(tmp_path)[0]))["tables"]["t"].get("first_line") == line
