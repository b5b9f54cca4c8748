"""Makes the sample data: a launch brief, costs, a letter of the supplier, market tables, channels and milestones.

The same seed always gives the same files. The planted problem: the letter of the supplier raises the purchase price
above that of the cost sheet, and at the price of the brief each unit would then be sold below its cost.
"""

import csv
import random
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path

DATA = Path(__file__).parent / "data"

BRIEF = """# Launch brief: Tidewell cold brew carafe

Alder & Wren sells kitchenware online. Tidewell is its first product for cold brew coffee.

- Launch day: 2026-04-14
- Price: 34.90 EUR, which includes 20 % VAT
- First order: 2,400 units
- Margin: at least 10 % of the net price, after all costs per unit
- Payment fee: 2.5 % of the price with VAT
- Costs per unit: costs/cost_sheet.csv, made on 2025-12-05
"""

FACTS = """# Tidewell: facts that may be claimed

1. It holds 1.2 litres.
2. The glass is borosilicate and goes into the dishwasher.
3. The steel filter has 150 micron: no paper filters are needed.
4. It is 9.8 cm wide and fits into the door of a fridge.
5. It brews in 12 to 18 hours.
6. Spare filters cost 7.90 EUR and are kept for 5 years.
"""

RULES = """# What copy may not claim

- Nothing about health, and nothing about other brands.
- No words such as best, first or unbreakable.
- No price: the shop shows it.
"""

LETTER = """Hollin Glassworks
Prague, 2026-02-10

To Alder & Wren

Dear Ms Wren,

thank you for your order of 2,400 carafes of the type Tidewell.

As energy and borosilicate have become dearer, we have to change our prices. For deliveries
from 1 March 2026 the price of a carafe with filter is 22.40 EUR. It replaces our offer of November
2025.

Your goods leave Prague on 2026-03-16 and are in your warehouse by 2026-03-23.

Yours sincerely,
J. Hollin
"""

COSTS = (("purchase", 17.80), ("freight", 1.85), ("packaging", 0.95), ("fulfilment", 4.60))
FIXED = (("photographs and film", 2_300), ("advertising", 4_800), ("samples", 700), ("food contact certificate", 1_200))  # fmt: skip
PRICE_POINTS = (("of the brief", 34.90), ("middle", 39.90), ("upper", 44.90), ("premium", 49.90))
#: channel, audience, most characters, tone
CHANNELS = (
    ("newsletter", "customers who own a grinder", 420, "warm, one paragraph"),
    ("product page", "people who compare carafes", 500, "exact, facts first"),
    ("instagram", "students and young cooks", 220, "light, no hashtags"),
    ("search ad", "people who search for cold brew", 90, "one sentence"),
    ("press note", "food editors", 600, "sober, third person"),
)
#: milestone, owner, working days before the launch
MILESTONES = (
    ("agree on the price", "management", 30),
    ("food contact certificate is there", "purchasing", 25),
    ("photographs and film are shot", "marketing", 18),
    ("goods are in the warehouse", "purchasing", 15),
    ("copy is approved", "marketing", 12),
    ("product page is ready", "shop", 8),
    ("press note goes out", "marketing", 5),
    ("newsletter is scheduled", "marketing", 2),
    ("launch", "shop", 0),
)
TERMS = {"cold brew maker": 5_200, "cold brew carafe": 1_900, "iced coffee at home": 3_100}
#: of searches, by month: people look for cold coffee in summer
SEASON = (0.5, 0.5, 0.7, 1.0, 1.4, 1.7, 1.8, 1.5, 1.0, 0.7, 0.5, 0.5)


def _write(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def _similar(draw: random.Random) -> list[list[object]]:
    brands = ["Brava", "Kolde", "Nordtal", "Pourline", "Steepwell", "Ysolt"]
    rows: list[list[object]] = []
    for number in range(1, 43):
        material = draw.choice(["glass", "glass", "steel", "plastic"])
        base = {"glass": 43, "steel": 47, "plastic": 27}[material]
        rows.append(
            [
                draw.choice(brands),
                f"carafe {number}",
                material,
                draw.choice([0.8, 1.0, 1.2, 1.5]),
                round(draw.gauss(base, 5)) - 0.10,
                round(min(4.9, max(3.1, draw.gauss(4.2, 0.35))), 1),
                draw.randrange(12, 900),
            ]
        )
    return rows


def _survey(draw: random.Random) -> list[list[object]]:
    segments = {"owns a grinder": 47.0, "buys ground coffee": 41.0, "new to cold brew": 37.0}
    rows: list[list[object]] = []
    for number in range(1, 241):
        segment = draw.choice(list(segments))
        most = max(15, round(draw.gauss(segments[segment], 8)))
        channel = draw.choice([name for name, *_ in CHANNELS[:4]])
        rows.append([number, segment, most, channel])
    return rows


def _searches(draw: random.Random) -> list[list[object]]:
    return [
        [date(2025, month, 1).isoformat(), term, round(size * SEASON[month - 1] * draw.uniform(0.93, 1.07))]
        for term, size in TERMS.items()
        for month in range(1, 13)
    ]  # fmt: skip


def main(target: Path = DATA) -> None:
    draw = random.Random(414)  # noqa: S311  # sample data
    (target / "letters").mkdir(parents=True, exist_ok=True)
    (target / "brief.md").write_text(BRIEF, encoding="utf-8")
    (target / "product_facts.md").write_text(FACTS, encoding="utf-8")
    (target / "claim_rules.md").write_text(RULES, encoding="utf-8")
    (target / "letters" / "hollin_2026-02-10.md").write_text(LETTER, encoding="utf-8")
    _write(target / "costs" / "cost_sheet.csv", ["item", "eur_per_unit"], [(name, f"{eur:.2f}") for name, eur in COSTS])  # fmt: skip
    _write(target / "costs" / "fixed_costs.csv", ["item", "eur"], FIXED)
    _write(target / "costs" / "price_points.csv", ["name", "price_eur"], [(name, f"{eur:.2f}") for name, eur in PRICE_POINTS])  # fmt: skip
    _write(target / "channels.csv", ["channel", "audience", "most_characters", "tone"], CHANNELS)
    _write(target / "milestones.csv", ["milestone", "owner", "working_days_before"], MILESTONES)
    market = target / "market"
    _write(
        market / "similar_products.csv",
        ["brand", "product", "material", "litres", "price_eur", "stars", "reviews"],
        _similar(draw),
    )
    _write(market / "survey.csv", ["person", "segment", "would_pay_eur", "channel"], _survey(draw))
    _write(market / "searches.csv", ["month", "term", "searches"], _searches(draw))


if __name__ == "__main__":
    main()
