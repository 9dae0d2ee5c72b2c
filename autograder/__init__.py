"""Grading of the course: checks in the notebook, grades for a folder of submissions.

Values cross the boundary to student code, verdicts never do (see `autograder/README.md`). The rooms follow that
boundary:

    boundary     the protocol of both sides: frames, values, calls, time limits
    inside       code in the student's process: no check, no answer
    walls        the sandbox around that process, and the zygote that forks it
    sessions     how a check reaches the code: in this process, in a sandbox, on several ranks
    checks       building blocks of checks: the ladder, evidence, sums over ranks, number formats
    exercises    each lab's checks; `bank` has the wrong answers that prove them
    authors      from a lab's source to its notebooks
    grading      from a file to a grade: its docstring walks the whole way
    shards       a large class split over many machines, and the joined results
    outputs      from results to pages and course systems

`cli` is the command and `options` its shared options, `api` is for notebooks, `authoring` declares labs, `results`
holds verdicts, `feedback` explains them, `show` formats values, `doctor` tries the walls. tests/test_architecture.py
says who may import whom.
"""


def __getattr__(name: str):
    if name == "check":  # imported on first use: the worker imports this package too, and must not hold checks
        from .api import check

        return check
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
