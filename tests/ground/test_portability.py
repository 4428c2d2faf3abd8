"""A static check for Windows and macOS, which no test machine of this project runs by itself.

The workflow in .github installs and uses the package on both; this check finds most mistakes before that.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path, PureWindowsPath

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "paper").rglob("*.py")])
POSIX_MODULES = {"fcntl", "grp", "pwd", "pty", "posix", "resource", "syslog", "termios", "tty"}
WINDOWS_MODULES = {"msvcrt", "winreg", "_winapi", "winsound"}
POSIX_ONLY = {
    "os": {
        "fork", "forkpty", "getuid", "getgid", "getegid", "getpgid", "killpg", "mkfifo",
        "setsid", "statvfs", "sysconf", "uname", "wait", "waitpid", "sched_setaffinity",
        "getloadavg", "mknod", "openpty", "pipe2", "posix_spawn",
    },
    "time": {"clock_gettime", "clock_gettime_ns", "pthread_getcpuclockid", "tzset"},
    "socket": {"AF_UNIX", "socketpair"},
    "signal": {
        "SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCHLD", "SIGQUIT", "alarm", "pause",
    },
}  # fmt: skip
MOVES = {"replace", "rename", "renames", "unlink", "remove"}
GUARDED = {
    "nice",
    "register_at_fork",
    "sched_getaffinity",
    "geteuid",
    "chown",
}  # allowed after hasattr(os, ...)
ALLOWED = {"/proc/self/mountinfo"}  # read only where it exists
PATHS = ("/tmp/", "/dev/", "/proc/", "/etc/", "/usr/", "/var/")
RESERVED = {"con", "prn", "aux", "nul"} | {f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10)}


def faults(source: str) -> list[str]:
    """Return what in a module would fail or behave differently on Windows or macOS."""
    tree = ast.parse(source)
    return sorted({*_imports(tree), *_calls(tree, source), *_texts(tree), *_moves(tree)})


def _imports(tree: ast.Module) -> Iterator[str]:
    at_import = [node for statement in tree.body for node in _outside_functions(statement)]
    for node in at_import:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            if name.split(".")[0] in POSIX_MODULES | WINDOWS_MODULES:
                yield f"{node.lineno}: {name} is imported with the module"  # type: ignore[attr-defined]


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what runs on every system when the module is imported."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        return
    if isinstance(node, ast.If) and ast.unparse(node.test).startswith(("sys.platform", "os.name")):
        return  # each branch is for its own system
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _outside_functions(child)


def _calls(tree: ast.Module, source: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module, name = node.value.id, node.attr
            if name in POSIX_ONLY.get(module, ()):
                yield f"{node.lineno}: {module}.{name} does not exist on Windows"
            if name in GUARDED and f'hasattr({module}, "{name}")' not in source:
                yield f"{node.lineno}: {module}.{name} needs hasattr({module}, ...)"
        if isinstance(node, ast.Call):
            yield from _call(node)


def _call(node: ast.Call) -> Iterator[str]:
    called = node.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    words = {keyword.arg for keyword in node.keywords}
    texts = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    texts += [k.value.value for k in node.keywords if isinstance(k.value, ast.Constant) and k.arg == "mode"]
    if name in ("get_context", "set_start_method") and "fork" in texts:
        yield f"{node.lineno}: the start method fork does not exist on Windows and fails on macOS"
    reads = name in ("read_text", "write_text") or (isinstance(called, ast.Name) and name == "open")
    if reads and "encoding" not in words and not any("b" in str(mode) for mode in texts[-1:]):
        yield f"{node.lineno}: {name} without encoding: the default differs between systems"


def _moves(tree: ast.Module) -> Iterator[str]:
    """Yield files that are renamed or removed inside the block in which a file is open."""
    for block in ast.walk(tree):
        if not isinstance(block, ast.With) or not any(_opens(item.context_expr) for item in block.items):
            continue
        for node in (found for statement in block.body for found in _on_every_system(statement)):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Attribute) and called.attr in MOVES:
                on_os = isinstance(called.value, ast.Name) and called.value.id == "os"
                if on_os or called.attr in ("unlink", "rename"):
                    yield f"{called.lineno}: {called.attr} of a file that may be open fails on Windows"


def _opens(item: ast.expr) -> bool:
    """Return whether a with statement holds an open file: `with file:` or `with open(...)`."""
    if isinstance(item, ast.Name):
        return True
    name = item.func if isinstance(item, ast.Call) else None
    return (getattr(name, "attr", None) or getattr(name, "id", None)) in ("open", "fdopen")


def _on_every_system(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("MOVES_OPEN_FILES"):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _on_every_system(child)


def _texts(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        if text.startswith(PATHS) and text not in ALLOWED:
            yield f"{node.lineno}: {text!r} is a path of one system"  # type: ignore[attr-defined]
        if re.search(r"%-[dmHIMSjUWy]\b", text):
            yield f"{node.lineno}: {text!r} has a time format of one system"  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_has_nothing_that_another_system_lacks(path: Path) -> None:
    assert faults(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import fcntl", "imported with the module"),
        ("class A:\n    import msvcrt", "imported with the module"),
        ("from resource import getrusage", "imported with the module"),
        ("import os\nos.fork()", "does not exist on Windows"),
        ("import signal\nsignal.SIGKILL", "does not exist on Windows"),
        ("import os\nos.sched_getaffinity(0)", "needs hasattr"),
        ('open("x")', "without encoding"),
        ('path.read_text("r")', "without encoding"),
        ('get_context("fork")', "start method"),
        ('FILE = "/tmp/x"', "path of one system"),
        ('with open("x", "wb") as file:\n    os.replace("x", "y")', "may be open"),
        (
            "with file:\n    try:\n        os.replace(part, target)\n    finally:\n        pass",
            "may be open",
        ),
        ('with suppress(OSError), part.open("rb") as file:\n    part.unlink()', "may be open"),
        ('strftime("%-d %B")', "time format"),
        ("time.clock_gettime(1)", "does not exist on Windows"),
    ],
)
def test_the_check_finds(source: str, found: str) -> None:
    assert any(found in fault for fault in faults(source))


@pytest.mark.parametrize(
    "source",
    [
        "def lock():\n    import fcntl",
        'if sys.platform == "win32":\n    import msvcrt\nelse:\n    import fcntl',
        'open("x", "rb")',
        'open("x", encoding="utf-8")',
        'import os\nn = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else 1',
        'get_context("spawn")',
        'with open("x", "wb") as file:\n    file.write(b"x".replace(b"x", b"y"))\nos.replace("x", "y")',
        "with file:\n    if MOVES_OPEN_FILES:\n        os.replace(part, target)",
    ],
)
def test_the_check_accepts(source: str) -> None:
    assert faults(source) == []


def test_every_file_can_be_checked_out_on_windows_and_macos() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    names = [name for name in listed.decode().split("\0") if name]
    assert len(names) > 300
    assert [name for name in names if set(name) & set('<>:"|?*\\')] == []
    assert [name for name in names if PureWindowsPath(name).stem.lower() in RESERVED] == []
    assert len({name.lower() for name in names}) == len(names)
    assert [name for name in names if len(name) > 180] == []
