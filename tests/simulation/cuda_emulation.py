"""CUDA source compiled as C++ and run on the CPU, one thread after the other."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evenhand.simulation.buffers import Rows, new_rows
from evenhand.simulation.cuda import LOOP_NAME, _means, simulation_of
from evenhand.simulation.shards import Shard

# as on the device: no multiplication is joined with an addition
OPTIONS = ("-x", "c++", "-std=c++17", "-O1", "-ffp-contract=off", "-fwrapv", "-fPIC", "-shared", "-Werror")


def require_compiler() -> str:
    """The C++ compiler, or a skipped test."""
    found = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if found is None:
        pytest.skip("there is no C++ compiler to run CUDA source on the CPU with")
    return found


def run_emulated(shard: Shard) -> Rows:
    """The rows of a shard, by the source that a graphics processor runs."""
    simulation = simulation_of(shard.job)
    library = _library(simulation.source.text)
    for name, table in simulation.source.filled.items():
        (ctypes.c_char * table.nbytes).in_dll(library, name)[:] = table.tobytes()
    rows = new_rows(shard.count, len(shard.job.checkpoints), shard.job.spec.phi.shape)
    arrays = [np.zeros(1, dtype=np.int64), _means(shard), *simulation.start.values(), *rows]
    numbers = [ctypes.c_longlong(number) for number in (shard.job.seed, shard.first, shard.count)]
    getattr(library, LOOP_NAME)(*numbers, *[ctypes.c_void_p(array.ctypes.data) for array in arrays])
    return rows


@cache
def _library(source: str) -> Any:
    compiler = require_compiler()
    with tempfile.TemporaryDirectory() as folder:
        name = hashlib.sha256(source.encode()).hexdigest()[:16]
        file, library = Path(folder) / f"{name}.cu", Path(folder) / f"{name}.so"
        file.write_text(source)
        command = [compiler, *OPTIONS, "-o", str(library), str(file)]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stderr[:2000]
        return ctypes.CDLL(str(library))
