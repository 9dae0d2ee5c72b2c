"""A notebook is read however broken it is, and only what the graded functions need is taken from it."""

import json
import os

import pytest

from autograder.inside import notebook, source
from autograder.inside.notebook import UngradableError


def ungradable(path) -> str:
    with pytest.raises(UngradableError) as caught:
        notebook.lab_of(notebook.read(path), path)
    return str(caught.value)


BROKEN = {
    b"": "empty",
    b"  \n": "empty",
    b"not json": "not JSON (line 1)",
    b'{"cells": [': "not JSON (line 1)",
    b"[1, 2]": "not an object",
    b"{}": "no list of cells",
    b'{"cells": {}}': "no list of cells",
    b'{"cells": [1, null, {"cell_type": 3}]}': "no lab",
    b"\xff\xfe\x00": "not text",
    b"PK\x03\x04\x80\x81": "not text",
    b'{"cells": [],\n<<<<<<< HEAD\n=======\n>>>>>>> b\n}': "merge-conflict",
    b"[" * 100_000: "damaged",
    b'{"cells": [], "x": ' + b"9" * 5000 + b"}": "damaged",
    b'{"cells": [], "metadata": {"language_info": {"name": "julia"}}}': "julia",
    b'{"nbformat": 3, "worksheets": 7}': "format 3",
    b'{"cells": [], "nbformat": "four", "metadata": [1]}': "no lab",
}


@pytest.mark.parametrize(("data", "reason"), BROKEN.items(), ids=range(len(BROKEN)))
def test_a_broken_file_is_ungradable_for_a_reason(tmp_path, data, reason):
    path = tmp_path / "x.ipynb"
    path.write_bytes(data)
    assert reason in ungradable(path)


def test_what_is_no_regular_file_is_not_opened(tmp_path, write_notebook):
    link, pipe = tmp_path / "link.ipynb", tmp_path / "pipe.ipynb"
    link.symlink_to(write_notebook("a.ipynb", "x = 1"))
    os.mkfifo(pipe)
    assert "link" in ungradable(link)
    assert "regular" in ungradable(pipe)
    assert "cannot be read" in ungradable(tmp_path / "absent.ipynb")


def test_a_file_over_the_limit_is_not_read(tmp_path):
    path = tmp_path / "huge.ipynb"
    with open(path, "wb") as file:
        file.truncate(100 << 20)
    assert "clear its outputs" in ungradable(path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_text_in_any_usual_encoding_is_read(tmp_path, notebook_text, encoding):
    path = tmp_path / "x.ipynb"
    path.write_bytes(notebook_text("s = 'ü'").replace("\n", "\r\n").encode(encoding))
    assert notebook.read(path).cells == [("cell 1", "s = 'ü'")]


def test_sources_may_be_lists_and_old_formats_are_converted(tmp_path):
    path = tmp_path / "x.ipynb"
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": ["a = 1\n", "b = 2"]}]}))
    assert notebook.read(path).cells == [("cell 1", "a = 1\nb = 2")]
    cell = {"cell_type": "code", "input": "a = 1", "outputs": [], "language": "python", "metadata": {}}
    old = {
        "nbformat": 3,
        "nbformat_minor": 0,
        "metadata": {"name": ""},
        "worksheets": [{"cells": [cell], "metadata": {}}],
    }
    path.write_text(json.dumps(old))
    assert notebook.read(path).cells == [("cell 1", "a = 1")]


def test_the_lab_is_known_by_metadata_or_functions_or_file_name(write_notebook):
    for path in (
        write_notebook("a.ipynb", "x = 1", hpcdl={"lab": "tiny"}),
        write_notebook("b.ipynb", "def mean(x):\n    return 0"),
        write_notebook("00_tiny_final.ipynb", "x = 1"),
    ):
        assert notebook.lab_of(notebook.read(path), path).slug == "tiny"


# What is taken from it


def taken(*cells, names=("f",)):
    labelled = [(f"cell {i}", source.plain_python(code)) for i, code in enumerate(cells, start=1)]
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


def test_python_with_the_signs_of_magics_stays_as_it_is():
    code = "x = '50 %!?'  # really?\ny = 7 % (3\n% 2)\n"
    assert source.plain_python(code) == code
