"""How plans, results and traces show themselves in a notebook: by a function that the package sets."""

from collections.abc import Callable

#: from a value to HTML; the presentation is above these layers, so it is handed in
_renderers: list[Callable[[object], str]] = []


def render_with(renderer: Callable[[object], str]) -> None:
    """Have values shown by this function from now on."""
    _renderers[:] = [renderer]


def notebook_html(value: object) -> str | None:
    """The value as HTML; None: a notebook shows its text."""
    return _renderers[0](value) if _renderers else None
