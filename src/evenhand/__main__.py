"""Entry point of the command ``evenhand`` and of ``python -m evenhand``."""

import sys


def main() -> int:
    """Run a command and return its exit code.

    Imports take up to a second; Ctrl-C during them must end like Ctrl-C during a command.
    """
    try:
        from evenhand.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        print("\nevenhand: stopped.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
