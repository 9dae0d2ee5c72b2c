"""Grading of the course: checks in the notebook, grades for a folder of submissions.

Values cross the boundary to student code, verdicts never do (see `autograder/README.md`).
"""


def __getattr__(name: str):
    if name == "check":  # imported on first use: the worker imports this package too, and must hold no checks
        from .api import check

        return check
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
