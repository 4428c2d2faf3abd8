"""Fault 56: 100 policies in 100 groups with long names in any script. Prints how long each page takes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from litestar.testing import TestClient

import evenhand as eh
from evenhand.live.protocol import LIMITS
from evenhand.service.app import Settings, create_app
from tests.service.peers import seen_from

SIZE, BYTES = 100, 4_000_000
SCRIPTS = (
    "Aspirin ", "Ацетилсалициловая кислота ", "阿司匹林口服", "الأسبرين فقط ", "एस्पिरिन ", "אספירין ",
    "アスピリン", "แอสไพริน", "아스피린 ", "👩🏽‍⚕️💊", "é̀ñ̃ü̈ ", "<b>&amp;\"' ",
)  # fmt: skip
PAGES = ("/", "/experiments/large", "/experiments/large/work", "/experiments/large/panel",
         "/experiments/large/log", "/planner")  # fmt: skip


def names(kind: str) -> list[str]:
    """Return names with as many characters as are allowed, in every script in turn."""
    found = []
    for k in range(SIZE):
        text = SCRIPTS[k % len(SCRIPTS)] * LIMITS["name_characters"]
        number = f" {kind}{k}"
        found.append(text[: LIMITS["name_characters"] - len(number)].lstrip() + number)
    return found


def study(policies: list[str]) -> dict[str, Any]:
    return {
        "title": "A large study",
        "problem": {
            "policies": policies, "groups": dict.fromkeys(names("g"), 1.0 / SIZE),
            "family": {"name": "bernoulli"}, "constraint": {"kind": "floors", "at_least": 0.3},
        },
        "procedure": {"sampling": "uniform"},
    }  # fmt: skip


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient[Any]]:
    """A service with two outcomes in each of ten thousand cells."""
    address = str(tmp_path_factory.mktemp("large") / "t.db")
    with eh.Experiment.create(address, eh.Study.from_dict(study(names("p"))), seed=7, name="large") as trial:
        cells = [(policy, group) for policy in names("p") for group in names("g")]
        trial.import_data([(*cell, outcome) for cell in cells for outcome in (0, 1)], source="before.csv")
    with TestClient(seen_from(create_app(Settings(address))), base_url="http://127.0.0.1") as found:
        yield found


@pytest.mark.slow
def test_pages_of_ten_thousand_cells_with_long_names_are_whole_and_of_bounded_size(
    client: TestClient[Any],
) -> None:
    for page in PAGES:
        for _ in range(5):  # the first looks load kernels, which may take long on a busy machine
            if client.get(page).status_code == 200:
                break
        begun = time.perf_counter()
        answer = client.get(page)
        seconds = time.perf_counter() - begun
        print(f"fault 56: {page} answers after {seconds:.2f} s with {len(answer.content):,} bytes")
        assert answer.status_code == 200, page
        assert len(answer.content) < BYTES, page
        assert "<b>&amp;\"'" not in answer.text, page
    shown = client.get("/experiments/large").text
    assert "The table has 500 of 10,000 cells" in shown


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["p" * (LIMITS["name_characters"] + 1), "a\u0007b", "a\nb", " ", "\ud800"])
def test_names_that_a_page_cannot_show_are_refused_at_creation(client: TestClient[Any], wrong: str) -> None:
    asked = {"id": "wrong", "study": study([*names("p")[1:], wrong]), "seed": 7}
    answer = client.post(
        "/api/v1/experiments", content=json.dumps(asked), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code in (400, 422)
    assert len(answer.text) < 1_000
    assert client.get("/experiments/wrong").status_code == 404


@pytest.mark.slow
def test_more_cells_than_a_page_can_show_are_refused_at_creation(client: TestClient[Any]) -> None:
    asked = {"id": "larger", "study": study([*names("p"), *names("q")]), "seed": 7}
    answer = client.post("/api/v1/experiments", json=asked)
    assert answer.status_code in (400, 413, 422)
    assert "cells" in answer.json()["error"]
