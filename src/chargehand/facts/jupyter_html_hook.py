"""Plans, results and traces as HTML in notebooks, by a function that the package sets."""

from collections.abc import Callable

#: renders a value as HTML; set from above, because facts may not import the presentation
_renderers: list[Callable[[object], str]] = []


def render_with(renderer: Callable[[object], str]) -> None:
    """Use this function to show values from now on."""
    _renderers[:] = [renderer]


def notebook_html(value: object) -> str | None:
    """The value as HTML; None: no function is set, so a notebook shows the text."""
    return _renderers[0](value) if _renderers else None
