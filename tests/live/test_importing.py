"""Imports: one act, whatever their size, in the same bytes as any other event."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evenhand as eh
from evenhand.cli.main import main
from evenhand.errors import BadInput
from evenhand.live import events as ev
from evenhand.live import importing
from evenhand.live.audit import audit
from evenhand.live.events import decode, encode
from evenhand.live.input_checks import LARGEST, checked_outcome, first_bad
from tests.live.example_experiments import SetClock, create, kinds, records

NAMES = ['plain "quoted"', "back\\slash", "Größe é", "tab\there", "データ", "\u2028line"]
ODD = (0.1, 1e-7, 1e16, 123456789.123456789, 5e-324, -1.5, 0.0, 1e22, 3.0)


def odd_problem() -> eh.Problem:
    return eh.Problem(NAMES, {"x\n": 0.5, "y": 0.5}, eh.Gaussian(1.0))


def test_the_bytes_of_an_import_are_canonical_also_with_a_clock_that_went_back() -> None:
    clock = SetClock()
    trial = create(study=odd_problem(), clock=clock)
    rows = [(name, group, x) for name in NAMES for group in ("x\n", "y") for x in ODD]
    trial.import_data(rows, source='a "b" \\ é.csv', key="one")
    clock.wall -= 3600
    trial.import_data(rows, source="two.csv")
    imported = [record for record in records(trial) if b'"kind":"imported"' in record.body]
    assert len(imported) == 2 * len(rows)
    for record in imported:
        assert record.body == encode(decode(record))
    events = [decode(record) for record in imported]
    assert [(e.policy, e.group, e.outcome) for e in events if isinstance(e, ev.Imported)] == 2 * rows
    assert all(event.back > 0 for event in events[len(rows) :])


@pytest.mark.parametrize("size", [1, importing.AT_ONCE, importing.AT_ONCE + 1, 2 * importing.AT_ONCE + 7])
def test_an_import_of_any_size_is_one_act_and_audits(tmp_path: Path, size: int) -> None:
    address = str(tmp_path / "t.db")
    with create(address, procedure=eh.Procedure(initial=1, max_samples=10**6)) as trial:
        ask = trial.ask(1)[0]
        rows = (("abc"[n % 3], "xy"[n % 2], float(n % 5 < 2)) for n in range(size))
        assert trial.import_data(rows) == size
        trial.tell(ask, 1)
        numbers = [event.row for event in map(decode, records(trial)) if isinstance(event, ev.Imported)]
        assert numbers == list(range(1, size + 1))
        assert trial.status().samples == size + 1
    found = audit(address)
    assert found.identical, found.first_difference


def test_the_first_bad_row_is_named_however_far_down_and_whatever_is_wrong_after_it() -> None:
    trial = create()
    good = [("a", "x", 1.0)] * (importing.AT_ONCE + 3)
    for bad, words in (
        (("a", "x", 2.0), "0 or 1"),
        (("a", "x", float("nan")), "0 or 1"),
        (("a", "x", -0.0), "-0.0"),
        (("z", "x", 1.0), "no policy 'z'"),
        (("a", "z", 1.0), "no group 'z'"),
        (("a", "x", "1"), "not a number"),
        (("a", "x", None), "not a number"),
        (("a", "x"), "must be"),
        ((["a"], "x", 1.0), "must be"),
        (7, "must be"),
    ):
        with pytest.raises(BadInput, match=f"^row {len(good) + 1}\\b.*{words}"):
            trial.import_data([*good, bad, ("z", "z", 9.0), 8])  # type: ignore[list-item]
    assert kinds(trial) == ["created"]


@pytest.mark.parametrize(
    "family",
    [eh.Bernoulli(), eh.Binomial(5), eh.Poisson(), eh.Gaussian(1.0), eh.Gamma(2.0), eh.Bounded(-1.0, 1.0)],
    ids=lambda family: family.name,
)
def test_many_outcomes_are_judged_as_one_is(family: Any) -> None:
    numbers = [0.0, -0.0, 1.0, 0.5, -1.0, 2.0, 6.0, 1e-300, np.nan, np.inf, -np.inf, LARGEST, 2 * LARGEST]
    for x in numbers:
        try:
            refused = checked_outcome(x, family) is None
        except BadInput:
            refused = True
        assert (first_bad(np.array([x]), family) == 0) == refused, x


def test_a_file_is_read_line_by_line_and_the_first_bad_line_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address, file = str(tmp_path / "t.db"), tmp_path / "data.csv"
    create(address).close()
    for lines, said in (
        (["a,x,1", "a,x,7", "z,x,1"], "line 3: outcomes must be 0 or 1"),
        (["a,x,1", "a,x,one"], "line 3: outcomes must be 0 or 1; 'one' is not a number"),
        (["a,x,1", "", "z,x,1"], "line 4: there is no policy 'z'"),
        (["a,x,1", "a,x"], "line 3: a line needs as many fields"),
        (['"a",x,1', '"a', 'b",x,1'], "line 4: there is no policy 'a\\nb'"),
        (["a,x,7", "a,x"], "line 2: outcomes must be 0 or 1"),
        ([], "at least one outcome"),
    ):
        file.write_text("\n".join(["policy,group,outcome", *lines]) + "\n")
        assert main(["import", address, str(file)]) == 2
        error = capsys.readouterr().err
        assert said in error, error
    assert audit(address).events == 1


def test_the_same_content_under_another_name_counts_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address, file = str(tmp_path / "t.db"), tmp_path / "data.csv"
    create(address).close()
    file.write_text("policy,group,outcome\na,x,1\nb,y,0\n")
    assert main(["import", address, str(file)]) == 0
    file.rename(tmp_path / "renamed.csv")
    capsys.readouterr()
    assert main(["import", address, str(tmp_path / "renamed.csv")]) == 0
    assert "was imported before" in capsys.readouterr().out
    assert audit(address).events == 3
