"""A submitted file is read however broken it is, and its lab is known; where not, the reason is said."""

import json
import os
import re

import pytest

from autograder.grading.submitted import contents, lab_of
from autograder.inside.notebook import Notebook, UngradableError, parse


def read(path) -> Notebook:
    return parse(contents(path))


def ungradable(path) -> str:
    with pytest.raises(UngradableError) as caught:
        lab_of(read(path), path)
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


STEP = re.compile(r"; (open|hand in|keep|choose|clear|grade) .*[^.]$")  # what a reason ends in


@pytest.mark.parametrize(("data", "reason"), BROKEN.items(), ids=range(len(BROKEN)))
def test_a_broken_file_is_ungradable_for_a_reason(tmp_path, data, reason):
    path = tmp_path / "x.ipynb"
    path.write_bytes(data)
    said = ungradable(path)
    assert reason in said
    assert STEP.search(said)


def test_what_is_no_regular_file_is_not_opened(tmp_path, write_notebook):
    link, pipe = tmp_path / "link.ipynb", tmp_path / "pipe.ipynb"
    link.symlink_to(write_notebook("a.ipynb", "x = 1"))
    os.mkfifo(pipe)
    for path, reason in ((link, "link"), (pipe, "regular"), (tmp_path / "absent.ipynb", "cannot be read")):
        said = ungradable(path)
        assert reason in said
        assert STEP.search(said)


def test_a_file_over_the_limit_is_not_read(tmp_path):
    path = tmp_path / "huge.ipynb"
    with open(path, "wb") as file:
        file.truncate(100 << 20)
    assert "clear its outputs" in ungradable(path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_text_in_any_usual_encoding_is_read(tmp_path, notebook_text, encoding):
    path = tmp_path / "x.ipynb"
    path.write_bytes(notebook_text("s = 'ü'").replace("\n", "\r\n").encode(encoding))
    assert read(path).cells == [("cell 1", "s = 'ü'")]


def test_sources_may_be_lists_and_old_formats_are_converted(tmp_path):
    path = tmp_path / "x.ipynb"
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": ["a = 1\n", "b = 2"]}]}))
    assert read(path).cells == [("cell 1", "a = 1\nb = 2")]
    cell = {"cell_type": "code", "input": ["a = 1\n", "b = 2"], "outputs": [], "language": "python", "metadata": {}}
    old = {
        "nbformat": 3,
        "nbformat_minor": 0,
        "metadata": {"name": ""},
        "worksheets": [{"cells": [cell], "metadata": {}}],
    }
    path.write_text(json.dumps(old))
    assert read(path).cells == [("cell 1", "a = 1\nb = 2")]


def test_the_lab_is_known_by_metadata_or_functions_or_file_name(write_notebook):
    for path in (
        write_notebook("a.ipynb", "x = 1", hpcdl={"lab": "tiny"}),
        write_notebook("b.ipynb", "def mean(x):\n    return 0"),
        write_notebook("00_tiny_final.ipynb", "x = 1"),
    ):
        assert lab_of(read(path), path).slug == "tiny"
