"""Named places at which a test may stop the world; in normal life they do nothing."""

from __future__ import annotations

from collections.abc import Callable

hook: Callable[[str], None] | None = None


def reach(place: str) -> None:
    """The program is at this place now."""
    if hook is not None:
        hook(place)
