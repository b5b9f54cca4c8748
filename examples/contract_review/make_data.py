"""Makes the sample data: six supplier contracts, a contract policy, a list of suppliers and a year of invoices.

The same seed always gives the same files. The contract with Norvale holds the planted problem: its annex B
takes back what section 4 promises.
"""

import csv
import random
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).parent / "data"


class Terms(NamedTuple):
    """What is agreed with one supplier."""

    supplier: str
    service: str
    law: str
    start: date
    months: int
    #: days before the end by which notice must be given
    notice: int
    #: months by which the contract renews itself; 0: it ends
    renewal: int
    fee: int
    #: most by which the fee may rise in a year, in percent
    indexation: int
    #: liability cap in months of fees; 0: none
    liability: int
    has_data_terms: bool
    annex: str = ""


CONTRACTS = {
    "norvale": Terms("Norvale Cloud", "hosting of the customer portal", "Ireland", date(2024, 7, 1), 24, 90, 36, 18_500, 0, 12, True,
        "B.1 From the second year the Supplier may increase the monthly fee by up to 15 % in each year.\n"
        "B.2 Where this annex differs from the sections above, this annex applies."),
    "helmsford": Terms("Helmsford Energy", "electricity for the two warehouses", "England", date(2025, 1, 1), 24, 60, 0, 9_200, 3, 12, False),
    "castellan": Terms("Castellan Security", "guards and alarm monitoring", "England", date(2023, 10, 1), 36, 30, 12, 6_400, 4, 12, True),
    "brightline": Terms("Brightline Logistics", "parcel delivery in the north", "England", date(2025, 4, 1), 12, 60, 12, 14_300, 3, 6, True),
    "osier": Terms("Osier Analytics", "forecasts of demand", "Delaware", date(2025, 3, 1), 24, 60, 12, 5_100, 5, 12, False),
    "pellham": Terms("Pellham Cleaning", "cleaning of all sites", "England", date(2025, 2, 1), 24, 30, 12, 2_700, 2, 12, True),
}  # fmt: skip


def contract(terms: Terms) -> str:
    end = _end(terms)
    renewal = (
        f"3.2 Unless a party gives notice, the contract renews itself for {terms.renewal} months."
        if terms.renewal
        else "3.2 The contract ends on that day. It does not renew itself."
    )
    fees = (
        "4.2 The fee is fixed for the whole term."
        if terms.annex
        else f"4.2 The Supplier may increase the fee once a year, by at most {terms.indexation} %."
    )
    data = (
        "6.1 The Supplier processes personal data only as annex A (data processing) says."
        if terms.has_data_terms
        else "6.1 The Supplier may receive names and addresses of customers to provide the service."
    )
    lines = [
        f"# Contract with {terms.supplier}",
        "",
        f"Between Marlow Goods Ltd (the Customer) and {terms.supplier} (the Supplier).",
        "",
        "## 1 Service",
        "",
        f"1.1 The Supplier provides {terms.service}.",
        "1.2 The Supplier reports once a month on what was provided.",
        "",
        "## 2 Start",
        "",
        f"2.1 The contract begins on {terms.start.isoformat()}.",
        "",
        "## 3 Term and notice",
        "",
        f"3.1 The first term is {terms.months} months and ends on {end.isoformat()}.",
        renewal,
        f"3.3 Notice must be given in writing at least {terms.notice} days before the end of the term.",
        "",
        "## 4 Fees",
        "",
        f"4.1 The fee is {terms.fee:,} EUR a month, payable within 30 days.",
        fees,
        "",
        "## 5 Liability",
        "",
        f"5.1 Each party is liable up to the fees of {terms.liability} months.",
        "5.2 Nothing limits liability for intent or gross negligence.",
        "",
        "## 6 Data",
        "",
        data,
        "",
        "## 7 Law",
        "",
        f"7.1 The law of {terms.law} applies.",
    ]
    if terms.annex:
        lines += ["", "## Annex B (commercial terms)", "", terms.annex]
    return "\n".join(lines) + "\n"


POLICY = """# Contract policy of Marlow Goods Ltd

Legal checks every supplier contract against these rules. A breach needs a change or the consent of the board.

P1 A contract renews itself for at most 12 months.
P2 The notice period is at most 60 days.
P3 Fees may rise by at most 5 % in a year.
P4 The supplier is liable for at least the fees of 12 months.
P5 If the supplier receives personal data, the contract has an annex on data processing.
P6 The law is that of England, Ireland or Scotland.
P7 If two parts of a contract contradict each other, both are reported, and the worse one is assumed.
"""


def _end(terms: Terms) -> date:
    months = terms.start.month - 1 + terms.months
    return date(terms.start.year + months // 12, months % 12 + 1, 1) - timedelta(days=1)


def main(target: Path = DATA) -> None:
    draw = random.Random(16)  # noqa: S311  # sample data
    folder = target / "contracts"
    folder.mkdir(parents=True, exist_ok=True)
    for name, terms in CONTRACTS.items():
        (folder / f"{name}.md").write_text(contract(terms), encoding="utf-8")
    (target / "policy.md").write_text(POLICY, encoding="utf-8")
    with (target / "suppliers.csv").open("w", encoding="utf-8", newline="") as file:
        write = csv.writer(file, lineterminator="\n")
        write.writerow(["supplier", "owner", "risk"])
        for terms in CONTRACTS.values():
            write.writerow(
                [
                    terms.supplier,
                    draw.choice(["Ines", "Tom", "Priya"]),
                    draw.choice(["low", "medium", "high"]),
                ]
            )
    with (target / "invoices.csv").open("w", encoding="utf-8", newline="") as file:
        write = csv.writer(file, lineterminator="\n")
        write.writerow(["date", "supplier", "kind", "amount_eur"])
        for month in range(1, 13):
            for terms in CONTRACTS.values():
                day = date(2025, month, draw.randint(1, 28))
                if day >= terms.start:
                    write.writerow([day.isoformat(), terms.supplier, "fee", terms.fee])
                if draw.random() < 0.25:
                    write.writerow(
                        [
                            day.isoformat(),
                            terms.supplier,
                            "extra work",
                            draw.randrange(200, 2400, 50),
                        ]
                    )


if __name__ == "__main__":
    main()
