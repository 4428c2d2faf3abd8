"""Build the wheel and the sdist of a release, in dist; refuse while the project has no public address.

`[project.urls]` in pyproject.toml has the address. Three other files repeat it, for readers that do not see
pyproject.toml: CITATION.cff, the recipe for conda and the paper.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[1]
NAMES = ("Documentation", "Issues", "Source")  # the links that a release must have
REPEATED = {  # how each file states the address
    "CITATION.cff": 'repository-code: "{}"',
    "conda/meta.yaml": "  home: {}",
    "paper.md": "<{}>",
}
RESERVED = ("example", "invalid", "localhost", "test")  # top-level domains that cannot be registered


def main() -> int:
    faults = faults_in(ROOT)
    for fault in faults:
        print(fault, file=sys.stderr)
    if faults:
        print("Nothing was built. CONTRIBUTING.md lists the steps of a release.", file=sys.stderr)
        return 2
    return subprocess.run([sys.executable, "-m", "hatchling", "build"], cwd=ROOT).returncode


def faults_in(root: Path) -> list[str]:
    """Return a sentence for each thing that a release of this checkout would lack."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    urls = project.get("urls", {})
    wrong = [name for name in NAMES if not _is_public(urls.get(name, ""))]
    faults = [
        f"[project.urls] in pyproject.toml must have {name}, a public https address; it is "
        f"{urls.get(name) or 'missing'}."
        for name in wrong
    ]
    if "Source" not in wrong:
        for name, form in REPEATED.items():
            line = form.format(urls["Source"])
            if line not in (root / name).read_text(encoding="utf-8"):
                faults.append(f"{name} must contain {line.strip()}, the address in [project.urls].")
    heading = f"## {project['version']}"
    if not any(
        line.startswith(heading) for line in (root / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    ):
        faults.append(f"CHANGELOG.md must have a section {heading}.")
    return faults


def _is_public(address: str) -> bool:
    """Return whether this is an https address with a host that can be registered."""
    parts = urlsplit(address)
    labels = (parts.hostname or "").split(".")
    reserved = labels[-1] in RESERVED or labels[-2:-1] == ["example"]
    return parts.scheme == "https" and len(labels) > 1 and all(labels) and not reserved


if __name__ == "__main__":
    sys.exit(main())
