"""Settings of the service in the test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from evenhand.service import panels


@pytest.fixture(scope="session", autouse=True)
def first_content_is_waited_for() -> Iterator[None]:
    """Wait for the first content of a page, so that a test sees what a user sees in the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(panels, "FIRST_SECONDS", 300.0)
        yield
