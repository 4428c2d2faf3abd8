"""Entry point of the command line: the table of commands, error messages and exit codes.

Exit codes: 0 done, 1 an unexpected failure, 2 bad input, 3 undecided, 4 an audit or integrity check failed.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from evenhand import __version__
from evenhand.compile.cache import CacheWarning
from evenhand.errors import (
    CompilationFailed,
    EvenhandError,
    IntegrityFailed,
    NotComputed,
    StorageFailed,
    nearest,
)

FAILED, BAD_INPUT, NOT_INTACT = 1, 2, 4

# section of the help page -> command -> module, in the order of the page; a module defines NAME_command
SECTIONS = {
    "Plan and simulate": {
        "plan": "plan", "simulate": "simulate", "compare": "compare", "calibrate": "simulate",
        "sweep": "compare", "scan": "scan",
    },
    "Judge data and evaluate models": {"judge": "judge", "evaluate": "evaluate"},
    "Run an experiment": {
        "new": "experiment", "ask": "ask_tell", "tell": "ask_tell", "drop": "ask_tell", "amend": "ask_tell",
        "import": "ask_tell", "status": "experiment", "pause": "experiment", "resume": "experiment",
        "add-policy": "experiment", "withdraw": "experiment", "finish": "experiment", "close": "experiment",
    },
    "Run an experiment in intervals": {
        "shares": "intervals", "tell-counts": "intervals", "close-interval": "intervals", "sync": "intervals",
    },
    "Report, audit and serve": {
        "report": "report", "audit": "experiment", "export": "experiment", "transfer": "experiment",
        "serve": "serve", "keys": "serve",
    },
    "Demonstrations and this installation": {
        "demo": "demo", "paper": "paper", "doctor": "tools", "warmup": "tools",
    },
}  # fmt: skip
MODULES = {name: module for section in SECTIONS.values() for name, module in section.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; print errors as one sentence on standard error."""
    try:
        with _warnings_as_sentences():
            code = group.main(args=arguments, prog_name="evenhand", standalone_mode=False)
    except click.ClickException as error:
        return _print_error(error.format_message(), BAD_INPUT)
    except IntegrityFailed as error:
        return _print_error(str(error), NOT_INTACT)
    except (CompilationFailed, NotComputed, StorageFailed) as error:
        return _print_error(str(error), FAILED)
    except EvenhandError as error:
        return _print_error(str(error), BAD_INPUT)
    except ModuleNotFoundError as missing:
        return _print_error(_missing_extra_message(missing), BAD_INPUT)
    except (KeyboardInterrupt, click.Abort):
        return _print_error("stopped.", 130)
    except BrokenPipeError:
        # the reader closed the pipe; without this, the flush at exit would raise again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:
        about = "" if error.filename is None else f"{error.filename}: "
        return _print_error(f"{about}{error.strerror or error}.", FAILED)
    return code if isinstance(code, int) else 0


@contextmanager
def _warnings_as_sentences() -> Iterator[None]:
    """Print warnings about the kernel cache as one sentence, and other warnings as Python does."""
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def show(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, CacheWarning):
                _print_error(str(message), 0)
            else:
                shown(message, category, *place, **more)

        warnings.showwarning = show
        yield


class Commands(click.Group):
    """The commands in `MODULES`. A module is imported when one of its commands is called."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(MODULES)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in MODULES:
            return None
        module = importlib.import_module(f"evenhand.cli.{MODULES[name]}")
        found: click.Command = getattr(module, f"{name.replace('-', '_')}_command")
        return found

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if not args and not context.resilient_parsing:  # click would print the help as an error message
            click.echo(context.get_help(), err=True)
            context.exit(BAD_INPUT)
        return super().parse_args(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section, each with its whole first sentence; click would cut it."""
        for title, names in SECTIONS.items():
            commands = {name: self.get_command(context, name) for name in names}
            with formatter.section(title):
                formatter.write_dl(
                    [(name, found.get_short_help_str(limit=200)) for name, found in commands.items() if found]
                )

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = arguments[0]
        if self.get_command(context, name) is None and not name.startswith("-"):
            raise click.UsageError(
                f"there is no command {name!r}{nearest(name, self.list_commands(context))}"
            )
        return super().resolve_command(context, arguments)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="evenhand")
def group() -> None:
    """Choose one policy for everyone.

    evenhand finds the policy with the best overall mean among those that meet a requirement in every group,
    at a stated risk of error.
    """


def _missing_extra_message(missing: ModuleNotFoundError) -> str:
    """Return a message naming the extra to install; re-raise if the module belongs to no extra."""
    from evenhand.cli.tools import installed_extras
    from evenhand.versions import packages_by_extra

    package = (missing.name or "").partition(".")[0]
    for name, extra in installed_extras().items():
        if package in extra["missing"]:
            return f"this needs {package}, which is not installed; install evenhand[{name}]."
    if packages_by_extra() is None and package != "evenhand":
        return f"this needs {package}, which is not installed; install it."
    raise missing


def _print_error(sentence: str, code: int) -> int:
    print(f"evenhand: {sentence}", file=sys.stderr)
    return code
