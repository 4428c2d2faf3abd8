"""The dashboard's pages as text: what stands on them, for whom, and what keeps them from running scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient

from evenhand import service
from evenhand.reports.figures.style import TOKENS
from evenhand.service.app import Settings, create_app
from evenhand.service.keys import Keys
from tests.service.peers import seen_from
from tests.service.running import STUDY

STATIC = Path(service.__file__).parent / "static"
PAGES = ("/", "/experiments/main", "/planner", "/docs", "/login")


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("service") / "journal.db")


@pytest.fixture(scope="module")
def keys(journal: str) -> dict[str, dict[str, str]]:
    made = Keys(journal)
    return {
        role: {"Authorization": f"Bearer {made.create(role, role)}", "Accept": "text/html"}
        for role in ("operator", "analyst", "admin")
    }


@pytest.fixture(scope="module")
def client(journal: str, keys: dict[str, dict[str, str]]) -> Iterator[TestClient[Any]]:
    """A service with one experiment that has ten outcomes and one ticket out."""
    with TestClient(seen_from(create_app(Settings(journal))), base_url="http://127.0.0.1") as found:
        admin = keys["admin"]
        body = {"id": "main", "study": STUDY, "seed": 7}
        assert found.post("/api/v1/experiments", json=body, headers=admin).status_code == 201
        tickets = found.post("/api/v1/experiments/main/ask", json={"n": 11}, headers=admin).json()
        for number, ticket in enumerate(tickets[:10]):
            told = {"ticket": ticket["ticket"], "outcome": number % 2}
            assert found.post("/api/v1/experiments/main/tell", json=told, headers=admin).status_code == 200
        yield found


def test_an_experiment_opens_with_words_and_has_its_four_pictures(
    client: TestClient[Any], keys: dict[str, dict[str, str]]
) -> None:
    page = client.get("/experiments/main", headers=keys["analyst"]).text
    for words in ("Every group against its bound", "Where samples go", "Evidence over time", "Health", "Log"):
        assert words in page
    assert "aim " in page  # the intended share beside the real one
    assert "10 samples" in page
    assert "1 open" in page
    assert page.index('class="lead"') < page.index("<svg")


def test_an_operator_sees_the_page_without_estimates_and_evidence(
    client: TestClient[Any], keys: dict[str, dict[str, str]]
) -> None:
    page = client.get("/experiments/main", headers=keys["operator"]).text
    assert "10 outcomes told, 1 tickets out." in page
    for word in ("<svg", "Evidence over time", "leads", "undecided</td>", "/report", "/export"):
        assert word not in page
    log = client.get("/experiments/main/log", headers=keys["operator"]).text
    assert "told" in log
    assert "outcome" not in log


def test_the_log_is_searched(client: TestClient[Any], keys: dict[str, dict[str, str]]) -> None:
    found = client.get("/experiments/main/log?search=created", headers=keys["analyst"]).text
    assert found.count("<tr>") == 2  # the head and the one event
    none = client.get("/experiments/main/log?search=nothing-like-it", headers=keys["analyst"]).text
    assert "none with" in none


def test_an_audit_says_identical_and_the_page_remembers_it(
    client: TestClient[Any], keys: dict[str, dict[str, str]]
) -> None:
    said = client.post("/experiments/main/audit", json={}, headers=keys["analyst"]).text
    assert "Identical." in said
    assert "audit identical" in client.get("/experiments/main/panel", headers=keys["analyst"]).text


def test_what_was_planned_is_saved_as_a_study_file(
    client: TestClient[Any], keys: dict[str, dict[str, str]]
) -> None:
    from evenhand.study import loads

    saved = client.post("/planner/study", json={"study": STUDY}, headers=keys["operator"])
    assert "study.toml" in saved.headers["content-disposition"]
    assert loads(saved.text).problem.policies == ("plain", "bold")


@pytest.mark.parametrize("page", PAGES)
def test_no_page_has_a_script_or_style_of_its_own_or_loads_from_elsewhere(
    client: TestClient[Any], keys: dict[str, dict[str, str]], page: str
) -> None:
    answer = client.get(page, headers=keys["admin"])
    assert answer.status_code == 200
    assert not re.search(r"<script(?![^>]* src=\"/static/)", answer.text)
    assert not re.search(r"<style|\son\w+=|javascript:", answer.text)
    assert not re.search(r"(src|href)=\"(https?:)?//", answer.text)
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "style-src 'self';" in policy


@pytest.mark.parametrize("page", PAGES)
def test_every_page_can_be_used_without_seeing_it(
    client: TestClient[Any], keys: dict[str, dict[str, str]], page: str
) -> None:
    text = client.get(page, headers=keys["admin"]).text
    assert '<html lang="en">' in text
    assert 'href="#main"' in text
    assert text.count("<h1") == 1
    for field in re.findall(r"<(?:input|select|textarea)[^>]*>", text):
        labelled = "aria-label" in field or re.search(r"<label[^>]*>[^<]*" + re.escape(field), text)
        assert labelled, field
    for head in re.findall(r"<th(?: [^>]*)?>", text):
        assert "scope=" in head
    for picture in re.findall(r"<svg [^>]*>", text):
        assert 'aria-hidden="true"' in picture  # its caption and the table speak


def test_the_stylesheet_has_the_colours_of_the_figures() -> None:
    text = (STATIC / "theme.css").read_text()
    light, dark = text.split("@media")
    for name, (on_light, on_dark) in TOKENS.items():
        assert f"--{name}: {on_light};" in light
        assert f"--{name}: {on_dark};" in dark


def test_an_error_is_a_page_for_a_browser_and_json_for_a_program(
    client: TestClient[Any], keys: dict[str, dict[str, str]]
) -> None:
    page = client.get("/experiments/nobody", headers=keys["admin"])
    assert page.status_code == 404
    assert "<h1>" in page.text
    told = client.get("/api/v1/experiments/nobody", headers=keys["admin"])
    assert told.json()["kind"] == "NotFound"
    assert set(told.json()) == {"error", "kind"}


def test_a_browser_without_a_session_is_shown_where_to_give_its_key(client: TestClient[Any]) -> None:
    answer = client.get("/", headers={"Accept": "text/html"}, follow_redirects=False)
    assert answer.status_code in (301, 302, 303, 307)
    assert answer.headers["location"] == "/login"
