"""Every page in every state at two widths, light and dark: axe-core, no clipped text, contrast in drawings.

The screenshots stay in out/screenshots/matrix.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys as Press

import evenhand as eh
from evenhand.service.keys import Keys
from tests.service.service_process import Running
from tests.service.test_browser import PATIENCE, look, no_complaint, text_of, wait

pytestmark = pytest.mark.slow
SCREENSHOTS = Path(__file__).parents[2] / "out" / "screenshots" / "matrix"
LOOKS = ((1280, False), (390, False), (1280, True), (390, True))
TWO = {"north": 0.5, "south": 0.5}
THREE = {"young": 0.5, "middle": 0.3, "old": 0.2}
SPREAD = {"A": (0.8, 0.75, 0.7), "B": (0.9, 0.85, 0.6), "C": (0.6, 0.6, 0.6)}
LARGE = {
    f"A policy whose name has forty characters {k:02}": tuple(0.9 - 0.065 * k - 0.03 * g for g in range(6))
    for k in range(12)
}
LARGE_GROUPS = {f"People of the group with a long name {g}": 1 / 6 for g in range(6)}
SCRIPTS = {"الأسبرين فقط": (0.8, 0.7), "阿司匹林": (0.7, 0.75), "Обычный уход": (0.4, 0.4)}
HUGE = {f"Variant {k:03}": tuple(0.9 - 0.004 * k - 0.002 * g for g in range(30)) for k in range(100)}
HUGE_GROUPS = {f"Region {g:02}": 1 / 30 for g in range(30)}
RAILS = [
    {"name": "complaints", "family": {"name": "poisson"}, "constraint": {"kind": "caps", "at_most": 1.5}}
]
FLOOR: dict[str, Any] = {"kind": "floors", "at_least": 0.3}
ADS = {"plain": (0.9, 0.8), "bold": (0.4, 0.35)}

# name: title, means by policy, groups, requirement, outcomes, procedure
STATES: dict[str, tuple[str, dict[str, Any], dict[str, float], dict[str, Any], int, dict[str, Any]]] = {
    "floors": ("Stroke trial", {"Aspirin": (0.89, 0.84), "Both": (0.87, 0.6)}, TWO, FLOOR, 300, {}),
    "large": (
        "Twelve policies in six groups", LARGE, LARGE_GROUPS, {"kind": "floors", "at_least": 0.6}, 7_200,
        {"sampling": "uniform"},
    ),
    "relative": (
        "Against a control", {"Standard": (0.7, 0.6), "New": (0.8, 0.62)}, TWO,
        {"kind": "floors", "relative_to": "Standard", "margin": 0.05}, 300, {},
    ),
    "gap": ("Gap", SPREAD, THREE, {"kind": "gap", "at_most": 0.15}, 300, {}),
    "ratio": ("Ratio", SPREAD, THREE, {"kind": "ratio", "at_least": 0.8}, 300, {}),
    "quota": ("Quota", SPREAD, THREE, {"kind": "quota", "groups": 2, "at_least": 0.7}, 300, {}),
    "dispersion": ("Dispersion", SPREAD, THREE, {"kind": "dispersion", "at_most": 0.02}, 300, {}),
    "rails": ("Guard-rails", ADS, TWO, FLOOR, 60, {}),
    "none": ("None meets it", ADS, TWO, {"kind": "floors", "at_least": 0.95}, 4_000, {"delta": 0.1}),
    "empty": ("Not begun", ADS, TWO, FLOOR, 0, {}),
    "decided": ("Two ads", ADS, TWO, FLOOR, 2_000, {"delta": 0.1}),
    "paused": ("Paused", ADS, TWO, FLOOR, 20, {}),
    "closed": ("Closed early", ADS, TWO, FLOOR, 20, {}),
    "alarm": ("With an alarm", ADS, TWO, FLOOR, 20, {}),
    "caps": ("Caps", ADS, TWO, {"kind": "caps", "at_most": 0.85}, 300, {}),
    "penalty": (
        "A penalty below the floor", SPREAD, THREE, {"kind": "penalty", "floor": 0.7, "gamma": 2.0}, 300, {},
    ),
    "polyhedron": (
        "The young at most a tenth above the old", SPREAD, THREE,
        {"kind": "polyhedron", "A": [[-1.0, 0.0, 1.0]], "b": [-0.1]}, 300, {},
    ),
    "several": (
        "A floor and a gap", SPREAD, THREE,
        {"kind": "all", "of": [{"kind": "floors", "at_least": 0.5}, {"kind": "gap", "at_most": 0.2}]}, 300,
        {},
    ),
    "screen": ("Which of them may be used", LARGE, LARGE_GROUPS, {"kind": "floors", "at_least": 0.6}, 7_200, {
        "sampling": "uniform",
    }),
    "indifferent": (
        "Good enough is enough", SPREAD, THREE, FLOOR, 300, {"indifference": 0.05, "tolerance": 0.02},
    ),
    "exhausted": ("The last sample", ADS, TWO, {"kind": "floors", "at_least": 0.6}, 60, {
        "max_samples": 40, "delta": 0.001,
    }),
    "joined": ("One joined, one left", SPREAD, THREE, FLOOR, 120, {}),
    "items": ("Which classifier", {"present": (0.9, 0.86), "large": (0.94, 0.9), "tuned": (0.95, 0.4)}, TWO, {
        "kind": "floors", "at_least": 0.8,
    }, 900, {"items": "shared", "delta": 0.001}),
    "huge": ("A hundred policies", HUGE, HUGE_GROUPS, FLOOR, 3_000, {}),
    "scripts": ("التجربة الأولى 第一", SCRIPTS, {"كبار السن": 0.5, "年輕人": 0.5}, FLOOR, 60, {}),
}  # fmt: skip

EXTRAS: dict[str, dict[str, Any]] = {  # of the problem
    "rails": {"guardrails": RAILS}, "screen": {"goal": "screen"}, "joined": {"max_policies": 4},
}  # fmt: skip


def make(journal: str, name: str) -> None:
    """Create the experiment of one state and tell it outcomes."""
    title, means, groups, rule, samples, procedure = STATES[name]
    problem: dict[str, Any] = {
        "policies": list(means), "groups": groups, "family": {"name": "bernoulli"}, "constraint": rule,
    }  # fmt: skip
    problem |= EXTRAS.get(name, {})
    study = eh.Study.from_dict({"title": title, "problem": problem, "procedure": procedure})
    lease = 0.5 if name == "alarm" else None  # a ticket that is open for longer raises the alarm
    rng, places = np.random.default_rng(1), {group: g for g, group in enumerate(groups)}
    with eh.Experiment.create(journal, study, seed=7, name=name, by="Dr Lee", lease=lease) as trial:
        told = 0
        while told < samples and (asks := trial.ask(min(samples - told, 200))):
            rows: list[Any] = []
            for ask in asks:
                u, g = rng.random(), places[ask.group or ""]
                outcome: Any = float(u < means[ask.policy][g]) if ask.policy else None
                if name == "items":
                    outcome = {policy: float(u < means[policy][g]) for policy in ask.policies}
                elif name == "rails":
                    outcome = {"outcome": outcome, "complaints": float(rng.poisson(1.0))}
                rows.append((ask, outcome, None))
            trial.tell_all(rows)
            told += sum(max(len(ask.policies), 1) for ask in asks)
        if name == "joined":
            trial.add_policy("D", reason="Ready for use.", by="Dr Lee")
            trial.withdraw("C", reason="No longer licensed.", by="Dr Lee")
        if name == "paused":
            trial.pause("A ward ran out of stock.", by="Dr Lee")
        if name == "closed":
            trial.finish("The budget was cut.", by="Dr Lee")
        if name == "alarm":
            assert trial.ask(1, lease=1e6)


class Served:
    """A service with every state, and the keys to it."""

    def __init__(self, folder: Path) -> None:
        journal = str(folder / "journal.db")
        for name in STATES:
            make(journal, name)
        self.keys = {role: Keys(journal).create(role, f"the {role}") for role in ("operator", "admin")}
        self.running = Running(journal, folder / "log")
        self.url = self.running.url

    def log_in(self, browser: webdriver.Chrome, role: str) -> None:
        browser.delete_all_cookies()
        browser.get(f"{self.url}/login")
        browser.find_element(By.NAME, "key").send_keys(self.keys[role], Press.ENTER)
        wait(browser, lambda: not browser.current_url.endswith("/login"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("matrix"))
    with made.running:
        yield made


SCRIPTS_RUN = (
    files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8"),
    Path(__file__).with_name("page_checks.js").read_text(encoding="utf-8"),
)


def check_page(browser: webdriver.Chrome, name: str) -> list[str]:
    """Return what is wrong with the page that is open, at every width and in both colour schemes."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    browser.set_script_timeout(PATIENCE)
    wrong: list[str] = []
    for width, dark in LOOKS:
        look(browser, width, dark)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}  # no colour is on its way to another
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme, still]})
        time.sleep(0.3)  # the curve is drawn again for the new width
        where = f"{name}-{width}-{'dark' if dark else 'light'}"
        picture = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
        (SCREENSHOTS / f"{where}.png").write_bytes(base64.b64decode(picture["data"]))
        if browser.execute_script("return typeof pageChecks") == "undefined":
            for script in SCRIPTS_RUN:
                browser.execute_script(script)
        violations = "pageChecks.violations().then(arguments[arguments.length - 1])"
        found = [f"axe {one}" for one in browser.execute_async_script(violations)]
        found += browser.execute_script("return pageChecks.clipped().concat(pageChecks.small())")
        measured, faint = browser.execute_script("return pageChecks.contrast()")
        if browser.find_elements(By.CSS_SELECTOR, "svg text"):
            assert measured > 0, where
        found += faint
        if browser.execute_script("return document.documentElement.scrollWidth") > width:
            found.append("the page is wider than the screen")
        wrong += [f"{where}: {one}" for one in found]
    look(browser, 1280, False)
    return wrong


def opened(browser: webdriver.Chrome, url: str, ready: Callable[[], Any]) -> None:
    look(browser, 1280, False)
    browser.get(url)
    wait(browser, ready)


def has_content(browser: webdriver.Chrome) -> bool:
    """Whether the page of an experiment shows its computed content, with the log and the curve."""
    if (
        browser.find_elements(By.CSS_SELECTOR, "#panel [data-waiting]")
        or not text_of(browser, "#log").strip()
    ):
        return False
    has_curve = browser.find_elements(By.ID, "evidence")
    return not has_curve or bool(browser.find_elements(By.CSS_SELECTOR, "#evidence canvas"))


@pytest.mark.parametrize("name", STATES)
def test_an_experiment_in_every_state(browser: webdriver.Chrome, served: Served, name: str) -> None:
    served.log_in(browser, "admin")
    opened(browser, f"{served.url}/experiments/{name}", lambda: has_content(browser))
    assert check_page(browser, name) == []
    no_complaint(browser)


@pytest.mark.parametrize("page", ["", "planner", "docs", "experiments/floors/work", "experiments/nobody"])
def test_every_other_page(browser: webdriver.Chrome, served: Served, page: str) -> None:
    served.log_in(browser, "admin")
    opened(browser, f"{served.url}/{page}", lambda: text_of(browser, "h1"))
    assert check_page(browser, page.replace("/", "-") or "list") == []
    if page == "experiments/nobody":
        browser.get_log("browser")  # the page of an unknown experiment is a 404
    no_complaint(browser)


@pytest.mark.parametrize("page", ["", "experiments/floors", "experiments/decided"])
def test_the_pages_of_an_operator(browser: webdriver.Chrome, served: Served, page: str) -> None:
    served.log_in(browser, "operator")
    opened(browser, f"{served.url}/{page}", lambda: text_of(browser, "h1"))
    if page:
        wait(browser, lambda: has_content(browser))
    assert check_page(browser, f"operator-{page.replace('/', '-') or 'list'}") == []
    no_complaint(browser)


def test_what_the_states_say(browser: webdriver.Chrome, served: Served) -> None:
    served.log_in(browser, "admin")
    says = {
        "none": ("#blame", "falls short in"), "alarm": ("#alarm", "has been open for"),
        "paused": ("#ending", "Paused by Dr Lee"), "closed": ("#ending", "Closed by Dr Lee"),
        "decided": ("#ending", "Use plain for everyone"), "empty": ("#first", served.url),
        "gap": ("figure.floors", "at most 0.150"), "ratio": ("figure.floors", "at least 0.800"),
        "quota": ("figure.floors", "2 needed"), "dispersion": ("figure.floors", "squared distances"),
        "several": ("figure.floors", "floor 0.500"), "polyhedron": (".protocol", "old - young at least -0.1"),
        "huge": ("figure.floors", "Drawn are the 10 policies ranked first of 100 and 8 of 30 groups"),
        "floors": ("#evidence-words", "of what is needed; the open question is whether"),
        "large": ("figure.floors", "fails"),
    }  # fmt: skip
    for name, (place, words) in says.items():
        browser.get(f"{served.url}/experiments/{name}")
        wait(browser, lambda place=place, words=words: words in text_of(browser, place))
    browser.get(f"{served.url}/experiments/alarm")
    order = browser.execute_script(
        "return document.querySelector('#alarm').compareDocumentPosition(document.querySelector('#sentence'))"
    )
    assert order & 4  # what is wrong comes first


def test_a_button_under_the_pointer_keeps_its_contrast(browser: webdriver.Chrome, served: Served) -> None:
    served.log_in(browser, "operator")
    opened(browser, f"{served.url}/experiments/rails/work", lambda: text_of(browser, "h1"))
    browser.find_element(By.CSS_SELECTOR, "#ask button").click()  # the pointer stays there
    wait(browser, lambda: browser.find_elements(By.CSS_SELECTOR, ".ticket"))
    browser.execute_script("document.querySelector('.ticket details').open = true")
    assert check_page(browser, "operator-ticket") == []


def test_an_operator_works_by_keyboard_on_a_phone(browser: webdriver.Chrome, served: Served) -> None:
    served.log_in(browser, "operator")
    look(browser, 390, False)
    browser.get(f"{served.url}/experiments/floors/work")

    def tickets() -> int:
        return len(browser.find_elements(By.CSS_SELECTOR, ".ticket"))

    def press_ask() -> None:
        browser.execute_script("document.querySelector('#ask button').focus()")
        browser.switch_to.active_element.send_keys(Press.ENTER)

    for number in (1, 2):
        press_ask()
        wait(browser, lambda number=number: tickets() == number)
    browser.get(f"{served.url}/experiments/floors/work")
    wait(browser, lambda: tickets() == 2)  # they are found again
    browser.execute_script("document.querySelector('.ticket input').focus()")
    browser.switch_to.active_element.send_keys("1")
    browser.switch_to.active_element.send_keys(Press.ENTER)
    wait(browser, lambda: "Recorded 1" in text_of(browser, "#work-said"))
    assert tickets() == 1
    seen = text_of(browser, "main")
    for word in ("leads", "evidence", "%"):
        assert word not in seen
    browser.execute_script("document.querySelector('.ticket details').open = true")
    browser.find_element(By.CSS_SELECTOR, ".ticket details button").click()
    wait(browser, lambda: "Say why" in text_of(browser, ".ticket [role=alert]"))
    browser.find_element(By.NAME, "reason").send_keys("moved away")
    browser.find_element(By.CSS_SELECTOR, ".ticket details button").click()
    wait(browser, lambda: tickets() == 0)
    served.log_in(browser, "admin")
    browser.get(f"{served.url}/experiments/floors/work")
    wait(browser, lambda: text_of(browser, "h1"))
    assert tickets() == 0  # the tickets of another key are not shown
    no_complaint(browser)


def test_an_operator_labels_shared_items_by_keyboard(browser: webdriver.Chrome, served: Served) -> None:
    served.log_in(browser, "operator")
    look(browser, 390, False)
    browser.get(f"{served.url}/experiments/items/work")
    wait(browser, lambda: "take a random item of its group" in text_of(browser, "main"))
    browser.execute_script("document.querySelector('#ask button').focus()")
    browser.switch_to.active_element.send_keys(Press.ENTER)
    wait(browser, lambda: browser.find_elements(By.CSS_SELECTOR, ".ticket fieldset"))
    assert check_page(browser, "operator-item") == []
    look(browser, 390, False)
    legends = [one.text for one in browser.find_elements(By.CSS_SELECTOR, ".ticket legend")]
    assert legends == ["present", "large"]  # the third was shown to fail before this item was asked for
    browser.find_element(By.CSS_SELECTOR, ".ticket button[type=submit]").click()
    ticket = text_of(browser, ".ticket .small").removeprefix("Ticket ")
    browser.execute_script("document.querySelector('.ticket input').focus()")
    for key in ("1", "0", Press.ENTER):
        browser.switch_to.active_element.send_keys(key)
    wait(browser, lambda: "Recorded present 1, large 0" in text_of(browser, "#work-said"))
    served.log_in(browser, "admin")
    opened(browser, f"{served.url}/experiments/items", lambda: text_of(browser, "#manage-title"))
    assert not browser.find_elements(By.ID, "manage-import")
    browser.execute_script("document.getElementById('manage-amend').open = true")
    for field, value in (
        ("ticket", ticket),
        ("policy present", "missing"),
        ("policy large", "1"),
        ("reason", "no"),
    ):
        browser.find_element(By.CSS_SELECTOR, f"#manage-amend [name='{field}']").send_keys(value)
    browser.find_element(By.CSS_SELECTOR, "#manage-amend button[type=submit]").click()
    wait(browser, lambda: f"Corrected ticket {ticket}" in text_of(browser, "#manage-said"))
    no_complaint(browser)


def test_an_administrator_manages_an_experiment_on_its_page(
    browser: webdriver.Chrome, served: Served, tmp_path: Path
) -> None:
    study = {
        "title": "Managed",
        "problem": {
            "policies": ["plain", "bold"], "groups": TWO, "family": {"name": "bernoulli"},
            "constraint": FLOOR, "max_policies": 3,
        },
    }  # fmt: skip
    service = eh.connect(served.url, served.keys["admin"])
    trial = service.create(eh.Study.from_dict(study), seed=7, name="managed")
    served.log_in(browser, "admin")
    opened(browser, f"{served.url}/experiments/managed", lambda: text_of(browser, "#manage-title"))

    def fill(verb: str, **fields: str) -> None:
        browser.execute_script("document.getElementById(arguments[0]).open = true", f"manage-{verb}")
        for name, value in fields.items():
            place = browser.find_element(By.CSS_SELECTOR, f"#manage-{verb} [name={name}]")
            if name == "sure":
                place.click()
            else:
                place.send_keys(value)

    def press(verb: str) -> None:
        browser.find_element(By.CSS_SELECTOR, f"#manage-{verb} button").click()

    def says(words: str) -> Callable[[], bool]:
        return lambda: words in text_of(browser, "#manage-said")

    fill("pause")
    press("pause")
    wait(browser, lambda: "Fill in: Reason" in text_of(browser, "#manage-pause [role=alert]"))
    fill("pause", reason="Lunch")
    press("pause")
    wait(browser, says("is paused"))
    wait(browser, lambda: browser.find_element(By.ID, "manage-resume").is_displayed())
    assert not browser.find_element(By.ID, "manage-pause").is_displayed()
    fill("resume", reason="Back")
    press("resume")
    wait(browser, says("The experiment continues"))
    wait(browser, lambda: browser.find_element(By.ID, "manage-pause").is_displayed())
    data = tmp_path / "pilot.csv"
    data.write_text('policy,group,outcome\nplain,north,1\n"bold",south,maybe\n', encoding="utf-8")
    fill("import", file=str(data))
    press("import")
    wait(browser, lambda: "Line 3: the outcome must be" in text_of(browser, "#manage-import [role=alert]"))
    assert trial.status().samples == 0
    data.write_text('policy,group,outcome\nplain,north,1\n"bold",south,0\n', encoding="utf-8")
    fill("import", file=str(data))
    press("import")
    wait(browser, says("Imported 2 outcomes from pilot.csv"))
    ask = trial.ask()
    assert ask is not None
    trial.tell(ask, 1)
    fill("amend", ticket=ask.ticket, outcome="0", reason="Misread")
    press("amend")
    wait(browser, says("Corrected ticket"))
    fill("add-policy", policy="third", reason="Ready")
    press("add-policy")
    wait(browser, says("was added"))
    browser.execute_script(
        "document.querySelectorAll('#manage details').forEach((one) => { one.open = true; })"
    )
    wrong = check_page(browser, "manage")
    press("finish")
    fill("finish", reason="The season is over")
    press("finish")
    wait(browser, lambda: "Tick the box" in text_of(browser, "#manage-finish [role=alert]"))
    fill("finish", sure="yes")
    press("finish")
    wait(browser, says("is finished"))
    wait(browser, lambda: "Closed by the admin" in text_of(browser, "#ending"))
    status = trial.status()
    assert (status.state, status.samples, status.joined[0].policy) == ("closed", 3, "third")
    assert wrong == []
    served.log_in(browser, "operator")
    opened(browser, f"{served.url}/experiments/managed", lambda: text_of(browser, "h1"))
    assert not browser.find_elements(By.ID, "manage")
    no_complaint(browser)


def put(browser: webdriver.Chrome, name: str, value: str) -> None:
    """Type a value into a field of the planner."""
    script = (
        "const field = document.querySelector(`[name=${arguments[0]}]`); field.value = arguments[1];"
        "field.dispatchEvent(new Event('change', { bubbles: true }))"
    )
    browser.execute_script(script, name, value)


def test_the_planner_compares_shares_and_starts_what_it_simulated(
    browser: webdriver.Chrome, served: Served, tmp_path: Path
) -> None:
    served.log_in(browser, "admin")
    browser.get(f"{served.url}/planner")

    def press(name: str) -> None:
        browser.find_element(By.ID, name).click()

    put(browser, "shares", "0.7, 0.2")
    press("simulate")
    wait(browser, lambda: "must add up to 1" in text_of(browser, "[name=shares] + .field-error"))
    put(browser, "shares", "0.7, 0.3")
    put(browser, "bound", "1.5")
    press("simulate")
    wait(browser, lambda: "strictly inside" in text_of(browser, "[name=bound] + .field-error"))
    browser.get_log("browser")  # the refusal is a 422
    put(browser, "bound", "0.6")
    put(browser, "most", "4000")
    press("simulate")
    wait(browser, lambda: "of 200 runs" in text_of(browser, "#simulation-result"))
    press("keep")
    put(browser, "delta", "0.1")
    assert "changed since it was simulated" in text_of(browser, "#start-note")
    press("start")
    wait(browser, lambda: "simulate it again" in text_of(browser, ".field-error"))
    press("simulate")
    wait(browser, lambda: "Latest design" in text_of(browser, "#compare-result"))
    assert "exactly the protocol that was simulated" in text_of(browser, "#start-note")
    wrong = check_page(browser, "planner-compared")
    press("share")
    wait(browser, lambda: "#" in browser.current_url)
    link = browser.current_url
    browser.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    press("report")
    wait(browser, (tmp_path / "plan.html").is_file)
    assert "Phone call" in (tmp_path / "plan.html").read_text(encoding="utf-8")
    put(browser, "id", "planned")
    press("start")
    wait(browser, lambda: browser.current_url.endswith("/experiments/planned"))
    found = eh.connect(served.url, served.keys["admin"]).open("planned")
    assert found.status().samples == 0
    wait(browser, lambda: "4,000 samples" in text_of(browser, ".protocol"))
    assert "10%" in text_of(browser, ".protocol")
    browser.get("about:blank")
    browser.get(link)
    assert browser.execute_script("return document.querySelector('[name=delta]').value") == "0.1"
    no_complaint(browser)
    assert wrong == []
