"""Sweeps: many studies in shards of replications, with results stored on disk by content.

The name of a shard is a hash of everything its rows depend on: the compiled problem, procedure and truth,
seed, checkpoints, replications, and the kernels. A sweep reads the shards that exist, runs the others on the
executor, and writes each atomically. After an interruption it continues with the missing shards; the result
equals the serial one bit for bit.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from evenhand.errors import BadInput
from evenhand.simulation.buffers import Rows, new_rows
from evenhand.simulation.executors import Executor
from evenhand.simulation.runs import Runs, read_npz, write_npz
from evenhand.simulation.shards import CPU, Progress, Shard, check_replications, cut, prepare, put, run_shard
from evenhand.study import Study, Truth

SHARD = 100
SHARD_ON_GPU = 100_000


Name = tuple[str, str]  # names of a study and a scenario


@dataclass(frozen=True, eq=False)
class Sweep:
    """The runs of every study, and the numbers of shards computed and read from disk."""

    runs: Mapping[Name, Runs]
    computed: int
    reused: int


def grid(studies: Mapping[str, Study], scenarios: Mapping[str, Truth]) -> dict[Name, Study]:
    """Return every study with every scenario as its truth."""
    return {
        (name, scenario): replace(study, truth=truth)
        for name, study in studies.items()
        for scenario, truth in scenarios.items()
    }


def sweep(
    studies: Mapping[Name, Study],
    replications: int,
    seed: int,
    store: str | Path,
    executor: Executor,
    checkpoints: Sequence[int] = (),
    progress: Progress | None = None,
    shard: int | None = None,
    device: str = CPU,
) -> Sweep:
    """Run every study; `store` is the folder of finished shards. Progress counts shards."""
    shard = shard_size(device) if shard is None else shard
    check_replications(replications)
    begun = time.perf_counter()
    jobs = {name: prepare(study, seed, checkpoints, device=device) for name, study in studies.items()}
    store_of_shards = ShardStore(Path(store))  # created once every study is known to run
    rows = {
        name: new_rows(replications, len(job.checkpoints), job.spec.phi.shape) for name, job in jobs.items()
    }
    shards = [(name, part) for name, job in jobs.items() for part in cut(job, replications, shard)]
    missing = [(name, part) for name, part in shards if not _found(store_of_shards, part, rows[name])]
    done = reused = len(shards) - len(missing)
    if progress is not None:
        progress(done, len(shards))
    for number, result in executor.run(run_shard, [part for _, part in missing]):
        name, part = missing[number]
        store_of_shards.put(part, result)
        put(rows[name], result, part.first)
        done += 1
        if progress is not None:
            progress(done, len(shards))
    seconds = time.perf_counter() - begun
    runs = {name: Runs(job.study, seed, job.checkpoints, rows[name], seconds) for name, job in jobs.items()}
    return Sweep(runs, len(missing), reused)


def shard_size(device: str) -> int:
    """Return the replications per shard; more for a GPU."""
    return SHARD if device == CPU else SHARD_ON_GPU


def _found(store_of_shards: ShardStore, shard: Shard, rows: Rows) -> bool:
    """Copy a stored shard to its place; return whether it exists."""
    found = store_of_shards.get(shard)
    if found is not None:
        put(rows, found, shard.first)
    return found is not None


class ShardStore:
    """Finished shards on disk, by content hash."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise BadInput(f"the store {folder} cannot be made: {problem}.") from None

    def get(self, shard: Shard) -> Rows | None:
        """Return the rows of a shard, or None where they are missing or damaged."""
        address = address_of(shard)
        path = self._path(address)
        if not path.exists():
            return None
        try:
            header, rows = read_npz(path)
        except BadInput:
            return None  # damaged: computed again, and replaced
        return rows if header["address"] == address else None

    def put(self, shard: Shard, rows: Rows) -> None:
        """Store the rows of a shard."""
        address = address_of(shard)
        path = self._path(address)
        path.parent.mkdir(exist_ok=True)
        write_npz(path, {"address": address}, rows)

    def _path(self, address: str) -> Path:
        return self.folder / address[:2] / f"{address[2:]}.npz"


def address_of(shard: Shard) -> str:
    """Return a hash of everything that the rows of this shard depend on."""
    job = shard.job
    digest = hashlib.sha256()
    for part in (job.spec, job.source, job.seed, job.checkpoints, shard.first, shard.count, job.code):
        _add_to_hash(digest, part)
    if job.device != CPU:  # stored shards without a device are the CPU's
        _add_to_hash(digest, job.device)
    return digest.hexdigest()


def _add_to_hash(digest: hashlib._Hash, value: object) -> None:
    """Add types, shapes and bits to the hash, so that different values differ in it."""
    if isinstance(value, np.ndarray):
        digest.update(f"{value.dtype.str}{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, tuple):
        digest.update(f"({len(value)}".encode())
        for part in value:
            _add_to_hash(digest, part)
    else:
        digest.update(f"{type(value).__name__} {value!r};".encode())
