"""Settings of the service in the test process."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def every_page_is_whole(whole_pages: None) -> None:
    """All tests of the service see pages with their content."""
