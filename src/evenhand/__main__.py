"""``python -m evenhand``: the command line."""

import sys

from evenhand.cli.main import main

sys.exit(main())
