"""The dashboard in a real browser, from an empty journal to a report. Screenshots stay in out/screenshots."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys as Press
from selenium.webdriver.support.ui import Select, WebDriverWait

import evenhand as eh
from evenhand.service.keys import Keys
from tests.service.service_process import STUDY, Running

pytestmark = pytest.mark.slow
SCREENSHOTS = Path(__file__).parents[2] / "out" / "screenshots"
LOOKS = ((1280, False), (390, False), (1280, True), (390, True))
PATIENCE = 300.0


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("browser")
    with Running(str(folder / "journal.db"), folder / "log") as found:
        yield found


def look(browser: webdriver.Chrome, width: int, dark: bool, height: int = 900) -> None:
    """Show the page as on such a screen."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def keep_pictures(browser: webdriver.Chrome, name: str) -> None:
    """A picture of the whole page, wide and narrow, light and dark; nothing sticks out at the side."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    for width, dark in LOOKS:
        look(browser, width, dark)
        time.sleep(0.3)  # the curve is drawn again for the new width
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        picture = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
        file = SCREENSHOTS / f"{name}-{width}-{'dark' if dark else 'light'}.png"
        file.write_bytes(base64.b64decode(picture["data"]))
    look(browser, 1280, False)


def text_of(browser: webdriver.Chrome, selector: str) -> str:
    found: str = browser.execute_script(
        "return document.querySelector(arguments[0])?.textContent ?? ''", selector
    )
    return found


def wait(browser: webdriver.Chrome, until: Callable[[], Any]) -> None:
    WebDriverWait(browser, PATIENCE).until(lambda _: until())


def no_complaint(browser: webdriver.Chrome) -> None:
    """Nothing was refused by the content policy, and no script failed."""
    assert [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def start_from_planner(browser: webdriver.Chrome, url: str) -> None:
    browser.get(f"{url}/planner")
    table = browser.find_element(By.NAME, "table")
    table.clear()
    table.send_keys("policy, north, south\nplain, 0.9, 0.8\nbold, 0.4, 0.35")
    for name, value in (("shares", "0.5, 0.5"), ("bound", "0.3"), ("delta", "0.1"), ("replications", "50")):
        field = browser.find_element(By.NAME, name)
        field.clear()
        field.send_keys(value)
    browser.find_element(By.CSS_SELECTOR, "#planner button[type=submit]").click()
    wait(browser, lambda: "plain would be chosen" in text_of(browser, "#plan-result"))
    assert "T* =" in text_of(browser, "#plan-result")
    browser.find_element(By.ID, "simulate").click()
    wait(browser, lambda: "50 runs" in text_of(browser, "#simulation-result"))
    assert browser.find_elements(By.CSS_SELECTOR, "#simulation-result canvas")
    keep_pictures(browser, "planner")
    browser.find_element(By.NAME, "id").clear()
    browser.find_element(By.NAME, "id").send_keys("ads")
    browser.find_element(By.NAME, "title").send_keys("Two ads, two regions")
    browser.find_element(By.ID, "start").click()
    wait(browser, lambda: browser.current_url.endswith("/experiments/ads"))


def type_in(browser: webdriver.Chrome, **fields: str) -> None:
    """Fill in fields of the planner, or choose an option of a list."""
    for name, value in fields.items():
        field = browser.find_element(By.NAME, name)
        if field.tag_name == "select":
            Select(field).select_by_value(value)
        else:
            field.clear()
            field.send_keys(value)


def test_a_test_against_a_control_from_planner_to_decision(
    browser: webdriver.Chrome, service: Running
) -> None:
    look(browser, 1280, False)
    browser.get(f"{service.url}/planner")
    type_in(
        browser, table="policy, north, south\nplain, 0.5, 0.5\nbold, 0.95, 0.9\nloud, 0.95, 0.1",
        shares="0.5, 0.5", delta="0.1", requirement="relative", bound="0.1", control="plain",
        costs="2, 2, 2",
    )  # fmt: skip
    browser.find_element(By.CSS_SELECTOR, "#planner button[type=submit]").click()
    wait(browser, lambda: "bold would be chosen" in text_of(browser, "#plan-result"))
    assert "cost at least" in text_of(browser, "#plan-result")
    type_in(browser, id="control")
    browser.find_element(By.ID, "start").click()
    wait(browser, lambda: browser.current_url.endswith("/experiments/control"))
    trial = eh.connect(service.url).open("control")
    means = {"plain": (0.5, 0.5), "bold": (0.95, 0.9), "loud": (0.95, 0.1)}
    number = 0
    while asks := trial.ask(10):
        rows = []
        for ask in asks:
            number += 1
            mean = means[ask.policy][ask.group == "south"]
            rows.append((ask, float((number * 0.6180339887498949) % 1.0 < mean), None))
        trial.tell_all(rows)
    wait(browser, lambda: text_of(browser, "#state") == "decided")
    said = text_of(browser, "#sentence")
    assert "bold is the answer: certified at risk 10%" in said
    assert "The samples have cost" in said
    assert "allowed: plain, bold" in text_of(browser, "#classes")
    assert "interval of plain" in text_of(browser, "figure.floors")
    assert "at most 0.1 below plain" in text_of(browser, "#numbers")
    keep_pictures(browser, "control")
    no_complaint(browser)


def run_client(url: str, worker: str) -> None:
    """Tell every second outcome of the good policy well, slowly enough to be watched."""
    trial = eh.connect(url).open("ads")
    number = 0
    while ask := trial.ask(worker=worker):
        number += 1
        trial.tell(ask, 1 if ask.policy == "plain" or number % 3 == 0 else 0)
        time.sleep(0.05)


def test_an_experiment_from_planner_to_report(
    browser: webdriver.Chrome, service: Running, tmp_path: Path
) -> None:
    look(browser, 1280, False)
    start_from_planner(browser, service.url)
    wait(browser, lambda: text_of(browser, "#state") == "running")
    clients = [
        threading.Thread(target=run_client, args=(service.url, worker)) for worker in ("ward 1", "ward 2")
    ]
    for client in clients:
        client.start()
    wait(browser, lambda: browser.find_elements(By.CSS_SELECTOR, "#evidence canvas"))
    keep_pictures(browser, "running")
    # the page shows the stop without a reload
    wait(browser, lambda: text_of(browser, "#state") == "decided")
    for client in clients:
        client.join()
    assert "plain is the answer" in text_of(browser, "#sentence")
    assert "plain is the answer" in text_of(browser, "#said")  # and is read to those who cannot see it
    audit_by_keyboard(browser)
    keep_pictures(browser, "decided")
    search_the_log(browser)
    download_the_report(browser, tmp_path)
    no_complaint(browser)
    browser.get(service.url)
    assert "Two ads, two regions" in text_of(browser, ".experiments")
    keep_pictures(browser, "experiments")


def audit_by_keyboard(browser: webdriver.Chrome) -> None:
    browser.execute_script("document.querySelector('button[data-post]').focus()")
    browser.switch_to.active_element.send_keys(Press.ENTER)
    wait(browser, lambda: "Identical." in text_of(browser, "#audit"))


def search_the_log(browser: webdriver.Chrome) -> None:
    browser.find_element(By.CSS_SELECTOR, "input[type=search]").send_keys("stopped")
    wait(browser, lambda: "with “stopped”" in text_of(browser, "#log"))
    assert "decided" in text_of(browser, "#log")


def download_the_report(browser: webdriver.Chrome, folder: Path) -> None:
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})
    browser.find_element(By.LINK_TEXT, "Report").click()
    report = folder / "ads.html"
    wait(browser, report.is_file)
    assert "plain" in report.read_text(encoding="utf-8")
    browser.find_element(By.LINK_TEXT, "Export").click()
    export = folder / "ads.jsonl"
    wait(browser, export.is_file)
    from evenhand.live.audit import audit

    assert audit(str(export)).identical


def test_the_pages_are_walked_through_by_keyboard(browser: webdriver.Chrome, service: Running) -> None:
    look(browser, 1280, False)
    browser.get(f"{service.url}/planner")
    reached = []
    for _ in range(40):
        browser.switch_to.active_element.send_keys(Press.TAB)
        reached.append(
            browser.execute_script(
                "const at = document.activeElement;"
                "return at.id || at.name || at.getAttribute('href') || at.tagName"
            )
        )
    assert reached[0] == "#main"  # past the navigation at once
    for stop in (
        "/planner",
        "table",
        "shares",
        "family",
        "requirement",
        "bound",
        "save",
        "simulate",
        "start",
    ):
        assert stop in reached


def test_a_browser_gives_its_key_and_takes_it_back(browser: webdriver.Chrome, tmp_path: Path) -> None:
    journal = str(tmp_path / "journal.db")
    key = Keys(journal).create("operator", "ward 2")
    admin = Keys(journal).create("admin", "me")
    with Running(journal, tmp_path / "log") as service:
        eh.connect(service.url, admin).create(eh.Study.from_dict(STUDY), seed=7)
        look(browser, 1280, False)
        browser.get(f"{service.url}/experiments/main")
        assert browser.current_url.endswith("/login")
        keep_pictures(browser, "login")
        browser.find_element(By.NAME, "key").send_keys("wrong", Press.ENTER)
        wait(browser, lambda: "wrong" in text_of(browser, "#login-error"))
        browser.find_element(By.NAME, "key").clear()
        browser.find_element(By.NAME, "key").send_keys(key, Press.ENTER)
        wait(browser, lambda: not browser.current_url.endswith("/login"))
        browser.get(f"{service.url}/experiments/main")
        wait(browser, lambda: "0 outcomes told" in text_of(browser, "#sentence"))
        keep_pictures(browser, "blind")
        browser.find_element(By.CSS_SELECTOR, "button[data-act]").click()
        wait(browser, lambda: browser.current_url.endswith("/login"))
        secret = key.split("_", 2)[2]
        assert secret not in (tmp_path / "log").read_text()
    assert secret not in (tmp_path / "log").read_text()


def payloads() -> list[str]:
    """Five hundred ways to smuggle a script into a name."""
    act = "window.owned=1"
    tags = [
        f"<script>{act}</script>", f"<img src=x onerror={act}>", f"<svg onload={act}>",
        f"<svg><script>{act}</script></svg>", f"<body onload={act}>",
        f"<iframe srcdoc='<script>{act}</script>'>", f"<details open ontoggle={act}>",
        f"<input autofocus onfocus={act}>", f"<a href=javascript:{act}>x</a>",
        f"<math><mi xlink:href=javascript:{act}>", f"<video><source onerror={act}>",
        f"<style onload={act}>@import'x'</style>",
        f"<marquee onstart={act}>", f"<object data=javascript:{act}>", f"<embed src=javascript:{act}>",
        f"<form><button formaction=javascript:{act}>x", f"<link rel=stylesheet href=javascript:{act}>",
        f"<meta http-equiv=refresh content='0;url=javascript:{act}'>", f"<base href=javascript:{act}//>",
        f"<div hx-on:load={act} hx-get=/ hx-trigger=load>",
    ]  # fmt: skip
    frames = [
        "{}", '"{}', "'{}", '">{}', "'>{}", "</text>{}", "</svg>{}", "-->{}", "]]>{}", "{{{{{}}}}}",
        "{{% {} %}}", "</title>{}", "</textarea>{}", "`{}`", "${{{}}}", "\\u003c{}", "&lt;{}", "%3C{}",
        "x {}", "</script>{}", "*/{}/*", "';{}//", '";{}//', "&#x3c;{}", "\u2028{}",
    ]  # fmt: skip
    return [frame.format(tag) for frame in frames for tag in tags]


def test_no_name_from_a_user_runs_as_a_script(browser: webdriver.Chrome, service: Running) -> None:
    found = payloads()
    assert len(set(found)) == 500
    look(browser, 1280, False)
    client = eh.connect(service.url)
    for part in range(10):
        names = found[50 * part : 50 * part + 50]
        problem = {
            "policies": names[:48], "groups": {names[48]: 0.5, names[49]: 0.5},
            "family": {"name": "bernoulli"}, "constraint": {"kind": "floors", "at_least": 0.3},
        }  # fmt: skip
        trial = client.create(
            eh.Study.from_dict({"title": names[0], "problem": problem}), seed=1, name=f"xss-{part}"
        )
        ask = trial.ask(worker=names[1])
        assert ask is not None
        trial.drop(ask, names[2])
        for page in (f"/experiments/xss-{part}", "/", f"/experiments/xss-{part}/log?search={names[3][:50]}"):
            browser.get(service.url + page)
            assert browser.execute_script("return window.owned") is None, (part, page)
    wait(browser, lambda: True)
    browser.get(f"{service.url}/experiments/xss-0")
    time.sleep(3)  # the parts that are swapped in
    assert browser.execute_script("return window.owned") is None
