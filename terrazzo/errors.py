"""The one catalogue of errors a user can meet: each class says what, where, the numbers, what to
do.

Every class derives from :class:`TerrazzoError`; the command line prints `str(error)` on one line
(kernel errors add the source line and a caret) and exits with code 2. Nothing else is a user's
error: any other exception that escapes is a defect of ours.
"""

from __future__ import annotations


class TerrazzoError(Exception):
    """Base of all user errors. `what` names the problem with its numbers, `remedy` what to do."""

    def __init__(self, what: str, remedy: str = "") -> None:
        self.what = what
        self.remedy = remedy
        super().__init__(f"{what}; {remedy}" if remedy else what)


class ModelFileError(TerrazzoError):
    """A model file is missing, truncated, not GGUF, or of a kind we do not run."""


class ContextOverflow(TerrazzoError):
    """A prompt (plus what is to be generated) does not fit the model's context."""


class MemoryShortage(TerrazzoError):
    """Device memory needed is more than what is available."""


class OptionError(TerrazzoError):
    """An option or argument has a value we cannot take."""


class QueueFull(TerrazzoError):
    """More requests wait than the engine keeps. `retry_after_s`: when one is likely to be taken."""

    def __init__(self, what: str, remedy: str = "", *, retry_after_s: float = 1.0) -> None:
        super().__init__(what, remedy)
        self.retry_after_s = retry_after_s


class DeadlineExceeded(TerrazzoError):
    """A request was not finished within the time it was given."""


class GrammarError(TerrazzoError):
    """A grammar or schema that an answer is to match is wrong, or takes too much work."""


class ChatError(TerrazzoError):
    """A model has no chat template, or its template refuses the messages."""


class DownloadError(TerrazzoError):
    """A model could not be fetched or did not have the expected hash."""


class PlatformError(TerrazzoError):
    """This system or CPU is not supported."""


class DeviceUnavailable(TerrazzoError):
    """There is no device of the kind asked for, or what drives it is not installed or too old."""


class DeviceError(TerrazzoError):
    """A device's runtime refused a call, or a kernel failed on the device. `code` is its number for
    that."""

    code: int = 0


class KernelError(TerrazzoError):
    """An error in a kernel's source. `where` is file:line:col, `source` the line, `caret` the
    underline."""

    def __init__(
        self, what: str, remedy: str = "", *, where: str = "", source: str = "", caret: str = ""
    ) -> None:
        super().__init__(what, remedy)
        self.where = where
        self.source = source
        self.caret = caret

    def __str__(self) -> str:
        head = f"{self.where}: {self.args[0]}" if self.where else str(self.args[0])
        return f"{head}\n    {self.source}\n    {self.caret}" if self.source else head


class CapacityError(KernelError):
    """A kernel's tiles do not fit a memory space: names tiles, lines, bytes and what fits.

    `tiles` is a table of the largest tiles, one a line, shown below the marked source line.
    """

    tiles: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join((super().__str__(), *(f"    {line}" for line in self.tiles)))


class ArgumentError(TerrazzoError):
    """A kernel was called with an argument of the wrong type, rank, dtype, stride or extent."""


class KernelFault(KernelError):
    """A kernel reported a fault while it ran: an expectation that does not hold; in strict mode and
    on the reference target also an index out of bounds, a value that is not finite and the like."""


class Cancelled(TerrazzoError):
    """A step was cancelled (Ctrl-C, client gone) before it finished."""
