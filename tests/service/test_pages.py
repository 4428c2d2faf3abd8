"""The dashboard's pages as text: what stands on them, for whom, and what keeps them from running scripts."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient

import evenhand as eh
from evenhand import service
from evenhand.reports.figures.canvas import TOKENS
from evenhand.service import panels
from evenhand.service.app import Settings, create_app
from evenhand.service.experiment_facts import protocol_facts
from evenhand.service.keys import Keys
from tests.service.peers import seen_from
from tests.service.service_process import STUDY

STATIC = Path(service.__file__).parent / "static"
PAGES = ("/", "/experiments/main", "/experiments/main/work", "/planner", "/docs", "/login")


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


def test_a_page_says_who_leads_how_sure_when_it_ends_whether_all_is_well_and_what_is_next(
    client: TestClient[Any], keys: dict[str, dict[str, str]]
) -> None:
    page = client.get("/experiments/main", headers=keys["analyst"]).text
    places = [page.index(f'id="{one}"') for one in ("sentence", "evidence-words", "forecast", "well", "next")]
    assert places == sorted(places)
    assert "ask for tickets and enter their outcomes" in page[places[-1] :]
    assert "Nothing needs attention" in client.get("/experiments/main", headers=keys["operator"]).text


def test_an_operator_sees_the_page_without_estimates_and_evidence(
    client: TestClient[Any], keys: dict[str, dict[str, str]]
) -> None:
    page = client.get("/experiments/main", headers=keys["operator"]).text
    assert "10 outcomes told, 1 ticket out." in page
    for word in ("<svg", "Evidence over time", "leads", "undecided</td>", "/report", "/export"):
        assert word not in page
    log = client.get("/experiments/main/log", headers=keys["operator"]).text
    assert "told" in log
    assert "outcome" not in log


def test_the_protocol_and_the_open_question_are_on_the_page(
    client: TestClient[Any], keys: dict[str, dict[str, str]]
) -> None:
    for role in ("analyst", "operator"):
        page = client.get("/experiments/main", headers=keys[role]).text
        assert "every policy must reach 0.3 in every group" in page
        assert "north 50%, south 50%" in page
        assert "admin, " in page  # who created it
    assert "ends at the latest" in page.lower()


def test_the_list_has_leaders_and_progress_for_those_who_may_see_them(
    client: TestClient[Any], keys: dict[str, dict[str, str]]
) -> None:
    seen = client.get("/", headers=keys["analyst"]).text
    assert "no policy leads yet" in seen or " leads" in seen
    assert "last event: told" in seen or "last event: asked" in seen
    blind = client.get("/", headers=keys["operator"]).text
    assert "Two ads, two regions" in blind
    for word in ("leads", "of the evidence", "<progress"):
        assert word not in blind
    assert "hidden from this key" in blind


def test_the_list_is_filtered_and_sorted(client: TestClient[Any], keys: dict[str, dict[str, str]]) -> None:
    admin = keys["admin"]
    second = {"id": "second", "study": STUDY | {"title": "A second one"}, "seed": 8}
    assert client.post("/api/v1/experiments", json=second, headers=admin).status_code == 201
    assert client.post("/api/v1/experiments/second/finish", json={}, headers=admin).status_code == 200

    def listed(query: str) -> list[str]:
        return re.findall(r'id="experiment-(\w+)"', client.get(f"/?{query}", headers=admin).text)

    assert listed("") == ["second", "main"]
    assert listed("show=closed") == ["second"]
    assert listed("show=running") == ["main"]
    assert listed("find=TWO+ads") == ["main"]
    assert listed("sort=title") == ["second", "main"]
    assert listed("sort=last+event") == ["second", "main"]
    assert listed("show=alarm") == []
    assert "No experiment fits" in client.get("/?show=alarm", headers=admin).text
    page = client.get("/experiments/second", headers=keys["analyst"]).text
    assert "Closed by admin" in page
    assert "What to do next" in page


def test_an_empty_experiment_shows_the_first_ask(
    client: TestClient[Any], keys: dict[str, dict[str, str]]
) -> None:
    empty = {"id": "empty", "study": STUDY, "seed": 9}
    assert client.post("/api/v1/experiments", json=empty, headers=keys["admin"]).status_code == 201
    page = client.get("/experiments/empty", headers=keys["operator"]).text
    assert "/api/v1/experiments/empty/ask" in page
    assert "First step" in page
    assert "First step" not in client.get("/experiments/main", headers=keys["operator"]).text


def test_the_work_page_shows_only_what_a_blind_key_may_see(
    client: TestClient[Any], keys: dict[str, dict[str, str]]
) -> None:
    operator = keys["operator"]
    page = client.get("/experiments/main/work", headers=operator).text
    for word in ("leads", "evidence", "undecided", "<svg", "progress"):
        assert word not in page
    worker = re.search(r"&#34;worker&#34;: &#34;(.+?)&#34;", page)
    assert worker is not None
    assert worker[1].startswith("operator (")
    body = {"n": 2, "worker": worker[1]}
    held = client.post("/api/v1/experiments/main/ask", json=body, headers=operator).json()
    assert len(held) == 2
    own = client.get("/experiments/main/work", headers=operator).text
    assert "&#34;held&#34;: [[null, 2]]" in own  # the page asks for these two again
    other = client.get("/experiments/main/work", headers=keys["admin"]).text
    assert "&#34;held&#34;: []" in other
    again = client.post("/api/v1/experiments/main/ask", json=body, headers=operator).json()
    assert again == held
    for one in held:
        dropped = {"ticket": one["ticket"], "reason": "test"}
        assert client.post("/api/v1/experiments/main/drop", json=dropped, headers=operator).status_code == 200


def test_a_name_from_right_to_left_is_isolated() -> None:
    from evenhand.service.experiment_facts import isolated

    said = isolated("كبار leads <b>", ["كبار", "plain"])
    assert said == "<bdi>كبار</bdi> leads &lt;b&gt;"
    assert isolated("plain leads", ["plain"]) == "plain leads"
    turned = "a\u202eb"  # without its own element it would turn the words after it
    assert isolated(f"{turned} leads", [turned]) == f"<bdi>{turned}</bdi> leads"


def test_an_expected_end_on_another_day_has_its_date() -> None:
    from evenhand.service.experiment_facts import expected_end

    began, noon = "2026-01-01T11:00:00.000000Z", 1767268800.0  # 2026-01-01 12:00 UTC
    assert expected_end({"0.8": 100}, 100, began, noon).endswith(": 13:00 UTC at the pace so far")
    assert expected_end({"0.8": 1300}, 100, began, noon).endswith(": 2026-01-02 at the pace so far")


def test_the_log_is_searched(client: TestClient[Any], keys: dict[str, dict[str, str]]) -> None:
    found = client.get("/experiments/main/log?search=created", headers=keys["analyst"]).text
    assert found.count("<tr>") == 2  # the head and the one event
    none = client.get("/experiments/main/log?search=nothing-like-it", headers=keys["analyst"]).text
    assert "none with" in none


def test_an_audit_says_identical_and_the_page_shows_it_later(
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
    assert '<html lang="en"' in text
    assert 'href="#main"' in text
    assert text.count("<h1") == 1
    for field in re.findall(r"<(?:input|select|textarea)[^>]*>", text):
        labelled = "aria-label" in field or re.search(r"<label[^>]*>[^<]*" + re.escape(field), text)
        assert labelled, field
    for head in re.findall(r"<th(?: [^>]*)?>", text):
        assert "scope=" in head
    for picture in re.findall(r"<svg [^>]*>", text):
        assert 'aria-hidden="true"' in picture  # its caption and the table have the content


def test_the_stylesheet_has_the_colours_of_the_figures() -> None:
    text = (STATIC / "theme.css").read_text()
    light, dark = text.split("@media")
    for name, (on_light, on_dark) in TOKENS.items():
        assert f"--{name}: {on_light};" in light
        assert f"--{name}: {on_dark};" in dark


def _contrast(one: str, other: str) -> float:
    """The contrast of two colours as WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_text_has_enough_contrast_on_what_it_is_drawn_on() -> None:
    # (text, ground): ink on every ground, grey and blue on the page, in light and in dark
    pairs = [("ink", "paper"), ("ink", "band"), ("ink", "rule"), ("grey", "paper"), ("blue", "paper")]
    for scheme in (0, 1):
        for text, ground in pairs:
            assert _contrast(TOKENS[text][scheme], TOKENS[ground][scheme]) >= 4.5, (text, ground, scheme)
    red = re.search(r"--vermillion-text: (#\w+);", (STATIC / "dashboard.css").read_text())
    assert red is not None
    assert _contrast(red[1], TOKENS["paper"][0]) >= 4.5
    assert _contrast(TOKENS["vermillion"][1], TOKENS["paper"][1]) >= 4.5


def test_an_error_is_a_page_for_a_browser_and_json_for_a_program(
    client: TestClient[Any], keys: dict[str, dict[str, str]]
) -> None:
    page = client.get("/experiments/nobody", headers=keys["admin"])
    assert page.status_code == 404
    assert "<h1>" in page.text
    told = client.get("/api/v1/experiments/nobody", headers=keys["admin"])
    assert told.json()["kind"] == "NotFound"
    assert set(told.json()) == {"error", "code", "kind"}


def test_a_browser_without_a_session_is_shown_where_to_give_its_key(client: TestClient[Any]) -> None:
    answer = client.get("/", headers={"Accept": "text/html"}, follow_redirects=False)
    assert answer.status_code in (301, 302, 303, 307)
    assert answer.headers["location"] == "/login"


@pytest.mark.slow
def test_a_study_of_ten_thousand_cells_has_a_page_of_bounded_size(tmp_path: Path) -> None:
    name = "\u6f22\u5b57\u0646\u0627\u0645 " * 20
    problem = {
        "policies": [f"{name} {k}" for k in range(100)], "groups": {f"{name} {g}": 0.01 for g in range(100)},
        "family": {"name": "bernoulli"}, "constraint": {"kind": "floors", "at_least": 0.3},
    }  # fmt: skip
    app = create_app(Settings(str(tmp_path / "t.db")))
    with TestClient(seen_from(app), base_url="http://127.0.0.1") as client:
        body = {"id": "huge", "study": {"problem": problem}, "seed": 7}
        assert client.post("/api/v1/experiments", json=body).status_code == 201
        found = client.get("/experiments/huge")
        assert found.status_code == 200
        assert len(found.content) < 3_000_000
        assert "The table has 500 of 10,000 cells" in found.text
        assert "100 groups, 1% each" in found.text
        assert client.get("/").status_code == 200


def test_a_page_that_takes_long_answers_before_it_is_computed_and_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(panels, "FIRST_SECONDS", 0.0)
    app = create_app(Settings(str(tmp_path / "t.db")))
    with TestClient(seen_from(app), base_url="http://127.0.0.1") as client:
        body = {"id": "main", "study": STUDY, "seed": 7}
        assert client.post("/api/v1/experiments", json=body).status_code == 201
        first = client.get("/experiments/main")
        assert first.status_code == 200
        assert "appears here by itself" in first.text
        assert STUDY["title"] in first.text
        deadline = time.monotonic() + 300
        while "data-waiting" in client.get("/experiments/main/panel").text:
            assert time.monotonic() < deadline
        page = client.get("/experiments/main").text
        assert "Every group against its bound" in page
        assert "appears here by itself" not in page


def test_linear_conditions_and_shares_are_in_the_words_of_the_study() -> None:
    rule = eh.Polyhedron([[1, -1, 0], [0, 2, 0.5]], [-0.1, 0.3])
    problem = eh.Problem(["a", "b"], {"x": 0.5, "y": 0.3, "z": 0.2}, eh.Bernoulli(), rule)
    with eh.Experiment.create(":memory:", problem, seed=7) as trial:
        facts = dict(protocol_facts(trial.protocol, None))
    assert facts["Requirement"] == (
        "every policy must satisfy 2 linear conditions on its group means: x - y at least -0.1; "
        "2 y + 0.5 z at least 0.3"
    )
    assert facts["Shares of the groups"] == "x 50%, y 30%, z 20%"
    many = {f"g{n}": (0.02 if n < 20 else 0.03) for n in range(40)}
    total = sum(many.values())
    shares = {name: share / total for name, share in many.items()}
    wide = eh.Problem(["a", "b"], shares, eh.Bernoulli(), eh.Floors(0.3))
    with eh.Experiment.create(":memory:", wide, seed=7) as trial:
        words = dict(protocol_facts(trial.protocol, None))["Shares of the groups"]
    assert words.endswith("and 28 more groups; from 2% to 3% in all")
