"""What communication raises."""


class CommError(RuntimeError):
    """Communication failed: a message that does not fit, a lost message, ranks that disagree."""


class DeadlockError(CommError):
    """Every rank that has not returned waits for another: the message says who waits for whom, and where."""


class RankError(CommError):
    """One rank raised; `rank` says which, `__cause__` is what it raised."""

    __cause__: BaseException

    def __init__(self, message: str, rank: int):
        super().__init__(message)
        self.rank = rank
