"""Kernels by the dozen: for each line of standard input, a fork of this process runs cells as IPython does.

A line is JSON, [cells, folder]; the answer is [points, messages], or the cell that raised and what it raised. No case
sees what another one did to the process, nor a loop that runs in the tests' own.
"""

import json
import os
import sys

from IPython.core.interactiveshell import InteractiveShell

from autograder import exercises
from autograder.grading import run
from autograder.grading.seeds import seeds
from autograder.sessions.local import LocalSession

EXERCISE = exercises.load("gradient_descent").exercises["gradient_descent"]


def checked(cells: list[str], folder: str) -> list:
    os.chdir(folder)
    sys.path.insert(0, "")
    shell = InteractiveShell()
    shell.enable_gui = lambda *names: None  # a kernel has one, a shell without a page has none
    for cell in cells:
        done = shell.run_cell(cell.rstrip())
        if not done.success:
            return [cell, repr(done.error_in_exec or done.error_before_exec)]
    result = run.run_exercise(EXERCISE, LocalSession(shell.user_ns), seeds(b"", ""), hidden=False)
    return [result.points, [check.message for check in result.checks]]


def serve() -> None:
    answers = os.dup(1)
    os.dup2(2, 1)  # what cells print
    for line in sys.stdin:
        if not os.fork():
            answer = checked(*json.loads(line))
            os.write(answers, f"{json.dumps(answer)}\n".encode())
            os._exit(0)
        if status := os.wait()[1]:
            os.write(answers, f'["the kernel", "ended: {status}"]\n'.encode())


if __name__ == "__main__":
    serve()
