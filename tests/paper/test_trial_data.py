"""The stroke trial's cells, rebuilt from the public file."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from evenhand.cli.paper import paper_module
from evenhand.errors import BadInput

DATA = Path(__file__).parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the trial's data lie in ../shared/data, which is absent"
)


@needs_data
def test_the_reduced_file_gives_the_eight_shipped_counts():
    trial_data = paper_module().trial_data
    trial = trial_data.load(DATA / "ist_minimal.csv.gz")
    assert trial_data.differences(trial) == []


@needs_data
def test_every_definition_the_file_allows_matches_the_reference_counts():
    trial = paper_module().trial_data.load(DATA / "ist_minimal.csv.gz")
    named = {
        "paper": "paper",
        "isch_haem_major_bleed": "ischaemic, haemorrhagic, major bleed",
        "alive_only": "alive",
    }
    with (DATA / "ist_cells_sensitivity.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["definition"] in named and row["cohort"] == "all"]
    assert len(rows) == 24
    for row in rows:
        cells = trial.cells[named[row["definition"]], "all"][row["policy"]]
        assert cells[row["subpopulation"] == "Age >=80"] == (int(row["n"]), int(row["successes"]))


@needs_data
def test_a_definition_whose_columns_are_missing_is_named_not_guessed():
    trial = paper_module().trial_data.load(DATA / "ist_minimal.csv.gz")
    assert any("NK14" in line for line in trial.missing)
    assert any("RATRIAL" in line for line in trial.missing)


def test_definitions_and_the_pilot_phase_are_distinguished_in_a_full_release(tmp_path: Path):
    header = "AGE,RXASP,RXHEP,RATRIAL,ID14,ISC14,H14,NK14,PE14,TRAN14,NCB14"
    rows = [
        "85,Y,N,N,0,0,0,0,0,0,1",  # a minor bleed: not well by the paper, well by major bleeds
        "85,Y,N,,0,0,0,0,0,0,0",  # pilot phase
        "70,N,H,Y,0,0,0,1,0,0,0",  # a stroke of unknown kind
        "70,N,N,Y,0,0,0,0,0,0,0",
        "79,Y,L,Y,0,0,0,0,0,0,0",
        "80,N,M,Y,1,0,0,0,0,0,0",
        "80,N,N,Y,0,0,0,0,0,0,0",
        "80,Y,M,Y,0,0,0,0,0,0,0",
        "70,Y,N,Y,0,0,0,0,0,0,0",
    ]
    file = tmp_path / "ist.csv"
    file.write_text("\n".join([header, *rows]) + "\n")
    trial = paper_module().trial_data.load(file)
    assert trial.missing == ()
    assert trial.cells["paper", "all"]["Aspirin only"][1] == (2, 1)
    assert trial.cells["any stroke, major bleed", "all"]["Aspirin only"][1] == (2, 2)
    assert trial.cells["paper", "main phase"]["Aspirin only"][1] == (1, 0)
    assert trial.cells["any stroke, major bleed", "all"]["Heparin only"][0] == (1, 0)
    assert trial.cells["paper", "all"]["Heparin only"] == ((1, 1), (1, 0))


def test_a_file_without_the_outcomes_is_refused(tmp_path: Path):
    file = tmp_path / "other.csv"
    file.write_text("AGE,RXASP\n70,Y\n")
    with pytest.raises(BadInput, match="RXHEP"):
        paper_module().trial_data.load(file)
