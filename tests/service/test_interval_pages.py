"""Pages and reports of experiments in intervals: shares, volumes and health, in every look."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient
from selenium import webdriver
from selenium.webdriver.common.by import By

import evenhand as eh
from evenhand.live.journal import open_journal
from evenhand.service.app import Settings, create_app
from evenhand.service.keys import Keys
from tests.live.interval_experiments import EVEN, create, play
from tests.service.peers import seen_from
from tests.service.service_process import Running
from tests.service.test_browser import no_complaint
from tests.service.test_page_matrix import (
    LARGE,
    LARGE_GROUPS,
    SCRIPTS,
    Served,
    check_page,
    has_content,
    opened,
)

CLOSE = {"a": {"x": 0.74, "y": 0.70}, "b": {"x": 0.71, "y": 0.69}, "c": {"x": 0.85, "y": 0.55}}


def fill(journal: str) -> None:
    """Create experiments in intervals: running with two open, decided, not begun, and large ones."""
    store = open_journal(journal, create=True)
    running = create(store, length="1h", name="running", title="Shop checkout", clock=None)
    play(running, 6, CLOSE)
    running.publish_shares()
    play(create(store, length="1h", name="decided", title="Decided"))
    create(store, length="1h", name="fresh", title="Not begun", clock=None)
    few = create(store, name="alarm", title="With an alarm", volume=10_000, clock=None)
    play(few, 2, EVEN)  # a tenth of the expected units
    for name, means, groups in (
        ("large", LARGE, LARGE_GROUPS),
        ("scripts", SCRIPTS, {"كبار السن": 0.5, "年輕人": 0.5}),
    ):
        asked = eh.Problem(
            list(means), groups, eh.Bernoulli(), eh.Floors(0.3), mode="proportional", normalise=True
        )
        procedure = eh.Procedure(interval=eh.Intervals(600 * len(groups), floor=0.01))
        trial = eh.Experiment.create(store, asked, procedure, seed=1, name=name, title=name)
        for _ in range(8):
            shares = trial.shares()
            told: dict[str, Any] = {k: {} for k in means}
            for g, group in enumerate(groups):
                for k in means:
                    n = round(600 * shares.share(group, k))
                    told[k][group] = (n, round(n * means[k][g]))
            if not trial.is_over:
                trial.tell_counts(shares.version, told, close=True)
    store.close()


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = str(tmp_path_factory.mktemp("pages") / "journal.db")
    fill(made)
    return made


@pytest.fixture(scope="module")
def client(journal: str) -> Iterator[TestClient[Any]]:
    with TestClient(seen_from(create_app(Settings(journal))), base_url="http://127.0.0.1") as found:
        yield found


def words(client: TestClient[Any], path: str) -> str:
    """Return the text of a page, without tags."""
    answer = client.get(path)
    assert answer.status_code == 200
    return " ".join(re.sub(r"<[^>]+>", " ", answer.text).split())


def test_the_page_shows_intervals_instead_of_tickets(client: TestClient[Any]) -> None:
    page = words(client, "/experiments/running")
    assert "Interval 8 is running; 7 and 8 are open; interval 6 had 1,000 units, of 1,000 expected." in page
    assert "Shares by interval" in page
    assert "Evidence over time" in page
    assert "1,000 units expected in each of 1h; every policy has at least 2.00%" in page
    assert "Tickets" not in page
    assert "Ask for" not in page


def test_a_page_before_the_first_counts_says_what_to_do(client: TestClient[Any]) -> None:
    page = words(client, "/experiments/fresh")
    assert "First step: give the shares to your servers" in page
    assert "runs in intervals and has no tickets" in words(client, "/experiments/fresh/work")


@pytest.mark.parametrize("page", ["", "experiments/running", "experiments/fresh", "planner", "docs"])
def test_every_link_is_below_the_path_prefix(tmp_path: Path, journal: str, page: str) -> None:
    copied = tmp_path / "t.db"
    shutil.copy(journal, copied)
    app = create_app(Settings(str(copied), prefix="/trials"))
    with TestClient(seen_from(app), base_url="http://127.0.0.1") as client:
        text = client.get(f"/trials/{page}").text
    links = re.findall(r'(?:href|src|action|hx-get|data-stream)="(/[^"]*)"', text)
    assert links
    assert [link for link in links if not link.startswith("/trials/")] == []


def test_alarms_are_shown_and_the_list_too(client: TestClient[Any]) -> None:
    assert "The last interval had 0.1 times the expected units" in words(client, "/experiments/alarm")
    assert "Shop checkout" in words(client, "/")
    log = words(client, "/experiments/running/log?search=counted")
    assert "a in x" in log


@pytest.mark.slow
def test_the_report_shows_intervals(client: TestClient[Any]) -> None:
    page = words(client, "/experiments/decided/report")
    assert "Shares by interval" in page
    assert "whether all were assigned as published" in page
    assert "a is the answer" in page


@pytest.mark.slow
def test_every_page_of_intervals_in_every_look(browser: webdriver.Chrome, tmp_path: Path) -> None:
    journal = str(tmp_path / "journal.db")
    fill(journal)
    served = Served.__new__(Served)
    served.keys = {role: Keys(journal).create(role, f"the {role}") for role in ("operator", "admin")}
    wrong: list[str] = []
    with Running(journal, tmp_path / "log") as served.running:
        served.url = served.running.url
        for role, names in (
            ("admin", ("running", "decided", "fresh", "alarm", "large", "scripts", "fresh/work")),
            ("operator", ("running", "decided")),
        ):
            served.log_in(browser, role)
            for name in names:
                page = f"{served.url}/experiments/{name}"
                opened(browser, page, lambda name=name: "/" in name or has_content(browser))
                found = {
                    one.get_attribute("id")
                    for one in browser.find_elements(By.CSS_SELECTOR, "#manage details")
                }
                assert found <= {"manage-finish"}, "without tickets there is nothing else to do"
                wrong += check_page(browser, f"intervals-{role}-{name.replace('/', '-')}")
        no_complaint(browser)
    assert wrong == []
