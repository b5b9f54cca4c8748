"""Makes the sample data: the records of a patient who does not exist.

The same seed always gives the same files. Two problems are planted. Spironolactone (from the cardiologist) and
trimethoprim (from the urologist) interact, and neither doctor knows of the other's prescription. And the potassium that
was ordered after both were prescribed has no result.
"""

import csv
import random
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).parent / "data"
PATIENT = "Sample Patient 0042 (invented)"
GP, CARDIOLOGIST, UROLOGIST = "Dr Ines Varga", "Dr Maren Holt", "Dr Kofi Bram"


class Visit(NamedTuple):
    day: date
    doctor: str
    place: str
    reason: str
    pressure: str
    weight: float
    #: tests that were ordered
    ordered: tuple[str, ...]
    plan: str


ALL = ("potassium", "creatinine", "eGFR", "HbA1c", "haemoglobin")
VISITS = [
    Visit(date(2024, 2, 6), GP, "Fernhollow Practice", "Yearly check, no complaints.", "142/86", 81.2, ALL, "Ramipril 5 mg is continued."),
    Visit(date(2024, 6, 11), GP, "Fernhollow Practice", "Tired in the afternoon.", "138/84", 81.9, ALL, "Metformin 500 mg twice a day is continued."),
    Visit(date(2024, 10, 15), GP, "Fernhollow Practice", "Swollen ankles in the evening.", "144/88", 83.4, ALL, "Referral to cardiology."),
    Visit(date(2025, 1, 21), CARDIOLOGIST, "Larch Street Heart Clinic", "Swollen ankles, short of breath on stairs.", "146/88", 84.0, ALL, "Bisoprolol 2.5 mg is started."),
    Visit(date(2025, 5, 13), GP, "Fernhollow Practice", "Second bladder infection this year.", "134/82", 83.1, ALL, "Referral to urology."),
    Visit(date(2025, 8, 19), CARDIOLOGIST, "Larch Street Heart Clinic", "Ankles still swollen.", "136/82", 82.6, ALL, "Spironolactone 25 mg is started. Potassium is to be checked by the practice."),
    Visit(date(2025, 10, 7), UROLOGIST, "Tern Bay Urology", "Third bladder infection this year.", "132/80", 81.8, ("potassium", "creatinine", "eGFR"), "Trimethoprim 100 mg at night is started for six months."),
    Visit(date(2025, 12, 2), GP, "Fernhollow Practice", "Weak legs for a week, otherwise well.", "128/78", 81.1, ALL, "Blood is taken. Next appointment in January."),
]  # fmt: skip

#: by test: unit, lower and upper limit, and a value for each visit; None: no result was filed
LABS: dict[str, tuple[str, float, float, Sequence[float | None]]] = {
    "potassium": ("mmol/L", 3.5, 5.3, [4.3, 4.4, 4.3, 4.4, 4.5, 4.6, 5.4, None]),
    "creatinine": ("µmol/L", 45, 84, [78, 79, 82, 84, 86, 89, 97, 106]),
    "eGFR": ("mL/min", 60, 120, [72, 71, 68, 66, 64, 61, 55, 49]),
    "HbA1c": ("mmol/mol", 20, 48, [52, 53, 54, 52, 51, 50, None, 49]),
    "haemoglobin": ("g/L", 120, 160, [131, 132, 130, 129, 130, 128, None, 127]),
}

MEDICINES = [
    ("ramipril", "5 mg in the morning", "2021-03-01", "", GP, "blood pressure"),
    ("metformin", "500 mg twice a day", "2022-09-12", "", GP, "blood sugar"),
    ("atorvastatin", "20 mg at night", "2021-03-01", "", GP, "cholesterol"),
    ("ibuprofen", "400 mg when needed", "2023-01-10", "2024-06-11", GP, "knee pain"),
    ("paracetamol", "500 mg when needed", "2024-06-11", "", GP, "knee pain"),
    ("bisoprolol", "2.5 mg in the morning", "2025-01-21", "", CARDIOLOGIST, "heart rate"),
    ("nitrofurantoin", "100 mg twice a day", "2025-05-13", "2025-05-18", GP, "bladder infection"),
    ("spironolactone", "25 mg in the morning", "2025-08-19", "", CARDIOLOGIST, "swollen ankles"),
    ("trimethoprim", "100 mg at night", "2025-10-07", "", UROLOGIST, "bladder infections"),
]

INTERACTIONS = [
    ("spironolactone", "trimethoprim", "severe", "both raise potassium", "avoid together, or check potassium within days"),
    ("ramipril", "spironolactone", "moderate", "both raise potassium", "check potassium and kidney function"),
    ("ramipril", "trimethoprim", "moderate", "both raise potassium", "check potassium"),
    ("ibuprofen", "ramipril", "moderate", "kidney function may fall", "check kidney function"),
    ("ibuprofen", "spironolactone", "moderate", "kidney function may fall", "check kidney function"),
    ("clarithromycin", "atorvastatin", "severe", "muscle damage", "pause atorvastatin"),
    ("clarithromycin", "warfarin", "severe", "bleeding", "check INR within days"),
    ("ibuprofen", "warfarin", "severe", "bleeding", "avoid together"),
    ("methotrexate", "trimethoprim", "severe", "blood cells may fall", "avoid together"),
    ("bisoprolol", "verapamil", "severe", "slow heart rate", "avoid together"),
    ("digoxin", "spironolactone", "moderate", "digoxin level rises", "check digoxin level"),
    ("lithium", "ramipril", "severe", "lithium level rises", "check lithium level"),
]  # fmt: skip

LETTERS = {
    "2024-10-15_cardiology": f"""# Referral to the Larch Street Heart Clinic

Date: 2024-10-15
From: {GP}, Fernhollow Practice
About: {PATIENT}

Swollen ankles in the evening for two months, weight up by 1.5 kg since June.
Medicines at this date: ramipril, metformin, atorvastatin, paracetamol.
Please assess the heart function.
""",
    "2025-05-13_urology": f"""# Referral to Tern Bay Urology

Date: 2025-05-13
From: {GP}, Fernhollow Practice
About: {PATIENT}

Second bladder infection this year, treated with nitrofurantoin for five days.
Medicines at this date: ramipril, metformin, atorvastatin, paracetamol, bisoprolol.
Please advise on prevention.
""",
    "2025-08-20_cardiology_reply": f"""# Letter from the Larch Street Heart Clinic

Date: 2025-08-20
From: {CARDIOLOGIST}, Larch Street Heart Clinic
About: {PATIENT}

Spironolactone 25 mg was started on 2025-08-19 because the ankles are still swollen.
Potassium and kidney function are to be checked after four weeks by the practice.
""",
    "2025-10-08_urology_reply": f"""# Letter from Tern Bay Urology

Date: 2025-10-08
From: {UROLOGIST}, Tern Bay Urology
About: {PATIENT}

Trimethoprim 100 mg at night was started on 2025-10-07, for six months.
Our list of medicines is that of the referral of 2025-05-13.
""",
}


def note(visit: Visit) -> str:
    return f"""# Visit of {visit.day.isoformat()}

Patient: {PATIENT}
Doctor: {visit.doctor}, {visit.place}
Reason: {visit.reason}
Blood pressure: {visit.pressure} mmHg
Weight: {visit.weight} kg
Ordered: {", ".join(visit.ordered)}
Plan: {visit.plan}
"""


def _table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        write = csv.writer(file, lineterminator="\n")
        write.writerow(columns)
        write.writerows(rows)


def main(target: Path = DATA) -> None:
    draw = random.Random(42)  # noqa: S311  # sample data
    for name in ("visits", "letters"):
        (target / name).mkdir(parents=True, exist_ok=True)
    for visit in VISITS:
        (target / "visits" / f"{visit.day.isoformat()}.md").write_text(note(visit), "utf-8")
    for name, letter in LETTERS.items():
        (target / "letters" / f"{name}.md").write_text(letter, "utf-8")
    orders, results = [], []
    for place, visit in enumerate(VISITS):
        for test in visit.ordered:
            orders.append([visit.day.isoformat(), test, visit.doctor])
            unit, low, high, values = LABS[test]
            if (value := values[place]) is not None:
                filed = visit.day + timedelta(days=draw.randint(1, 3))
                results.append(
                    [visit.day.isoformat(), test, value, unit, low, high, filed.isoformat()]
                )
    _table(target / "lab_orders.csv", ["ordered_on", "test", "ordered_by"], orders)
    columns = ["taken_on", "test", "value", "unit", "low", "high", "filed_on"]
    _table(target / "labs.csv", columns, results)
    columns = ["medicine", "dose", "since", "until", "prescriber", "reason"]
    _table(target / "medications.csv", columns, MEDICINES)
    columns = ["medicine_a", "medicine_b", "severity", "effect", "action"]
    _table(target / "interactions.csv", columns, INTERACTIONS)


if __name__ == "__main__":
    main()
