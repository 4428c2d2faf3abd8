"""``python -m evenhand``: the command line."""

import sys

from evenhand.app.cli import main

sys.exit(main())
