"""Print pip's settings as shell variables for uv.

They are needed because uv does not read pip's configuration files. Prints nothing if pip has no settings. A
variable that is already set is not changed.
"""

from __future__ import annotations

import ast
import os
import shlex
import subprocess
import sys

# pip's name -> (uv's name, separator of several values)
UV_NAME = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", " "),
}
BY_PRECEDENCE = ("global", "install", ":env:")


def main() -> None:
    for name, value in pip_settings().items():
        variable, separator = UV_NAME[name]
        export(variable, separator.join(value.split()))
        if name == "extra-index-url":
            export(
                "UV_INDEX_STRATEGY", "unsafe-best-match"
            )  # like pip: take the newest version from any index


def pip_settings() -> dict[str, str]:
    """Return pip's settings for package sources; later sections of BY_PRECEDENCE win."""
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
    ).stdout
    found: dict[str, dict[str, str]] = {}
    for line in listing.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if name in UV_NAME and section in BY_PRECEDENCE:
            found.setdefault(name, {})[section] = ast.literal_eval(value)
    return {name: by_section[max(by_section, key=BY_PRECEDENCE.index)] for name, by_section in found.items()}


def export(variable: str, value: str) -> None:
    if variable not in os.environ:
        print(f"export {variable}={shlex.quote(value)}")


if __name__ == "__main__":
    main()
