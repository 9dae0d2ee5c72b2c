"""Kernels by the dozen: for each line of standard input, a fork of this process runs cells as a notebook's kernel does.

A line is JSON, [cells, folder]; the answer is [points, messages, errors], each error [number of the cell, its output
or text]. No case sees what another one did to the process, nor a loop that runs in the tests' own.
"""

import asyncio
import json
import os
import sys

from IPython.core.interactiveshell import InteractiveShell

from autograder import exercises
from autograder.grading import run
from autograder.grading.seeds import seeds
from autograder.sessions.local import LocalSession

EXERCISE = exercises.load("gradient_descent").exercises["gradient_descent"]
BETWEEN = 0.2  # seconds until the next cell is run


async def checked(cells: list[str], folder: str) -> list:
    """Run the cells in a loop that is running, as ipykernel does."""
    os.chdir(folder)
    sys.path.insert(0, "")
    shell, errors = InteractiveShell.instance(), list[list]()
    shell.enable_gui = lambda *names: None  # a kernel has one, a shell without a page has none
    for number, source in enumerate(cells):
        cell = source.rstrip()
        shell._showtraceback = lambda kind, error, lines, number=number: errors.append(
            [number, {"ename": kind.__name__, "evalue": str(error), "traceback": list(lines)}]
        )
        shell.show_usage_error = lambda error, number=number: errors.append([number, f"UsageError: {error}"])
        transformed = shell.transform_cell(cell)
        if shell.should_run_async(cell, transformed_cell=transformed):
            await asyncio.ensure_future(shell.run_cell_async(cell, transformed_cell=transformed))
        else:
            shell.run_cell(cell)
        if "asyncio" in "".join(cells):
            await asyncio.sleep(BETWEEN)
    result = run.run_exercise(EXERCISE, LocalSession(shell.user_ns), seeds(b"", ""), hidden=False)
    return [result.points, [check.message for check in result.checks], errors]


def serve() -> None:
    answers = os.dup(1)
    os.dup2(2, 1)  # what cells print
    for line in sys.stdin:
        if not os.fork():
            answer = asyncio.run(checked(*json.loads(line)))
            os.write(answers, f"{json.dumps(answer)}\n".encode())
            os._exit(0)
        if status := os.wait()[1]:
            os.write(answers, f'["the kernel", "ended: {status}", []]\n'.encode())


if __name__ == "__main__":
    serve()
