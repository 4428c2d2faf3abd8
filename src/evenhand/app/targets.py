"""Files that commands write: checked before the work, and never over something of another kind."""

from __future__ import annotations

from pathlib import Path

from evenhand.errors import BadInput


def new_file(name: str, begins: bytes, what: str) -> Path:
    """Where this can be written: a folder that exists, and no file there but an earlier one of its kind."""
    path = Path(name)
    if not path.parent.is_dir():
        raise BadInput(f"there is no folder {path.parent} to write {path.name} to; make it first.")
    if path.is_dir():
        raise BadInput(f"{name} must name a file; it is a folder.")
    if path.is_file():
        with path.open("rb") as file:
            if file.read(len(begins)) not in (begins, b""):
                raise BadInput(f"{name} exists and is not {what}; give another name, or remove it first.")
    return path
