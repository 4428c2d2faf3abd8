"""The page in a real browser: no request, no console error, no script from a name, readable when narrow."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from selenium import webdriver

import evenhand as eh
from tests.reports.example_rows import made
from tests.reports.test_document import PAYLOADS, guarded


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Path, list[str]]]:
    """A folder over HTTP, and the paths that were asked for."""
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(tmp_path))  # type: ignore[arg-type]

        def log_message(self, *args: object) -> None:
            asked.append(self.path)

    # a thread for each connection: browsers open some that they never use
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", tmp_path, asked
        server.shutdown()


def open_page(browser: webdriver.Chrome, address: str, width: int, dark: bool = False) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    browser.get(address)


def test_the_page_asks_for_nothing_but_itself(
    browser: webdriver.Chrome, served: tuple[str, Path, list[str]]
) -> None:
    address, folder, asked = served
    made().save(folder / "page.html")
    open_page(browser, f"{address}/page.html", 1280)
    entries = browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert [entry for entry in entries if not entry.startswith("data:")] == []
    assert asked == ["/page.html"]
    assert browser.get_log("browser") == []


def test_no_name_runs_as_a_script(browser: webdriver.Chrome, served: tuple[str, Path, list[str]]) -> None:
    address, folder, _ = served
    made(PAYLOADS, ("<img src=x onerror=document.title='owned'>", "old")).save(folder / "page.html")
    open_page(browser, f"{address}/page.html", 1280)
    assert browser.title == "Stroke trial"
    assert browser.execute_script("return document.scripts.length") == 0


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_fits_and_can_be_read(
    browser: webdriver.Chrome, tmp_path: Path, width: int, dark: bool
) -> None:
    path = made().save(tmp_path / "page.html")
    open_page(browser, path.as_uri(), width, dark)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    smallest = browser.execute_script("""
        const boxes = [...document.querySelectorAll('svg text')].map(t => t.getBoundingClientRect());
        const seen = boxes.filter(box => box.width > 0);
        return [seen.length, Math.min(...seen.map(box => box.height))];
    """)
    assert smallest[0] > 50
    assert smallest[1] >= 11  # pixels on the screen: pictures are drawn for each width, not shrunk
    paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(18, 22, 28)" if dark else "rgb(255, 255, 254)")


def long_names() -> eh.Report:
    """A report of twelve policies and six groups, all with names of 40 characters."""
    policies = [f"Candidate policy number {k:02d} with a long name" for k in range(12)]
    groups = {f"people of age class {g} in a rural district": 1 / 6 for g in range(6)}
    problem = eh.Problem(policies, groups, eh.Bernoulli(), eh.Floors(0.6))
    data = {
        policy: {group: [1] * (20 + k) + [0] * (20 - k) for group in groups}
        for k, policy in enumerate(policies)
    }
    return eh.report(
        eh.judge(problem, data, replications=0), title="Twelve policies and six groups of people"
    )


def test_no_label_is_cut_on_a_phone(browser: webdriver.Chrome, tmp_path: Path) -> None:
    path = long_names().save(tmp_path / "page.html")
    open_page(browser, path.as_uri(), 390)
    outside, cut, seen = browser.execute_script("""
        let outside = [], cut = [], seen = 0;
        for (const svg of document.querySelectorAll('.narrow svg')) {
            const frame = svg.getBoundingClientRect();
            for (const text of svg.querySelectorAll('text')) {
                const box = text.getBoundingClientRect();
                seen += box.width > 0;
                if (text.textContent.includes('…')) cut.push(text.textContent);
                if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1
                    || box.bottom > frame.bottom + 1) outside.push(text.textContent);
            }
        }
        return [outside, cut, seen];
    """)
    assert seen > 200
    assert outside == []
    assert cut == []


def test_the_tables_of_a_plan_fit_a_phone(browser: webdriver.Chrome, tmp_path: Path) -> None:
    names = ["Aspirin only", "Heparin only", "Both", "Neither"]
    means = [[0.8925, 0.8429], [0.8751, 0.7980], [0.8705, 0.7843], [0.9013, 0.8248]]
    problem = eh.Problem(names, {"under 80": 0.7177, "80 and over": 0.2823}, eh.Bernoulli(), eh.Floors(5 / 6))
    path = eh.report(eh.plan(problem, means)).save(tmp_path / "plan.html")
    open_page(browser, path.as_uri(), 390)
    wide = browser.execute_script("""
        return [...document.querySelectorAll('section > .scroll')].map(e => [e.scrollWidth, e.clientWidth]);
    """)
    assert wide
    assert [pair for pair in wide if pair[0] > pair[1]] == []


def begun() -> eh.Report:
    """A report of a live experiment with four policies in two groups, whose log has every version."""
    policies, groups = [f"Candidate number {k}" for k in range(4)], {"under 80": 0.7, "80 and over": 0.3}
    problem = eh.Problem(policies, groups, eh.Bernoulli(), eh.Floors(0.6))
    with eh.Experiment.create(":memory:", problem, seed=1) as trial:
        asks = trial.ask(40)
        trial.tell_all([(ask, number % 4 > 0, None) for number, ask in enumerate(asks)])
        return eh.report(trial)


def test_a_summary_is_one_printed_page(browser: webdriver.Chrome, tmp_path: Path) -> None:
    for number, page in enumerate((long_names(), made(), begun(), guarded(), guarded(12))):
        path = page.save(tmp_path / f"summary{number}.html", summary=True)
        open_page(browser, path.as_uri(), 390)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
        a4 = {"paperWidth": 8.27, "paperHeight": 11.69}
        printed = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", a4)["data"])
        assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1


def test_tables_open_by_keyboard_and_print_whole(browser: webdriver.Chrome, tmp_path: Path) -> None:
    path = made().save(tmp_path / "page.html")
    open_page(browser, path.as_uri(), 1280)
    browser.execute_script("document.querySelector('summary').focus()")
    browser.switch_to.active_element.send_keys("\ue007")
    assert browser.execute_script("return document.querySelector('details').open")
    printed = browser.execute_cdp_cmd("Page.printToPDF", {})
    assert len(printed["data"]) > 20_000
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    shown = browser.execute_script(
        "return [...document.querySelectorAll('details table')].every(t => t.offsetHeight > 0)"
    )
    assert shown


def test_the_numbers_can_be_downloaded_from_the_page_itself(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
    page = made()
    open_page(browser, page.save(tmp_path / "page.html").as_uri(), 1280)
    link = browser.execute_script("return document.querySelector('a[download]').getAttribute('href')")
    held = json.loads(base64.b64decode(link.split(",", 1)[1]))
    assert held == page.to_dict()
