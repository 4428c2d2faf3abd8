"""The program for a GPU, run on the CPU: the rows of the CPU's own program, to the last bit."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evenhand as eh
from evenhand.cli.main import main
from evenhand.errors import BadInput
from evenhand.simulation import cuda
from evenhand.simulation.buffers import Rows
from evenhand.simulation.cuda import simulation_of
from evenhand.simulation.outcome_laws import DrawnTruth, MeansByPoint, MeansByReplication
from evenhand.simulation.shards import Shard, _shard_size, prepare, run_shard
from evenhand.simulation.sweep import address_of
from evenhand.study import Study
from tests.compile import studies
from tests.simulation.cuda_emulation import require_compiler, run_emulated

SEED, REPLICATIONS = 5, 40


def compared(study: Study, first: int = 0, checkpoints: tuple[int, ...] = (8, 16), drawn: Any = None) -> Rows:
    """Run both programs, compare all that is written, and return it."""
    require_compiler()
    shard = Shard(prepare(study, SEED, checkpoints, drawn), first, REPLICATIONS)
    found, wanted = run_emulated(shard), run_shard(shard)
    for name, a, b in zip(Rows._fields, found, wanted, strict=True):
        assert np.array_equal(a, b, equal_nan=True), name
    return found


@pytest.mark.parametrize("name", studies.quick())
def test_every_member_of_every_set_gives_the_rows_of_the_cpu(name: str) -> None:
    rows = compared(studies.quick()[name])
    assert rows.samples.min() >= 6
    assert len(set(rows.samples)) > 1 or rows.samples[0] in (20, 24)


@pytest.mark.slow
@pytest.mark.parametrize("name", studies.covering())
def test_every_pair_of_members_gives_the_rows_of_the_cpu(name: str) -> None:
    compared(studies.covering()[name])


def test_replications_are_numbered_from_the_first_one_of_the_shard() -> None:
    rows = compared(studies.study(max_samples=400), first=1_000_000, checkpoints=())
    assert rows.stopped.any()


def test_means_are_drawn_for_each_replication() -> None:
    tables = np.array([studies.MEANS] * (2 * REPLICATIONS))
    tables[:, 0] += np.linspace(0.3, -0.3, 2 * REPLICATIONS)[:, None]  # at last the second policy is best
    rows = compared(studies.study(), first=REPLICATIONS, drawn=DrawnTruth(MeansByReplication(tables)))
    assert len(set(rows.truth)) > 1


def test_points_of_a_scan_are_one_program_for_all_means() -> None:
    tables = np.array([studies.MEANS] * 3)
    tables[:, 0] += np.array([0.3, 0.0, -0.3])[:, None]
    drawn = [DrawnTruth(MeansByPoint(table, 20)) for table in (tables, tables[::-1])]
    rows = compared(studies.study(), first=10, drawn=drawn[0])
    assert len(set(rows.truth)) > 1
    one, other = (simulation_of(prepare(studies.study(), SEED, (), truth)).source.text for truth in drawn)
    assert one == other  # a search over a box compiles nothing again


def test_large_tables_are_filled_and_not_written_into_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenhand.compile.cuda_program.COMPILED_IN", 2)
    job = prepare(studies.study(), SEED)
    assert simulation_of(job).source.filled
    compared(studies.study())


def test_only_small_tables_are_in_constant_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    study = studies.study("bernoulli")
    text = simulation_of(prepare(study, SEED)).source.text
    assert re.search(r"^SMALL_TABLE real SF\[", text, flags=re.MULTILINE)
    assert re.search(r"^TABLE real KF\[", text, flags=re.MULTILINE)  # read at random places
    monkeypatch.setattr("evenhand.compile.cuda_program.CONSTANT_BYTES", 8)
    assert not re.search(
        r"^SMALL_TABLE real", simulation_of(prepare(study, SEED)).source.text, flags=re.MULTILINE
    )


@pytest.mark.parametrize("name", studies.quick())
def test_tables_in_the_source_hold_literals_only(name: str) -> None:
    source = simulation_of(prepare(studies.quick()[name], SEED)).source
    tables = re.findall(r"^(?:SMALL_)?TABLE .*$", source.text, flags=re.MULTILINE)
    assert not any("INFINITE" in table or "UNDEFINED" in table for table in tables)
    if name == "guard-rails":  # some of its floors are infinite
        assert "SF" in source.filled


def test_the_compiler_for_nvidia_takes_the_source(tmp_path: Path) -> None:
    if shutil.which("nvcc") is None:
        pytest.skip("there is no nvcc to compile CUDA source with")
    source = tmp_path / "guardrails.cu"
    source.write_text(simulation_of(prepare(studies.study(guardrails=True), SEED)).source.text)
    options = [option for option in cuda.OPTIONS if option.startswith(("-D", "--fmad"))]
    command = ["nvcc", "-arch=sm_90", "-cubin", "-std=c++17", *options, "-o", str(tmp_path / "out.cubin")]
    found = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr[-2000:]


def test_only_short_loops_without_long_code_are_unrolled() -> None:
    lines = simulation_of(prepare(studies.study(), SEED)).source.text.split("\n")
    starts = [at for at, line in enumerate(lines) if line.strip() == "UNROLLED"]
    assert len(starts) > 5
    for at in starts:
        head = lines[at + 1]
        found = re.search(r"step_\d+ = (-?\d+), end_\d+ = (-?\d+);", head)
        assert found is not None
        assert abs(int(found[2]) - int(found[1])) <= 5
        end = head[: len(head) - len(head.lstrip())] + "}"
        body = lines[at + 2 : lines.index(end, at)]
        assert len(body) <= 6
        assert not any(re.search(r"k_\w+\(|call_|sqrt|/ ", line) for line in body)


@pytest.mark.parametrize(
    ("checkpoints", "drawn", "most"),
    [((), False, 2**24), (range(1, 1001), False, 118_000), ((), True, 2**23)],
)
def test_a_launch_on_a_gpu_has_as_many_runs_as_a_gigabyte_holds(
    checkpoints: tuple[int, ...], drawn: bool, most: int
) -> None:
    truth = DrawnTruth(MeansByReplication(np.array([studies.MEANS] * 2))) if drawn else None
    job = replace(prepare(studies.study(), SEED, tuple(checkpoints), truth), device="cuda")
    found = _shard_size(job, 10**9, 2)
    assert 0.5 * most < found <= 1.25 * most
    assert _shard_size(job, 1_000, 2) == 1_000


def test_numbers_of_the_study_are_compiled_in() -> None:
    source = simulation_of(prepare(studies.study(), SEED)).source
    assert "HF" not in source.text
    # every cell has the same variance, floor and ceiling: of the study, only the means need a table
    (table,) = re.findall(r"^SMALL_TABLE real SF\[\d+\] = \{(.*)\};$", source.text, flags=re.MULTILINE)
    means = [float(number) for number in table.split(", ")]
    assert means == [row[g] for g in range(2) for row in studies.MEANS]


@pytest.mark.skipif(find_spec("cupy") is not None, reason="the refusal is for machines without CuPy")
@pytest.mark.parametrize("command", ["simulate", "compare", "calibrate", "sweep", "scan", "paper"])
def test_every_simulating_command_takes_a_device(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = str(Path(__file__).parents[2] / "examples" / "scaling.toml")
    more = {
        "compare": ["--sampling", "uniform"],
        "calibrate": ["--box", "a1/g3=0.6:0.7", "--horizon", "20"],
        "sweep": ["--store", str(tmp_path)],
        "scan": ["--box", "a1/g3=0.6:0.7"],
        "paper": ["--only", "example", "-o", str(tmp_path)],
    }.get(command, [])
    arguments = [command, *([] if command == "paper" else [study]), *more]
    assert main([*arguments, "--device", "cuda"]) == 2
    assert capsys.readouterr().err == (
        "evenhand: the device cuda needs CuPy: install evenhand[gpu]. Use the device cpu.\n"
    )


def test_the_source_does_not_depend_on_the_seed() -> None:
    one, other = (simulation_of(prepare(studies.study(), seed)).source.text for seed in (1, 2))
    assert one == other


def test_a_shard_on_a_gpu_is_kept_under_another_address() -> None:
    job = prepare(studies.study(), SEED)
    other = type(job)(**(vars(job) | {"device": "cuda"}))
    assert address_of(Shard(job, 0, 8)) != address_of(Shard(other, 0, 8))


def test_a_device_is_cpu_or_cuda() -> None:
    with pytest.raises(BadInput, match="the device must be cpu or cuda; it is 'gpu'"):
        prepare(studies.study(), SEED, device="gpu")


def test_without_cupy_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    problem = eh.Problem(["a", "b"], {"all": 1.0}, eh.Gaussian(1.0), eh.Floors(0.0))
    with pytest.raises(
        BadInput, match=r"the device cuda needs CuPy: install evenhand\[gpu\]\. Use the device"
    ):
        eh.simulate(problem, [[1.0], [0.5]], replications=10, device="cuda")


def test_a_study_too_large_for_a_thread_is_refused() -> None:
    large = studies.study(means=[[0.5 + k / 4000, 0.6] for k in range(1500)], max_samples=8000)
    simulation = simulation_of(prepare(large, SEED))
    assert simulation.source.bytes_per_thread > cuda.MOST_MEMORY
    message = str(cuda._no_memory(simulation))
    assert message.startswith("the GPU has too little memory: this study needs ")
    assert message.endswith("Use the device cpu.")
