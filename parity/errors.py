"""The two ways in which a run can fail without a verdict."""

__all__ = ["BackendError", "InputError", "ParityError"]


class ParityError(Exception):
    """Base of every error that parity raises on purpose: one line, fit to print."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))


class InputError(ParityError):
    """Something that the user gave is unusable (exit code 2)."""


class BackendError(ParityError):
    """An implementation failed to produce its trace (exit code 3).

    Attributes:
        backend: the implementation that failed.
        details: the end of what it wrote to stderr.
    """

    def __init__(self, backend: str, reason: str, details: str = "") -> None:
        super().__init__(f"{backend}: {reason}")
        self.backend = backend
        self.details = details
