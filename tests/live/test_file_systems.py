"""Which file systems a journal may be on, by tables of mounts as Linux writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from evenhand.errors import StorageFailed
from evenhand.live import writer_lock
from evenhand.live.writer_lock import refuse_remote
from tests.live.example_experiments import create

ROOT = "1 0 0:1 / / rw - ext4 /dev/sda rw\n"


def table(folder: Path, kind: str, place: str, source: str = "server:/x") -> Path:
    """A table with one more mount, its place spelled as the kernel does."""
    spelled = place
    for letter in ("\\", " ", "\t", "\n", "#"):
        spelled = spelled.replace(letter, f"\\{ord(letter):03o}")
    file = folder / "mountinfo"
    file.write_bytes(f"{ROOT}2 1 0:2 / {spelled} rw shared:1 master:2 - {kind} {source} rw\n".encode())
    return file


@pytest.mark.parametrize(
    "kind",
    [
        "nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph", "lustre", "vboxsf", "fuse.sshfs",
        "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse", "fuse.goofys", "fuse.juicefs", "fuse.glusterfs",
        "fuse.blobfuse2", "fuse.whatever-comes-next", "fuse.vmhgfs-fuse", "fuse.grpcfuse",
    ],
)  # fmt: skip
def test_a_remote_file_system_is_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(StorageFailed, match=rf"network file system \({kind}\)"):
        refuse_remote(tmp_path / "far" / "t.db", table(tmp_path, kind, str(tmp_path / "far")))
    refuse_remote(tmp_path / "near.db", table(tmp_path, kind, str(tmp_path / "far")))


@pytest.mark.parametrize(
    "kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "fuseblk", "fuse.ntfs-3g", "fuse.mergerfs"]
)  # fmt: skip
def test_a_local_disk_is_taken(tmp_path: Path, kind: str) -> None:
    refuse_remote(tmp_path / "here" / "t.db", table(tmp_path, kind, str(tmp_path / "here")))


def test_a_program_that_names_itself_only_as_the_source_is_recognised(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed, match=r"\(fuse\.s3fs\)"):
        refuse_remote(tmp_path / "far" / "t.db", table(tmp_path, "fuse", str(tmp_path / "far"), "s3fs"))


@pytest.mark.parametrize(
    "name", ["far away", "données", "データ", "Größe é", "tab\there", "back\\slash", "a#b"]
)
def test_a_mount_point_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    place = tmp_path / name
    place.mkdir()
    monkeypatch.setattr(writer_lock, "MOUNTS", table(tmp_path, "nfs4", str(place)))
    with pytest.raises(StorageFailed, match=r"network file system \(nfs4\)"):
        create(str(place / "t.db"))
    assert list(place.iterdir()) == []


def test_the_innermost_and_latest_mount_counts(tmp_path: Path) -> None:
    file = table(tmp_path, "nfs4", str(tmp_path))
    inner = f"3 2 0:3 / {tmp_path}/local rw - ext4 /dev/sdb rw\n4 3 0:4 / {tmp_path}/over rw - nfs x rw\n"
    file.write_text(file.read_text() + inner + f"5 4 0:5 / {tmp_path}/over rw - ext4 /dev/sdc rw\n")
    refuse_remote(tmp_path / "local" / "t.db", file)
    refuse_remote(tmp_path / "over" / "t.db", file)
    with pytest.raises(StorageFailed):
        refuse_remote(tmp_path / "t.db", file)


def test_a_table_that_is_missing_or_odd_refuses_no_caller(tmp_path: Path) -> None:
    refuse_remote(tmp_path / "t.db", tmp_path / "nothing")
    odd = tmp_path / "mountinfo"
    odd.write_bytes(b"\xff\xfe\n\n1 2 3\n" + ROOT.encode())
    refuse_remote(tmp_path / "t.db", odd)
