"""A change of no behaviour changes no points and says nothing new: of an answer's text, of what binds and surrounds it,
or of the file that holds it."""

import ast
import json
import random
import re

import nbformat
import pytest

from autograder.grading.grade import grade_bytes
from autograder.walls.zygote import Zygote

RIGHT = ["import torch\nfrom autograder import check", "def mean(x):\n    return torch.sum(x) / x.numel()\n"]
RIGHT += ["def count(n):\n    for i in range(n):\n        yield i\n\n\ndef double(f, x):\n    return 2 * f(x)\n"]
RIGHT += ["check('tiny.mean')\nprint(mean(torch.ones(3)))"]
WRONG = [cell.replace(" / x.numel()", "") for cell in RIGHT]
STUB = "def mean(x):\n    '''The mean.'''\n    raise NotImplementedError"


def lines(before: str, after: str):
    """A change that replaces a pattern in each cell."""
    return lambda cells: [re.sub(before, after, cell, flags=re.MULTILINE) for cell in cells]


def each(change):
    return lambda cells: [change(cell) for cell in cells]


def around(*first: str, last: tuple[str, ...] = ()):
    return lambda cells: [*first, *cells, *last]


def renamed(binding: str):
    """A change that calls the function `_mean`, and binds its name as `binding` does."""
    return lambda cells: [
        cell.replace("def mean(", "def _mean(") + (binding if "def mean(" in cell else "") for cell in cells
    ]


def decorated(first: str, name: str):
    return lambda cells: [first, *(cell.replace("def mean(", f"@{name}\ndef mean(") for cell in cells)]


WRITTEN = {
    "as it is": list,
    "by Python": each(lambda cell: ast.unparse(ast.parse(cell))),
    "with tabs": lines(r"^    ", "\t"),
    "with returns": lines(r"\n", "\r\n"),
    "with form feeds": lines(r"\n", "\n\f\n"),
    "in one line": lambda cells: ["; \\\n".join(cells[0].split("\n")), *cells[1:]],
    "in one cell": lambda cells: ["\n".join(cells)],
    "in many cells": lambda cells: [ast.unparse(node) for cell in cells for node in ast.parse(cell).body],
    "under a try": each(lambda c: "try:\n" + re.sub("^", "    ", c, flags=re.M) + "\nexcept OSError:\n    pass"),
    "with annotations of later": lambda cells: ["from __future__ import annotations", *cells],
}
BOUND = {
    "by its def": list,
    "by a name": renamed("mean = _mean"),
    "by a lambda": renamed("mean = lambda x: _mean(x)"),
    "by a walrus": renamed("print(mean := _mean)"),
    "by text": renamed("exec('mean = _mean')"),
    "by an object": renamed("class Mean:\n    def __call__(self, x):\n        return _mean(x)\n\nmean = Mean()"),
    "by a table": renamed("ANSWERS = {}\nANSWERS['mean'] = _mean\nmean = ANSWERS['mean']"),
    "with a clock": decorated(
        "import functools, time\nTIMES = []\ndef timed(f):\n    @functools.wraps(f)\n    def inner(*args):\n"
        "        begin = time.perf_counter()\n        found = f(*args)\n"
        "        TIMES.append(time.perf_counter() - begin)\n        return found\n    return inner",
        "timed",
    ),
    "with a log": decorated(
        "import logging, sys\nlogging.basicConfig(level=logging.DEBUG, stream=sys.stdout)\nlog = logging.getLogger()\n"
        "def logged(f):\n    def inner(x):\n        log.debug('%s', x)\n        return f(x)\n    return inner",
        "logged",
    ),
    "with a function inside": lines(r"^(\s+)(return torch.sum)", r"\1def todo():\n\1\1raise NotImplementedError\n\1\2"),
}
SURROUNDED = {
    "by nothing": list,
    "by stubs": around(STUB, last=(STUB,)),
    "by magics": around("%load_ext autoreload\n%autoreload 2\n%matplotlib inline\n!pip install tqdm", "%%time\nx = 1"),
    "by Colab": around("#@title Drive\nfrom google.colab import drive\ndrive.mount('/content/drive')\n%cd /content"),
    "by settings": around(
        "import random, torch, warnings\nwarnings.simplefilter('ignore')\nrandom.seed(0)\ntorch.manual_seed(0)\n"
        "torch.set_default_device('cpu')\ntorch.set_printoptions(precision=3)"
    ),
    "by errors": around("1 / 0", "raise ValueError('on purpose')", last=("assert False", "exit()")),
    "by questions": around("name = input('Your name? ')", last=("mean?\nhelp(mean)", "import pdb; pdb.set_trace()")),
    "by experiments": around(last=("curve = []\nfor i in range(3):\n    curve.append(mean(torch.ones(i + 1)))",)),
    "by asynchronous code": around("import asyncio\nawait asyncio.sleep(0)", last=("del asyncio",)),
}
ERROR = {"output_type": "error", "ename": "KeyboardInterrupt", "evalue": "", "traceback": ["..."]}


def stored(**metadata):
    """A file with these metadata, and a blank cell at its end."""
    return lambda cells: {"cells": [*code(cells), {"cell_type": "raw", "source": "-"}], "metadata": metadata}


def code(cells, **more):
    return [{"cell_type": "code", "source": cell, **more} for cell in cells]


def of_format_3(cells):
    nodes = [nbformat.v3.new_code_cell(cell) for cell in cells]
    return nbformat.v3.new_notebook(worksheets=[nbformat.v3.new_worksheet(cells=nodes)])


FILES = {
    "bare": lambda cells: {"cells": code(cells)},
    "of Colab": stored(colab={"provenance": []}, kernelspec={"name": "python3", "display_name": "Python 3"}),
    "of Kaggle": stored(kaggle={"accelerator": "none"}, kernelspec={"name": "mine", "language": "python"}),
    "of VS Code": stored(language_info={"name": "python"}, orig_nbformat=4, vscode={"interpreter": {"hash": "1"}}),
    "of format 3": of_format_3,
    "with one id": lambda cells: {"cells": code(cells, id="same", metadata=None, outputs=None), "nbformat": 4},
    "run backwards": lambda cells: {
        "cells": [{**each, "execution_count": 9 - i, "outputs": [ERROR]} for i, each in enumerate(code(cells))]
    },
    "of lines": lambda cells: {"cells": [{**cell, "source": cell["source"].splitlines(True)} for cell in code(cells)]},
}


def shuffled(table: dict, seed: int) -> list[str]:
    names = list(table)
    random.Random(seed).shuffle(names)
    return names


TABLES = (WRITTEN, BOUND, SURROUNDED, FILES)
ORDERS = [shuffled(table, seed) for seed, table in enumerate(TABLES, start=1)]
CASES = [tuple(order[i % len(order)] for order in ORDERS) for i in range(max(map(len, ORDERS)))]
CASES.append(("as it is", "with a function inside", "by stubs", "bare"))


def changed(cells: list[str], case: tuple[str, ...]) -> bytes:
    written, bound, surrounded, file = (table[name] for table, name in zip(TABLES, case, strict=True))
    return json.dumps(file(surrounded(written(bound(cells))))).encode()


def graded(data: bytes, lab, zygote) -> list:
    """Each check's verdict, and what is flagged."""
    result = grade_bytes(data, "x.ipynb", zygote, "ada", b"s", lab, False)
    checks = [(c.name, c.status, c.points, c.message, c.mistake) for e in result.exercises for c in e.checks]
    return [checks, [e.forbidden for e in result.exercises], [e.note for e in result.exercises]]


@pytest.mark.parametrize("case", CASES, ids=", ".join)
def test_a_change_of_no_behaviour_changes_no_verdict(case, tiny, zygote):
    for cells, points in ((RIGHT, 100), (WRONG, 40)):
        checks, *others = found = graded(changed(cells, case), tiny, zygote)
        assert sum(check[2] for check in checks) == points, found
        assert others == [[[], []], ["", ""]], found
        assert [check[1:] for check in checks] == [check[1:] for check in graded(*plain(cells), tiny, zygote)[0]]


def plain(cells: list[str]) -> tuple[bytes]:
    return (changed(cells, ("as it is", "by its def", "by nothing", "bare")),)


def test_workers_do_not_each_import_what_a_call_of_torchs_imports(tiny):
    seeded = "def seeded():\n    torch.manual_seed(0)\n    torch.use_deterministic_algorithms(True)\n\n\nseeded()"
    data = changed([RIGHT[0], seeded, *RIGHT[1:]], ("as it is", "by its def", "by nothing", "bare"))
    with Zygote() as zygote:
        checks, *_ = graded(data, tiny, zygote)
        assert "torch._inductor.config" in zygote.preloaded
    assert sum(check[2] for check in checks) == 100
