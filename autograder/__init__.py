"""Grading of the course: checks in the notebook, grades for a folder of submissions.

Values cross the boundary to student code, verdicts never do (see `autograder/README.md`). The rooms lie along it:

    boundary     what both sides speak: frames, values, calls, time limits
    inside       what runs beside the student's code: no check, no answer
    walls        what holds that process: the sandbox, and the zygote that forks it
    sessions     how a check reaches the code, in this process, in a walled one, on several ranks
    checks       what checks are made of: the ladder, evidence, sums over ranks, number formats
    exercises    each lab's checks; `bank` has the wrong answers that prove them
    authors      from a lab's source to its notebooks
    grading      from a file to a grade: its docstring walks the whole way
    shards       a large class in parts on many machines, and one result of them
    outputs      from results to pages and course systems

`cli` is the command, `options` what its parts share, `api` what a notebook calls, `authoring` how a lab is declared,
`results` what was found, `feedback` how it is told, `show` how values are written, `doctor` tries the walls.
tests/test_architecture.py says who may import whom.
"""


def __getattr__(name: str):
    if name == "check":  # imported on first use: the worker imports this package too, and must hold no checks
        from .api import check

        return check
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
