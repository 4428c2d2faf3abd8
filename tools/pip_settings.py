"""Print pip's own settings as the shell variables that uv understands, because uv does not read pip's files.

Nothing is printed where pip has no settings, and a variable that is already set stays as it is.
"""

from __future__ import annotations

import ast
import os
import shlex
import subprocess
import sys

# pip's name -> uv's name and what stands between several values
UV_NAME = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", " "),
}
STRONGEST_LAST = ("global", "install", ":env:")


def main() -> None:
    for name, value in pip_settings().items():
        variable, separator = UV_NAME[name]
        export(variable, separator.join(value.split()))
        if name == "extra-index-url":
            export("UV_INDEX_STRATEGY", "unsafe-best-match")  # as pip does: the newest version from any index


def pip_settings() -> dict[str, str]:
    """The settings that concern where packages come from, by pip's precedence."""
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
    ).stdout
    found: dict[str, dict[str, str]] = {}
    for line in listing.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if name in UV_NAME and section in STRONGEST_LAST:
            found.setdefault(name, {})[section] = ast.literal_eval(value)
    return {name: by_section[max(by_section, key=STRONGEST_LAST.index)] for name, by_section in found.items()}


def export(variable: str, value: str) -> None:
    if variable not in os.environ:
        print(f"export {variable}={shlex.quote(value)}")


if __name__ == "__main__":
    main()
