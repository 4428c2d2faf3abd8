"""The public surface: what `import evenhand` offers, at run time and to type checkers."""

from __future__ import annotations

import ast
import pkgutil
import subprocess
import sys
from importlib import import_module
from importlib.resources import files
from pathlib import Path

import evenhand as eh


def test_the_names_are_sorted_and_load() -> None:
    assert eh.__all__ == sorted(eh.__all__)
    for name in eh.__all__:
        assert getattr(eh, name).__name__ == name


def test_type_checkers_see_the_same_names_from_the_same_homes() -> None:
    tree = ast.parse(Path(eh.__file__).read_text())
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.asname: node.module
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == {name: f"evenhand.{home}" for name, home in eh._MODULE_OF.items()}


def test_the_package_is_marked_as_typed() -> None:
    assert files("evenhand").joinpath("py.typed").is_file()


def test_importing_it_loads_no_compiler_and_no_database() -> None:
    look = "import evenhand, sys; print({'llvmlite', 'scipy', 'sqlalchemy', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_no_module_has_the_name_of_a_public_function() -> None:
    modules = {module.name for module in pkgutil.iter_modules(eh.__path__)}
    assert not modules & set(eh.__all__)
    for name in sorted(modules - {"__main__"}):
        import_module(f"evenhand.{name}")
    assert all(callable(getattr(eh, name)) for name in eh.__all__)
