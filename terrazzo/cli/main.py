"""The command `terrazzo`: runs a command and turns what it raises into an exit code.

Codes: 0 done; 2 a user's error, said in one line on stderr; 130 Ctrl-C; 1 the reader of our output
went away. Anything else that escapes is a defect and shows its traceback.

Nothing is imported at the top that takes time, so that Ctrl-C is answered from the first moment on.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Sequence

USER_ERROR, INTERRUPTED, OUTPUT_CLOSED = 2, 130, 1


def app(args: Sequence[str] | None = None) -> int:
    """Runs the command line `args` (default: the process's own) and returns the exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal may lack the letters a model writes
    try:
        from terrazzo.cli.commands import run

        code = run(sys.argv[1:] if args is None else args)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        _leave_alone()
        return INTERRUPTED
    except BrokenPipeError:
        # Python would complain once more when it closes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OUTPUT_CLOSED


def _leave_alone() -> None:
    """We are on the way out: a second Ctrl-C shall not show a traceback from the exit handlers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A Ctrl-C while a text is executed, as dataclasses do to make their methods, marks CPython to
    # end by that signal even if it was caught; executing another takes the mark away.
    exec("")
