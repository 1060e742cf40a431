"""`python -m terrazzo`: the same as the command `terrazzo`."""

import sys

from terrazzo.cli.main import app

sys.exit(app())
