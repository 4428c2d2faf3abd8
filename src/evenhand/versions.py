"""Versions of installed packages and the list of extras; unknown where nothing is recorded.

evenhand may run from a copy of its source folder, without the metadata that an installation writes. Then
the version of evenhand is the one in its source, that of another package the one it states itself.
"""

from __future__ import annotations

import re
from importlib import import_module, metadata
from importlib.util import find_spec

from evenhand import __version__

UNKNOWN = "unknown"


def version_of(package: str) -> str | None:
    """Return the version of a package, `unknown` if it states none, or None if it is not installed."""
    if package == "evenhand":
        return __version__
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return _stated_version(package.replace("-", "_"))


def packages_by_extra() -> dict[str, list[str]] | None:
    """Return the packages that each extra of evenhand needs, or None if evenhand is not installed."""
    try:
        requirements, extras = metadata.requires("evenhand"), metadata.metadata("evenhand")
    except metadata.PackageNotFoundError:
        return None
    found: dict[str, list[str]] = {name: [] for name in extras.get_all("Provides-Extra") or ()}
    for requirement in requirements or ():
        package = re.match(r"[\w.-]+", requirement)
        extra = re.search(r"extra == ['\"](\w+)['\"]", requirement)
        if package and extra and package[0] != "evenhand":
            found[extra[1]].append(package[0])
    return found


def _stated_version(module: str) -> str | None:
    if find_spec(module) is None:
        return None
    try:
        return str(getattr(import_module(module), "__version__", UNKNOWN))
    except metadata.PackageNotFoundError:
        return UNKNOWN  # click, for instance, looks its own version up in its metadata
