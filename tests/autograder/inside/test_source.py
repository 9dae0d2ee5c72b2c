"""Only what the graded functions need is taken from a notebook: their definitions, and what those use."""

import json
import sys

import pytest

from autograder.inside import magics, notebook, source


def taken(*cells, names=("f",)):
    labelled = [(f"cell {i}", magics.plain_python(code)) for i, code in enumerate(cells, start=1)]
    statements, notes = source.needed(labelled, list(names))
    return [code.strip() for _, code in statements], notes


def test_imports_helpers_and_constants_that_are_used_come_along():
    code, _ = taken(
        "import math, os\nA = 2\nB = A + 1\nC = 5",
        "def g(x):\n    return math.sin(x) * B",
        "def f(x):\n    return g(x)",
    )
    assert code == [
        "import math, os",
        "A = 2",
        "B = A + 1",
        "def g(x):\n    return math.sin(x) * B",
        "def f(x):\n    return g(x)",
    ]


def test_plots_checks_widgets_and_long_runs_stay_behind():
    code, _ = taken(
        "import matplotlib.pyplot as plt\nplt.plot([1])",
        "def f(x):\n    path = x\n    return path",
        "check('tiny.mean')\npath = f(3)\nfor i in range(10**9):\n    path = f(path)",
        "while True: pass",
    )
    assert code == ["def f(x):\n    path = x\n    return path"]


@pytest.mark.parametrize(
    "cell",
    [
        "def race(rule, w):\n    w.zero_()\n    return rule(w)\nlosses = race(f, W)\nlosses[0] = 1",
        "def compare(rules):\n    found = {name: [] for name in rules}\n    for name, rule in rules.items():\n"
        "        found[name].append(rule(1))\n    return found\nresults = compare({'mine': f})\nresults.clear()",
        "import matplotlib.pyplot as plt\nplt.plot(f(3))\nplt.setup(f)\nprint(f)\ncheck(f)",
        "from hpcdl.widgets.pictures import paths\npaths.explorable(f)",
        "from hpcdl import cluster\nwith cluster.engines(2) as engines:\n    engines.run(f)",
        "class Trainer:\n    def __init__(self, rule):\n        self.rule, self.losses = rule, []\n"
        "    def fit(self):\n        self.losses.append(self.rule(1))\nTrainer(f).fit()",
    ],
)
def test_experiments_with_an_answer_stay_behind(cell):
    assert taken("def f(w):\n    return w", *cell.split("\n\n"))[0] == ["def f(w):\n    return w"]


def test_what_sets_an_answer_up_comes_along():
    helper = "def configure(f, v):\n    f.v = v"
    assert taken("def f():\n    return f.v", helper, "configure(f, 1)")[0][1:] == [helper, "configure(f, 1)"]


def test_what_changes_a_needed_object_comes_along():
    code, _ = taken("table = {}", "table['a'] = 1\ntable.update(b=2)\nprint(table)", "def f():\n    return table")
    assert code == ["table = {}", "table['a'] = 1", "table.update(b=2)", "def f():\n    return table"]


def test_a_name_that_only_an_inner_function_uses_is_needed():
    code, _ = taken("K = 1", "def f():\n    def g():\n        return [K for _ in range(2)]\n    return g()")
    assert code[0] == "K = 1"


def test_the_last_definition_counts_and_the_note_says_where():
    code, notes = taken("def f(): return 1", "def f(): return 2")
    assert code[-1] == "def f(): return 2"
    assert notes == ["`f` is defined 2 times; the last one, in cell 2, counts"]


def test_a_stub_left_below_the_answer_does_not_hide_it():
    code, _ = taken("def f():\n    return 1", 'def f():\n    "Doc."\n    raise NotImplementedError')
    assert code == ["def f():\n    return 1"]
    assert taken('def f():\n    "Doc."\n    raise NotImplementedError')[0]


def test_a_cell_that_does_not_compile_is_left_out_with_a_note():
    code, notes = taken("def f(): return 1", "def f(: return 2", "x = '\0'", "(" * 5000)
    assert code == ["def f(): return 1"]
    assert len(notes) == 3
    assert notes[0].startswith("cell 2 does not compile and was left out: ")


def test_magics_and_shell_lines_do_no_harm_and_px_cells_count():
    code, notes = taken(
        "!rm -rf /\n%matplotlib inline\nx?\nA = 1", "%%px --local\ndef f():\n    return A", "%%bash\nrm -rf /"
    )
    assert code == ["A = 1", "def f():\n    return A"]
    assert notes == []


def test_lines_keep_their_numbers():
    statements, _ = source.needed([("cell 1", "x = 1\n\n\ndef f():\n    return 1\n")], ["f"])
    assert statements == [("cell 1:4", "\n\n\ndef f():\n    return 1\n")]


def test_decorators_and_classes_are_whole():
    code, _ = taken("import functools\n@functools.cache\ndef f():\n    return D()\nclass D:\n    a = B\nB = 3")
    assert code == ["import functools", "@functools.cache\ndef f():\n    return D()", "class D:\n    a = B", "B = 3"]


def test_a_line_ends_where_python_ends_it():
    code, _ = taken("# pasted\u2028from the web\nA = '\x0c'\nB = 2; C = 3", "def f():\n    return A, C")
    assert code == ["A = '\x0c'", "B = 2; C = 3", "def f():\n    return A, C"]
    assert taken("A = 1\r\n# old\rB = A\ndef f(): return B")[0] == ["A = 1", "B = A", "def f(): return B"]


@pytest.mark.parametrize(
    "code",
    [
        "A = 1; \\\nB = 2",
        "A = 1; \\\n\\\n  \\\nB = 2",
        "if True: A = 1; \\\n  B = 2",
        "A = 1 \\\n; B = 2",
        'A = "é"; A = [\n1][0]; B = \\\n2;\\\n\n',
        "A = 1;  # not in a comment \\\nB = 2",
        "\\\nA = 1; B = 2",
    ],
)
def test_a_backslash_behind_a_statement_leads_to_the_next(code):
    statements, notes = source.needed([("cell 1", code), ("cell 2", "def f(): return A + B")], ["f"])
    names: dict = {}
    for label, text in statements:
        exec(compile(text, label, "exec"), names)
    assert (names["f"](), notes) == (3, [])


def test_python_with_the_signs_of_magics_stays_as_it_is():
    code = "x = '50 %!?'  # really?\ny = 7 % (3\n% 2)\n"
    assert magics.plain_python(code) == code


def test_a_cell_of_thousands_costs_itself():
    many = "\n".join(f"def g{i}(x): return g{i + 1}(x)" for i in range(5000))
    some = "\n".join(f"x{i} = 1" for i in range(1500))
    cells = [{"cell_type": "code", "source": text} for text in (many, "def f(): return 1", some, some, some)]
    found = notebook.parse(json.dumps({"cells": cells}).encode())
    assert [label for label, _ in found.cells] == ["cell 2", "cell 3", "cell 4"]
    assert found.notes == [f"cell {n} was left out: it has {m} statements" for n, m in ((1, "5,000"), (5, "1,500"))]


def test_effects_go_round_in_circles():
    code, _ = taken(
        "table = []",
        "def a(n): return b(n)\ndef b(n): return c(n)\ndef c(n):\n    table.append(n)\n    return a(n - 1) if n else 0",
        "a(3)",
        "def f(): return table",
    )
    assert "a(3)" in code


def test_a_run_of_answers_is_no_effect():
    """A helper that calls what is graded changes nothing by it: a training run stays behind."""
    code, _ = taken("seen = []", "def f(x): seen.append(x)", "def train(): f(1)", "train()")
    assert code == ["seen = []", "def f(x): seen.append(x)"]


@pytest.mark.parametrize(
    ("cells", "since"),
    [
        (("type Vector = list[float]", "C = 3", "def f(x: Vector) -> Vector:\n    return C * x"), (3, 12)),
        (("K = 2", "def scale[T](x: T) -> T:\n    return K * x", "def f(x):\n    return scale(x)"), (3, 12)),
        (("LEAST = 1", "class Box[T]:\n    n = LEAST", "def f(x):\n    return Box[int]().n"), (3, 12)),
        (("NAME = 'a'", 'def f(x):\n    return f"{x} {f"{NAME}"}"'), (3, 12)),
        (("D = int", "class Box[T = D]:\n    pass", "def f(x):\n    return Box()"), (3, 13)),
    ],
)
def test_syntax_of_later_pythons(cells, since):
    """All cells are needed where Python knows the syntax; elsewhere a note names the cell."""
    code, notes = taken(*cells)
    assert (code == list(cells), notes == []) == (sys.version_info >= since,) * 2


def test_objects_of_a_plain_class_change_nothing_else():
    code, _ = taken("class Box:\n    def __init__(self, x): self.x = x", "boxes = [Box(1)]", "def f(x): return Box(x)")
    assert len(code) == 2


@pytest.mark.parametrize(
    "body",
    ["count = 0\n    def __init__(self): Box.count += 1", "made = []\n    def __init__(self): self.made.append(1)"],
)
def test_objects_of_a_class_with_a_table_change_it(body):
    code, _ = taken(f"class Box:\n    {body}", "class Small(Box): pass", "Small()", "def f(x): return Small")
    assert len(code) == 4


def test_a_method_of_a_result_is_not_one_of_the_function():
    code, _ = taken("def part(w): return w[1:]", "w = [1, 2]", "part(w).sort()", "def f(x): return part(x)")
    assert len(code) == 2


@pytest.mark.parametrize(
    ("before", "runs"),
    [
        ("net = list()\nnet.eval()", []),  # a method of that name runs no text
        ("A = 3\nexec('B = A')", ["A = 3", "exec('B = A')"]),
        ("A = 3\ntext = 'B = A'\nexec(text)", ["A = 3", "text = 'B = A'", "exec(text)"]),
        ("A = 3\nprint('A')", []),  # text that is not run needs nothing
        ("def put(n, v): globals()[n] = v\nput('B', 1)", ["def put(n, v): globals()[n] = v", "put('B', 1)"]),
        ("import __main__\n__main__.B = 1", ["import __main__", "__main__.B = 1"]),
        ("def evaluate(net): net.eval()\nevaluate(3)", []),
    ],
)
def test_what_code_in_text_may_bind_is_taken(before, runs):
    code, _ = taken(before, "def f(x):\n    return B")
    assert code[:-1] == runs


def test_a_docstring_is_no_code():
    code, _ = taken("slow = 1\nexec('B = 1')", 'def f(x):\n    """Is it slow?"""\n    return B')
    assert "slow = 1" not in code


@pytest.mark.parametrize(
    ("code", "always"),
    [
        ("old = np.seterr(all='raise')", True),
        ("if True:\n    np.set_printoptions(3)", True),
        ("def setup():\n    np.random.seed(1)\nsetup()", True),
        ("@torch.library.custom_op('m::f', mutates_args=())\ndef op(x: int) -> int: return x", True),
        ("lib = torch.library.Library('m', 'DEF')\nlib.define('f(Tensor x) -> Tensor')", True),
        ("for seed in range(9):\n    torch.manual_seed(seed)", False),  # an experiment
        ("def train():\n    torch.manual_seed(1)\n    while True: pass\ntrain()", False),
        ("def fit(): f(1)\nif True:\n    torch.manual_seed(0)\n    fit()", False),
        ("total = np.add(1, 2)", False),
        ("import pdb\npdb.set_trace()", False),
    ],
)
def test_settings_are_made_unless_slow(code, always):
    found, _ = taken("import gc, torch\nimport numpy as np", code, "def f(x):\n    return x")
    assert (code.splitlines()[-1] in "\n".join(found)) == always


@pytest.mark.parametrize(
    "writes",
    [
        "file = open('a', 'w')\nprint(1, file=file)",
        "import csv\nfile = open('a', 'w')\nw = csv.DictWriter(file, ['x'])\nw.writeheader()",
        "log = open('a', 'w')\ndef say(*a): print(*a, file=log)\nsay(1)",
        "class Tee:\n    def __init__(self): self.file = open('a', 'w')\ntee = Tee()\ntee.say()",
        "import numpy as np\nm = np.memmap('a', shape=3, mode='w+')\nm[0] = 1",
        "import os\nos.replace('b', 'a')",
        "from os import rename as move\nmove('b', 'a')",
        "from pathlib import Path\nPath('b').replace('a')",
        "def save(path):\n    with open(path, 'w') as file: file.write('1')\nsave('a')",
    ],
)
@pytest.mark.parametrize("reads", ["open('a').read()", "__import__('os').path.isfile('a')"])
def test_what_writes_a_file_runs_for_its_reader(writes, reads):
    last = writes.splitlines()[-1]
    assert last in taken(writes, f"A = {reads}", "def f(x):\n    return A")[0]
    assert last not in taken(writes, "A = 'a b'.replace('a', 'c')", "def f(x):\n    return A")[0]


RENAME = "`mean` is not defined: found `maen`: rename it?"
MAEN = "def maen(x): return x"
OTHER_CAUSES = {
    "another cell uses it": (MAEN, "print(maen(3))"),
    "a star import may bring it": (MAEN, "from helpers import *"),
    "its cell does not compile": (MAEN, "def mean(x): return (x"),
    "its cell is in conflict": (
        MAEN,
        "<<<<<<< HEAD\ndef mean(x): return x\n=======\ndef mean(x): ...\n>>>>>>> b\n",
    ),
    "it is there": (MAEN, "def mean(x): return x"),
}


def test_a_function_of_a_similar_name_is_named():
    assert taken(MAEN, names=("mean",))[1] == [RENAME]


@pytest.mark.parametrize("cause", OTHER_CAUSES)
def test_none_is_named_beside_another_cause(cause):
    assert RENAME not in taken(*OTHER_CAUSES[cause], names=("mean",))[1]


def test_a_conflict_in_a_cell_is_called_by_its_name():
    (note,) = taken(*OTHER_CAUSES["its cell is in conflict"], names=("mean",))[1]
    assert note.endswith("it has the marks of a merge conflict; keep one of the two versions")


def test_what_a_notebook_deletes_is_not_a_definition():
    _, notes = taken("def f(): return 1", "del f")
    assert notes == ["`f` is deleted in cell 2, so it cannot be called: leave `del` out there"]
    assert taken("del f", "def f(): return 1")[1] == []
