"""Errors of communication."""


class CommError(RuntimeError):
    """Communication failed: a message that does not fit, a lost message, ranks that disagree."""


class MisfitError(CommError):
    """A message has another dtype or number of elements than its receiver expects."""


class DeadlockError(CommError):
    """Every rank that has not returned waits for another; the message names each rank, its peer and its line."""


class RankError(CommError):
    """One rank raised: `rank` is its number, `__cause__` its error."""

    __cause__: BaseException

    def __init__(self, message: str, rank: int):
        super().__init__(message)
        self.rank = rank
