"""A forecast is the same wherever it is shown: status, HTTP, dashboard, judge and report."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import Future
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient

from evenhand.cli.main import main
from evenhand.errors import StorageFailed
from evenhand.live.experiment import Experiment
from evenhand.service.app import Settings, create_app
from evenhand.service.forecasts import RENEWED_SECONDS, Forecasts, digest_of
from evenhand.service.keys import Keys
from evenhand.study import loads
from evenhand.verdicts.forecast_statement import CHANCES, Forecast
from tests.service.peers import seen_from

STUDY = """
[problem]
policies = ["plain", "bold"]
groups = { "north" = 0.5, "south" = 0.5 }
family = { name = "bernoulli" }
constraint = { kind = "floors", at_least = 0.3 }
[procedure]
delta = 0.01
max_samples = 3000
"""
OUTCOMES = [
    (policy, group, int(i % 20 < good))
    for policy, good in (("plain", 9), ("bold", 11))
    for group in ("north", "south")
    for i in range(20)
]
PATIENCE = 300.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study, data, and a journal with an experiment that has imported them."""
    folder = tmp_path_factory.mktemp("forecasts")
    (folder / "study.toml").write_text(STUDY)
    lines = [f"{policy},{group},{outcome}" for policy, group, outcome in OUTCOMES]
    (folder / "data.csv").write_text("policy,group,outcome\n" + "\n".join(lines) + "\n")
    journal = str(folder / "journal.db")
    assert main(["new", journal, str(folder / "study.toml"), "--seed", "7"]) == 0
    assert main(["import", journal, str(folder / "data.csv")]) == 0
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient[Any]]:
    journal = str(folder / "journal.db")
    key = Keys(journal).create("analyst", "analyst")
    headers = {"Authorization": f"Bearer {key}", "Accept": "text/html"}
    with TestClient(seen_from(create_app(Settings(journal))), base_url="http://127.0.0.1") as found:
        found.headers.update(headers)
        yield found


def printed(capsys: pytest.CaptureFixture[str], *command: str) -> dict[str, Any]:
    main([*command, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.slow
def test_every_place_shows_the_same_forecast_and_what_it_assumes(
    folder: Path, client: TestClient[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    journal, study, data = (str(folder / name) for name in ("journal.db", "study.toml", "data.csv"))
    status = printed(capsys, "status", journal)
    judged = printed(capsys, "judge", study, data)
    reported = printed(capsys, "report", journal, "-o", str(folder / "page.html"))
    keys = ("more", "horizon", "unfinished", "forecast")
    assert [judged[key] for key in keys] == [status[key] for key in keys]
    [section] = [part for part in reported["sections"] if part["kind"] == "experiment"]
    for numbers in (section, section["verdict"]):
        assert [numbers[key] for key in keys] == [status[key] for key in keys]

    name = status["experiment"]
    deadline = time.monotonic() + PATIENCE
    while (over_http := client.get(f"/api/v1/experiments/{name}").json())["forecast"]["why_none"]:
        assert time.monotonic() < deadline
        assert over_http["forecast"]["why_none"] == "it is being made; look again in a moment"
        time.sleep(0.2)
    assert [over_http[key] for key in keys] == [status[key] for key in keys]
    statement = status["forecast"]["statement"]
    while True:
        assert time.monotonic() < deadline
        panel = client.get(f"/experiments/{name}/panel").text
        [shown] = re.findall(r'<p class="small" id="forecast">(.*?)</p>', panel)
        if "being made" not in shown:
            break
        time.sleep(0.2)
    assert unescape(shown) == statement
    assert "Jeffreys' prior" in statement
    page = unescape((folder / "page.html").read_text())
    assert "Jeffreys' prior" in page
    assert f"{status['more']['0.5']:,}" in page


def test_a_forecast_is_kept_until_the_data_change(folder: Path) -> None:
    made: list[bytes] = []

    class Done:
        """Work that is done when it is started."""

        def start(self, work: Any, view: Any) -> Any:
            made.append(digest_of(view))
            future: Future[Any] = Future()
            future.set_result(work(view))
            return future

    class OneWorker:
        long = Done()

    forecasts = Forecasts(OneWorker())  # type: ignore[arg-type]
    with Experiment.open(str(folder / "journal.db"), write=False) as trial:
        view = trial.present()
        first = forecasts.latest("a", view)
        assert first.why_none == "it is being made; look again in a moment"
        again = [forecasts.latest("a", view) for _ in range(5)]
        assert all(one is again[0] for one in again)
        assert again[0].samples == len(OUTCOMES)
        assert len(made) == 1


def test_a_little_more_data_wait_and_much_more_do_not(tmp_path: Path) -> None:
    """Renewed at 10% more samples, or 30 s after the last one began; until then it says when it was made."""
    made: list[int] = []

    class Instant:
        """Work that is done when it is started, without a real forecast."""

        def start(self, work: Any, view: Any) -> Any:
            samples = int(view.state.n.sum())
            made.append(samples)
            future: Future[Forecast] = Future()
            future.set_result(Forecast(samples, 200, dict.fromkeys(CHANCES, 70), 0.0, 100))
            return future

    class OneWorker:
        long = Instant()

    study = loads(STUDY)
    forecasts = Forecasts(OneWorker())  # type: ignore[arg-type]
    with Experiment.create(str(tmp_path / "a.db"), study, seed=1) as trial:

        def latest() -> Forecast:
            forecasts.latest("a", trial.present())  # begins what is due
            return forecasts.latest("a", trial.present())

        trial.import_data(OUTCOMES)
        assert latest().samples == 80
        trial.import_data([("plain", "north", 1)])
        old = latest()
        assert (old.samples, made) == (80, [80])
        assert old.summary(81).startswith("Forecast at 80 samples: About 70 more samples")
        forecasts._entries["a"].begun -= RENEWED_SECONDS
        assert (latest().samples, made) == (81, [80, 81])
        trial.import_data([("plain", "north", i % 2) for i in range(9)])
        assert (latest().samples, made) == (90, [80, 81, 90])
        trial.finish("end of the test")
        assert latest().why_none == "the experiment was closed without a decision"


def test_a_helper_that_cannot_be_started_or_fails_leaves_a_reason(folder: Path) -> None:
    class Broken:
        def start(self, work: Any, view: Any) -> Any:
            raise StorageFailed("the service is stopping.")

    class Failing:
        def start(self, work: Any, view: Any) -> Any:
            future: Future[Any] = Future()
            future.set_exception(ValueError("no"))
            return future

    class OneWorker:
        def __init__(self, long: Any) -> None:
            self.long = long

    with Experiment.open(str(folder / "journal.db"), write=False) as trial:
        view = trial.present()
        broken = Forecasts(OneWorker(Broken())).latest("a", view)  # type: ignore[arg-type]
        assert broken.statement() == "No forecast: the service is stopping."
        failing = Forecasts(OneWorker(Failing()))  # type: ignore[arg-type]
        failing.latest("a", view)
        said = failing.latest("a", view).statement()
        assert said == "No forecast: making it failed; the service's log says why."
        assert set(failing.latest("a", view).more.values()) == {None}
