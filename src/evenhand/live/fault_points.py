"""Named points at which tests can inject faults; without a hook they do nothing."""

from __future__ import annotations

from collections.abc import Callable

hook: Callable[[str], None] | None = None


def reach(place: str) -> None:
    """Call the hook, if there is one, with the name of this point."""
    if hook is not None:
        hook(place)
