"""Policies that join and leave under relative floors and guard-rails: HTTP, pages, report and audit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient

import evenhand as eh
from evenhand.live.audit import audit
from tests.service.peers import admin_client
from tests.test_wider_product import page_of

pytestmark = pytest.mark.usefixtures("whole_pages")

STUDY = eh.Study(
    eh.Problem(
        ["old", "new", "risky"], {"web": 0.6, "app": 0.4}, eh.Bernoulli(),
        eh.Floors(relative_to="old", margin=0.1), max_policies=4,
        guardrails=[eh.Guardrail("calls", eh.Poisson(), eh.Caps(2.0))],
    ),
    eh.Procedure(delta=0.1, max_samples=6_000),
)  # fmt: skip
MEANS = {"old": 0.4, "new": 0.3, "risky": 0.6, "late": 0.95}
PATH = "/api/v1/experiments/platform"


def sample(policy: str, number: int) -> dict[str, float]:
    u = (number * 0.6180339887498949) % 1.0
    return {"outcome": float(u < MEANS[policy]), "calls": float(u > 0.5)}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient[Any]]:
    with admin_client(str(tmp_path_factory.mktemp("platform") / "journal.db")) as found:
        yield found


def play(client: TestClient[Any], most: int) -> None:
    """Ask and tell until the experiment ends, or for this many samples."""
    number = 0
    while number < most and (tickets := client.post(f"{PATH}/ask", json={"n": 20}).json()):
        told = []
        for ticket in tickets:
            number += 1
            told.append({"ticket": ticket["ticket"], "outcome": sample(ticket["policy"], number)})
        assert client.post(f"{PATH}/tell-all", json={"outcomes": told}).status_code < 300


def refused(client: TestClient[Any], verb: str, policy: str, words: str) -> None:
    before = client.get(PATH).json()["events"]
    answer = client.post(f"{PATH}/{verb}", json={"policy": policy, "reason": "why not"})
    assert answer.status_code == 422
    assert words in answer.json()["error"]
    assert client.get(PATH).json()["events"] == before


def test_policies_join_and_leave_over_http_and_the_page_says_who(
    client: TestClient[Any], tmp_path: Path
) -> None:
    made = client.post("/api/v1/experiments", json={"id": "platform", "study": STUDY.to_dict(), "seed": 5})
    assert made.status_code == 201, made.text
    play(client, 40)
    refused(client, "withdraw", "old", "is the control that the requirement refers to")
    refused(client, "withdraw", "late", "there is no policy 'late'")
    refused(client, "add-policy", "new", "must have a new name")
    for verb, policy in (("withdraw", "risky"), ("add-policy", "late")):
        done = client.post(f"{PATH}/{verb}", json={"policy": policy, "reason": f"reason for {policy}"})
        assert done.status_code == 200, done.text
    refused(client, "add-policy", "fifth", "max_policies is 4")
    refused(client, "add-policy", "risky", "It was withdrawn: give the policy another name")
    play(client, 6_000)
    status = client.get(PATH).json()
    assert (status["decided"], status["answer"]) == (True, "late")
    assert [(one["policy"], one["by"]) for one in status["joined"]] == [("late", "admin")]
    assert [(one["policy"], one["reason"]) for one in status["withdrawn"]] == [("risky", "reason for risky")]
    assert {cell["policy"] for cell in status["cells"]} == {"old", "new", "late"}
    page = page_of(client, "/experiments/platform")
    assert "late joined and risky left during the experiment" in page
    assert "nothing is claimed about one that left" in page
    log = tmp_path / "log.jsonl"
    log.write_text(client.get(f"{PATH}/export").text, encoding="utf-8")
    assert audit(str(log)).identical


def test_the_last_rival_may_leave_and_the_page_still_describes_the_control(client: TestClient[Any]) -> None:
    body = {"id": "alone", "study": STUDY.to_dict(), "seed": 6}
    assert client.post("/api/v1/experiments", json=body).status_code == 201
    for policy in ("new", "risky"):
        done = client.post("/api/v1/experiments/alone/withdraw", json={"policy": policy, "reason": "r"})
        assert done.status_code == 200, done.text
    status = client.get("/api/v1/experiments/alone").json()
    assert "about the one policy present at the end" in status["sentence"]
    assert {cell["policy"] for cell in status["guardrails"][0]["cells"]} == {"old"}
    assert "The means of calls against their bounds" in page_of(client, "/experiments/alone")
