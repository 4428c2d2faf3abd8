"""What all tests share: how hypothesis draws, and the browser and database that some of them need.

A machine without chromium or PostgreSQL skips those tests and says why; under CI=true that is a failure.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers
from selenium import webdriver

from tests.postgres import PostgresServer

hypothesis.settings.register_profile(
    "evenhand",
    deadline=None,  # nothing here is judged by the clock
    derandomize=True,  # the same examples every time, on every machine
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("evenhand")
# Hypothesis also draws constants of the modules that happen to be imported, and these differ between the
# processes that share the tests; without them the examples are the same every time.
providers._get_local_constants = lambda: providers._local_constants


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL of our own, gone with the session."""
    server = PostgresServer(require_postgres())
    server.start()
    yield server
    server.remove()


_database_numbers = itertools.count()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The ``postgresql://`` address of a new, empty database, dropped after the test."""
    name = f"test_{next(_database_numbers)}"
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)


@pytest.fixture(scope="session")
def whole_pages() -> Iterator[None]:
    """Pages of services in the test process wait for their first content, as a user would in the end."""
    from evenhand.service import panels

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(panels, "FIRST_SECONDS", 300.0)
        yield


@pytest.fixture
def browser() -> Iterator[webdriver.Chrome]:
    """A headless chromium."""
    chromium, driver = require_chromium()
    options = webdriver.ChromeOptions()
    options.binary_location = str(chromium)
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(driver)))
    yield chrome
    chrome.quit()


def require_chromium() -> tuple[Path, Path]:
    """The browser and its driver."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    if found is None or driver is None:
        _missing("chromium and chromedriver")
    return Path(found), Path(driver)


def require_postgres() -> Path:
    """The directory that holds ``initdb`` and ``postgres``."""
    # Debian keeps initdb out of the PATH; of several versions the newest is last
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    found = shutil.which("initdb") or (debian and debian[-1])
    if not found:
        _missing("PostgreSQL")
    return Path(found).resolve().parent


def _missing(what: str) -> NoReturn:
    reason = f"{what} not found on this machine; `make setup` as root on Debian installs it"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
