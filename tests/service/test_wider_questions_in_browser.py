"""Wider questions in a real browser: asked in the planner, run by a client, decided on the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

import evenhand as eh
from tests.service.service_process import Running
from tests.service.test_browser import keep_pictures, look, no_complaint, text_of, type_in, wait
from tests.service.test_page_matrix import check_page

pytestmark = pytest.mark.slow
TABLE = "policy, north, south\nplain, 0.6, 0.6\nbold, 0.95, 0.9\nloud, 0.97, 0.95"
MEANS = {"plain": (0.6, 0.6), "bold": (0.95, 0.9), "loud": (0.97, 0.95), "third": (0.3, 0.2)}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("wider")
    with Running(str(folder / "journal.db"), folder / "log") as found:
        yield found


def planned(browser: webdriver.Chrome, words: str) -> None:
    browser.find_element(By.CSS_SELECTOR, "#planner button[type=submit]").click()
    wait(browser, lambda: words in text_of(browser, "#plan-result") or text_of(browser, ".field-error"))
    assert words in text_of(browser, "#plan-result"), text_of(browser, ".field-error")


def start(browser: webdriver.Chrome, name: str) -> None:
    type_in(browser, id=name)
    browser.find_element(By.ID, "start").click()
    wait(browser, lambda: browser.current_url.endswith(f"/experiments/{name}"))


def play(trial: Any, most: int, sample: Callable[[Any, float], Any]) -> None:
    """Ask and tell until the experiment ends, or for this many samples."""
    number = 0
    while number < most and (asks := trial.ask(min(10, most - number))):
        rows = []
        for ask in asks:
            number += 1
            rows.append((ask, sample(ask, (number * 0.6180339887498949) % 1.0), None))
        trial.tell_all(rows)


def mean_of(ask: Any) -> float:
    return MEANS[ask.policy][ask.group == "south"]


def add_guardrail(browser: webdriver.Chrome, **fields: str) -> None:
    browser.execute_script("document.getElementById('guardrails').open = true")
    browser.find_element(By.ID, "add-rail").click()
    rail = browser.find_elements(By.CSS_SELECTOR, "#rails fieldset")[-1]
    for name, value in fields.items():
        place = rail.find_element(By.NAME, f"rail {name}")
        if place.tag_name == "select":
            Select(place).select_by_value(value)
        else:
            place.clear()
            place.send_keys(value)


def change_policies(browser: webdriver.Chrome, verb: str, policy: str, says: str) -> None:
    """Let a policy join or leave, on the page of the experiment."""
    browser.execute_script("document.getElementById(arguments[0]).open = true", f"manage-{verb}")
    place = browser.find_element(By.CSS_SELECTOR, f"#manage-{verb} [name=policy]")
    if place.tag_name == "select":
        Select(place).select_by_visible_text(policy)
    else:
        place.send_keys(policy)
    browser.find_element(By.CSS_SELECTOR, f"#manage-{verb} [name=reason]").send_keys("as agreed")
    browser.find_element(By.CSS_SELECTOR, f"#manage-{verb} button").click()
    wait(browser, lambda: says in text_of(browser, "#manage-said"))


def members(browser: webdriver.Chrome) -> list[str]:
    """The policies that the page offers to withdraw."""
    options = browser.find_elements(By.CSS_SELECTOR, "#manage-withdraw option")
    return [text for one in options if (text := one.get_attribute("value"))]


def test_guard_rails_and_policies_that_come_and_go_from_planner_to_decision(
    browser: webdriver.Chrome, service: Running
) -> None:
    look(browser, 1280, False)
    browser.get(f"{service.url}/planner")
    type_in(browser, table=TABLE, shares="0.5, 0.5", delta="0.1", requirement="floors", bound="0.3", room="2")
    browser.find_element(By.CSS_SELECTOR, "#planner button[type=submit]").click()
    wait(browser, lambda: "at least 3" in text_of(browser, "[name=room] + .field-error"))
    type_in(browser, room="4")
    add_guardrail(browser, name="calls", family="poisson", requirement="caps", bound="2", table=TABLE)
    add_guardrail(
        browser, name="errors", requirement="relative-caps", control="nobody", bound="0.2",
        table="policy, north, south\nplain, 0.1, 0.1\nbold, 0.1, 0.1\nloud, 0.9, 0.9",
    )  # fmt: skip
    browser.find_element(By.CSS_SELECTOR, "#planner button[type=submit]").click()
    wait(browser, lambda: "must be one of the policies" in text_of(browser, "#rails .field-error"))
    browser.find_elements(By.NAME, "rail control")[1].clear()
    browser.find_elements(By.NAME, "rail control")[1].send_keys("plain")
    planned(browser, "bold would be chosen")  # loud breaks a guard-rail
    browser.find_element(By.ID, "share").click()
    wait(browser, lambda: "#" in browser.current_url)
    link = browser.current_url
    browser.get("about:blank")
    browser.get(link)
    assert len(browser.find_elements(By.CSS_SELECTOR, "#rails fieldset")) == 2
    planned(browser, "bold would be chosen")
    wrong = check_page(browser, "planner-guard-rails")
    start(browser, "rails")

    def sample(ask: Any, u: float) -> dict[str, float | None]:
        errors = 0.9 if ask.policy == "loud" else 0.05
        calls = None if u < 0.1 else float(u > 0.5)
        return {"outcome": float(u < mean_of(ask)), "errors": float((7 * u) % 1.0 < errors), "calls": calls}

    trial = eh.connect(service.url).open("rails")
    play(trial, 20, sample)
    change_policies(browser, "add-policy", "third", "was added")
    play(trial, 20, sample)
    assert members(browser) == ["plain", "bold", "loud", "third"]
    change_policies(browser, "withdraw", "loud", "was withdrawn")
    assert members(browser) == ["plain", "bold", "third"]
    play(trial, 5_000, sample)
    wait(browser, lambda: text_of(browser, "#state") == "decided")
    said = text_of(browser, "#sentence")
    assert "bold is the answer: certified at risk 10%" in said
    assert "third joined and loud left" in said
    page = text_of(browser, "main")
    for words in ("The means of errors against their bounds", "The means of calls against their bounds"):
        assert words in page
    assert "missing independently of their values" in page
    keep_pictures(browser, "guard-rails")
    browser.get(f"{service.url}/experiments/rails")  # also when it is opened afresh
    wait(browser, lambda: text_of(browser, "#state") == "decided")
    no_severe_but_refusals(browser)
    assert wrong == []


def no_severe_but_refusals(browser: webdriver.Chrome) -> None:
    """No script failed; a request may have been refused, as the test wants."""
    log = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert [line for line in log if "status of 422" not in line] == []


def test_policies_are_screened_from_planner_to_decision(browser: webdriver.Chrome, service: Running) -> None:
    look(browser, 1280, False)
    browser.get(f"{service.url}/planner")
    type_in(
        browser, table=TABLE.replace("0.6, 0.6", "0.2, 0.3"), goal="screen", shares="0.5, 0.5", delta="0.1",
        requirement="floors", bound="0.6",
    )  # fmt: skip
    planned(browser, "2 of 3 policies meet the requirement: bold, loud")
    start(browser, "screen")
    means = {"plain": 0.2, "bold": 0.93, "loud": 0.96}
    play(eh.connect(service.url).open("screen"), 5_000, lambda ask, u: float(u < means[ask.policy]))
    wait(browser, lambda: text_of(browser, "#state") == "decided")
    assert "allowed: bold, loud" in text_of(browser, "#classes")
    assert "are allowed" in text_of(browser, "#sentence")
    no_complaint(browser)


def test_a_near_tie_is_decided_with_an_indifference_and_a_tolerance(
    browser: webdriver.Chrome, service: Running
) -> None:
    look(browser, 1280, False)
    browser.get(f"{service.url}/planner")
    type_in(
        browser, table="policy, north, south\nbold, 0.901, 0.9\nloud, 0.9, 0.9\nplain, 0.3, 0.2",
        shares="0.5, 0.5", delta="0.1", requirement="floors", bound="0.5",
    )  # fmt: skip
    planned(browser, "Would bold or loud do?")
    type_in(browser, indifference="0.2", tolerance="0.05")
    planned(browser, "Acceptable: bold, loud")
    start(browser, "tie")
    means = {"bold": 0.9, "loud": 0.9, "plain": 0.2}
    play(eh.connect(service.url).open("tie"), 5_000, lambda ask, u: float(u < means[ask.policy]))
    wait(browser, lambda: text_of(browser, "#state") == "decided")
    assert "within 0.2 of the best" in text_of(browser, "#sentence")
    no_complaint(browser)
