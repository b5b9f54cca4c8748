"""Documents from a run, as Markdown and HTML, with tables, charts, sources and checked figures."""

from chargehand.documents.cited_prose_parser import cited
from chargehand.documents.document_sections import (
    BarChart,
    Bullets,
    Callout,
    Cell,
    Document,
    LineChart,
    Paragraph,
    Section,
    Table,
)
from chargehand.documents.figure_check import CheckedFigure, Figure, FigureCheck, figures_in
from chargehand.documents.task_results import task_results

__all__ = [
    "BarChart",
    "Bullets",
    "Callout",
    "Cell",
    "CheckedFigure",
    "Document",
    "Figure",
    "FigureCheck",
    "LineChart",
    "Paragraph",
    "Section",
    "Table",
    "cited",
    "figures_in",
    "task_results",
]
