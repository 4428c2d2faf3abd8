"""The optional extras of the package, and which of their packages are missing."""

from __future__ import annotations

import re
from importlib import metadata
from typing import TypedDict

NOT_FOR_USERS = ("dev", "all")


class Extra(TypedDict):
    installed: bool
    missing: list[str]


def installed_extras() -> dict[str, Extra]:
    """Return each extra with the list of its packages that are not installed."""
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
    """Return the installed version of a package, or None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
