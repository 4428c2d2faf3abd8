"""What is installed beside the base: the extras that the package offers, and what each of them misses."""

from __future__ import annotations

import re
from importlib import metadata
from typing import TypedDict

NOT_FOR_USERS = ("dev", "all")


class Extra(TypedDict):
    installed: bool
    missing: list[str]


def installed_extras() -> dict[str, Extra]:
    """For each extra, which of its packages are missing."""
    offered = metadata.metadata("evenhand").get_all("Provides-Extra") or []
    wanted: dict[str, list[str]] = {name: [] for name in offered if name not in NOT_FOR_USERS}
    for requirement in metadata.requires("evenhand") or ():
        name = re.match(r"[\w.-]+", requirement)
        extra = re.search(r"extra == ['\"](\w+)['\"]", requirement)
        if name and extra and extra[1] in wanted:
            wanted[extra[1]].append(name[0])
    found: dict[str, Extra] = {}
    for extra_name, packages in wanted.items():
        missing = [package for package in packages if package != "evenhand" and version_of(package) is None]
        found[extra_name] = {"installed": not missing, "missing": missing}
    return found


def version_of(package: str) -> str | None:
    """The installed version of a package; None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
