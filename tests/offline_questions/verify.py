"""The golds of the table questions, computed with nothing but the csv module.

`python -m tests.offline_questions.verify` names every gold that the tables do not bear out.
"""

import csv
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from . import Question, read_questions

HERE = Path(__file__).parent
Row = dict[str, str]
Ranked = tuple[str, float]


def table(name: str, keep: Callable[[Row], bool] = lambda row: True) -> list[Row]:
    with (HERE / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if keep(row)]


def values(rows: Iterable[Row], column: str) -> list[float]:
    return [float(row[column]) for row in rows if row[column]]


def mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)


def most(totals: Mapping[str, float]) -> Ranked:
    """The one with the most, and how much; there must be no second one with as much."""
    first, second = sorted(totals, key=lambda name: totals[name], reverse=True)[:2]
    assert totals[first] > totals[second]
    return first, totals[first]


def totals(rows: Iterable[Row], by: str, column: str) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for row in rows:
        found[row[by]] += float(row[column] or 0)
    return found


def computed() -> dict[str, float | Ranked]:
    """By question: what the tables say."""
    leave, staff = table("handbook/leave"), table("handbook/staff")
    appointments = table("clinic/appointments")
    vaccines = table("clinic/vaccines", lambda row: row["doses_in_stock"] != "")
    rentals, bikes = table("bikes/rentals"), table("bikes/bikes")
    loans, books = table("library/loans"), table("library/books")
    readings, harvest = table("greenhouse/readings"), table("greenhouse/harvest")
    invoices, tickets = table("it_contract/invoices"), table("it_contract/tickets")

    fewest_doses = min((float(r["doses_in_stock"]), r["vaccine"]) for r in vaccines)[::-1]

    def where(rows: list[Row], **wanted: str) -> list[Row]:
        """Rows whose columns begin with these values; a date begins with its year and month."""
        return [r for r in rows if all(r[name].startswith(v) for name, v in wanted.items())]

    return {
        "How many days of sick leave were taken in 2025?": sum(
            values(where(leave, kind="sick", first_day="2025"), "days")
        ),
        "How many people work in the Lisbon office?": len(where(staff, office="Lisbon")),
        "Which department has the most employees?": most(Counter(r["department"] for r in staff)),
        "What is the average annual salary in Engineering?": mean(
            values(where(staff, department="Engineering"), "annual_salary_eur")
        ),
        "who took the most days of parental leave?": most(
            totals(where(leave, kind="parental"), "employee", "days")
        ),
        "How many appointments did Dr. Okafor have in January 2025?": len(
            where(appointments, clinician="Dr. Okafor", date="2025-01")
        ),
        "What is the total of the fees in cardiology?": sum(
            values(where(appointments, specialty="cardiology"), "fee_chf")
        ),
        "How many appointments were no-shows?": len(where(appointments, status="no-show")),
        "How long was the longest appointment, in minutes?": max(
            values(appointments, "duration_min")
        ),
        "How many different patients had an appointment?": len(
            {r["patient_no"] for r in appointments}
        ),
        "Which vaccine has the fewest doses in stock?": fewest_doses,
        "How much was paid for rentals in June 2025?": sum(
            values(where(rentals, rented_on="2025-06"), "paid_eur")
        ),
        "How many rentals lasted more than 5 hours?": sum(h > 5 for h in values(rentals, "hours")),
        "Which station has the most rentals?": most(Counter(r["station"] for r in rentals)),
        "What is the average purchase price of an e-bike?": mean(
            values(where(bikes, type="e-bike"), "purchase_price")
        ),
        "Which bike has the highest mileage?": most(totals(bikes, "bike_id", "odometer_km")),
        "How often did Meyer rent a bike?": len(where(rentals, customer="Meyer")),
        "How many titles are there in the genre crime?": len(where(books, genre="crime")),
        "How many copies do we have of all books together?": sum(values(books, "copies")),
        "Which book has the most pages?": most(totals(books, "title", "pages")),
        "How many loans have not been returned yet?": sum(not r["returned_on"] for r in loans),
        "How many loans were there at the Harbour branch in 2025?": len(
            where(loans, branch="Harbour", loaned_on="2025")
        ),
        "How many books were published before 2010?": sum(
            year < 2010 for year in values(books, "published")
        ),
        "What was the highest temperature in zone B?": max(
            values(where(readings, zone="B"), "temp_c")
        ),
        "How many kg of tomatoes were harvested in 2025?": sum(
            values(where(harvest, crop="tomato", date="2025"), "weight_kg")
        ),
        "Which crop had the largest harvest in 2024?": most(
            totals(where(harvest, date="2024"), "crop", "weight_kg")
        ),
        "What was the average humidity in zone A?": mean(
            values(where(readings, zone="A"), "humidity_pct")
        ),
        "How many readings show more than 1100 ppm of CO2?": sum(
            ppm > 1100 for ppm in values(readings, "co2_ppm")
        ),
        "What was the lowest temperature on 3 July 2025?": min(
            values(where(readings, time="2025-07-03"), "temp_c")
        ),
        "What is the total of all unpaid invoices?": sum(
            values(where(invoices, status="unpaid"), "amount_eur")
        ),
        "How much did Norvik Services invoice in 2024?": sum(
            values(where(invoices, vendor="Norvik Services", issued="2024"), "amount_eur")
        ),
        "How many tickets of priority high were opened in 2025?": len(
            where(tickets, priority="high", opened="2025")
        ),
        "How many hours did it take on average to resolve a network ticket?": mean(
            values(where(tickets, category="network"), "hours_to_resolve")
        ),
        "Who handled the most tickets?": most(Counter(r["handled_by"] for r in tickets)),
        "How many invoices have a VAT of 15 %?": len(where(invoices, vat_pct="15")),
    }


def computed_for_files() -> dict[str, float | Ranked]:
    """By question of `files.toml`: what the table says."""
    actions = table("meetings/actions")
    owners = {r["action"]: r["owner"] for r in actions}
    return {
        "How many actions in the table are open?": sum(r["status"] == "open" for r in actions),
        "Which action on the list takes the most hours?": most(totals(actions, "action", "hours")),
        "How many hours are listed for Ines?": totals(actions, "owner", "hours")["Ines"],
        "Who is the owner of the printer order in the table?": (owners["printer order"], 0),
    }


def is_borne_out(question: Question, value: float | Ranked | None) -> bool:
    """A table's gold is what was computed; a text's gold stands in a document of its folder."""
    if question.kind == "unanswerable":
        return question.number is None and not question.contains and not question.any
    if question.kind == "files":
        listed = {file.name: file.stat().st_size for file in (HERE / question.folder).iterdir()}
        told = {*listed, *map(str, listed.values())}
        return question.number == len(listed) or told >= {*question.contains, *question.lacks}
    if question.kind == "text":
        files = sorted((HERE / question.folder).glob("*.[mt]*"))
        said = "\n".join(file.read_text(encoding="utf-8") for file in files)
        return bool(question.contains or question.any) and question.is_met_by_words(said)
    if isinstance(value, tuple):
        beside = question.beside or 0
        return question.is_met_by_words(value[0]) and beside == round(value[1], 3)
    assert value is not None
    return question.number is not None and abs(value - question.number) <= question.tolerance


def main() -> None:
    found = computed()
    for question in read_questions():
        if not is_borne_out(question, found.get(question.ask)):
            print(question.ask, question.number, found.get(question.ask))


if __name__ == "__main__":
    main()
