"""Code that takes all there is: time, memory, processes, files, words."""

from . import COUNT, MEAN, cells, mean


def chain(first: int, last: int) -> str:
    """Definitions that call the next one."""
    return "\n".join(f"def g{i}(x): return g{i + 1}(x)" for i in range(first, last))


CALLS_ALL = "def mean(x): return g0(x)"

ATTACKS = {
    "an endless loop": mean("while True:\n    pass", says="did not finish within 0.5 s"),
    "a loop in C": mean("return sum(range(10 ** 12))", says="0.5 s"),
    "a loop in C without the interpreter": mean("return 7 ** (7 ** 12) % 10", says="did not finish within 0.5 s"),
    "a regular expression": mean("import re\nre.match(r'(a+)+$', 'a' * 64 + 'b')", says="0.5 s"),
    "a sleep": mean("import time\ntime.sleep(1000)", says="0.5 s"),
    "a lock": mean("import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()", says="0.5 s"),
    "a read that never ends": mean("import os\na, b = os.pipe()\nos.read(a, 1)", says="0.5 s"),
    "a FIFO": mean("import os\nos.mkfifo('f')\nopen('f').read()", says="PermissionError"),
    "recursion": mean("return mean(x)", says="recursion"),
    "recursion without a bound": mean(
        "import sys\nsys.setrecursionlimit(10 ** 9)\nf = lambda n: f(n + 1)\nreturn f(0)"
    ),
    "memory in one piece": mean("return bytearray(1 << 40)", says="more memory"),
    "memory bit by bit": mean("kept = []\nwhile True:\n    kept.append(torch.empty(1 << 24))", says="memory"),
    "memory bit by bit, each page touched": mean("kept = []\nwhile True:\n    kept.append(bytearray(1 << 26))"),
    "a tensor of a terabyte": mean("return torch.ones(1 << 38)", says="Your code raised RuntimeError"),
    "shared memory": mean("import mmap\nkept = [mmap.mmap(-1, 1 << 28) for _ in range(999)]", says="Your code raised"),
    "/dev/shm": mean("open('/dev/shm/hpcdl_canary', 'wb').write(bytes(9))", says="Your code raised"),
    "memfd": mean("import os\nos.memfd_create('x')", says="PermissionError"),
    "a fork bomb": mean("import os\nwhile True:\n    os.fork()", says="PermissionError"),
    "a thread bomb": mean(
        "import threading, time\nwhile True:\n    threading.Thread(target=time.sleep, args=(99,)).start()"
    ),
    "multiprocessing": mean("import multiprocessing as m\nm.Process(target=print).start()", says="Your code raised"),
    "one large file": mean("open('big', 'wb').write(bytes(100 << 20))", says="Your code"),
    "a million files": mean("for i in range(1_000_000):\n    open(str(i), 'w').close()", says="Your code"),
    "folders without end": mean("import os\nwhile True:\n    os.mkdir('d')\n    os.chdir('d')", says="Your code"),
    "open files": mean("kept = [open('/dev/null') for _ in range(10_000)]", says="Too many open files"),
    "a flood of output": mean("while True:\n    print('x' * 100_000)", says="0.5 s"),
    "a daemon": mean(
        "import subprocess\nsubprocess.Popen(['sleep', '9'], start_new_session=True)", says="PermissionError"
    ),
    "an endless cell of definitions": cells(
        "def helper():\n    while True: pass\nvalue = helper()",
        "def mean(x):\n    return value",
        COUNT,
        score=40,
        says="0.5 s",
    ),
    "5,000 definitions in a cell": cells(f"{chain(0, 5000)}\n{CALLS_ALL}", COUNT, score=40, says="5,001 statements"),
    "5,000 definitions before the answers": cells(*(chain(i, i + 100) for i in range(0, 5000, 100)), MEAN, COUNT),
    "an exhausted processor limit": mean("import resource\nresource.setrlimit(0, (1, 1))\nwhile True: pass"),
}
