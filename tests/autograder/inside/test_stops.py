"""Where a cell stopped is in the outputs that a notebook saves, whatever wrote them."""

import json

import pytest

from autograder.inside import notebook

NEW = [
    "ValueError  Traceback",
    "Cell \x1b[32mIn[2], line 2\x1b[39m\n      1 x = 1\n\x1b[32m----> 2\x1b[39m f(\n      3   1)",
]
OLD = ["<ipython-input-2-abc> in <module>\n      1 x = 1\n----> 2 f(\n      3   1)", "in f()\n----> 7 1/0"]
TIMED = ["Cell In[2], line 1\n----> 1 get_ipython().run_cell_magic('time', '', 'x')", "File <timed exec>:2"]
BODY = "x = 1\nf(\n  1)\nx = 2"
PYERR = {"output_type": "pyerr", "ename": "E", "evalue": "", "traceback": NEW}
UNKNOWN = {"output_type": "stream", "name": "stderr", "text": ["UsageError: Line magic function `%x` not found.\n"]}


def error(traceback):
    return {"output_type": "error", "ename": "E", "evalue": "", "traceback": traceback}


@pytest.mark.parametrize(
    ("source", "outputs", "line"),
    [
        (BODY, [error(NEW)], 2),
        (BODY, [{"output_type": "stream", "text": "x"}, error(OLD)], 2),
        (BODY.replace("\n", "\r\n"), [error(NEW)], 2),
        (f"\n\n{BODY}", [error(NEW)], 4),
        (f"%%capture\n%%time\n{BODY}", [error(TIMED)], 4),
        (f"%%capture out\n{BODY}", [error(NEW)], 3),
        ("y = 3\n%x y\ny = 4", [UNKNOWN], 2),
        ("y = 3\ny = 4", [error(NEW)], 0),  # the cell has been edited since
        (BODY, [error([])], 0),
        (BODY, [error({"a": 1})], 0),
        (BODY, [3, {"output_type": "stream"}], None),
        (BODY, "x", None),
    ],
)
def test_saved_error_says_where(source, outputs, line):
    cell = {"cell_type": "code", "metadata": {}, "source": source, "outputs": outputs}
    data = json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 0}).encode()
    for text in (data, b"\xef\xbb\xbf" + data):
        assert notebook.parse(text).stopped == ({} if line is None else {"cell 1": line})


def test_saved_error_of_an_old_format():
    cell = {"cell_type": "code", "collapsed": False, "language": "python", "metadata": {}, "input": BODY}
    sheet = {"metadata": {}, "cells": [{**cell, "prompt_number": 1, "outputs": [PYERR]}]}
    data = json.dumps({"metadata": {"name": ""}, "nbformat": 3, "nbformat_minor": 0, "worksheets": [sheet]})
    assert notebook.parse(data.encode()).stopped == {"cell 1": 2}
