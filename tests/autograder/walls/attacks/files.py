"""Files that are no notebooks, or barely."""

import json

from . import COUNT, MEAN, Attack, cells, notebook

GOOD = notebook(MEAN, COUNT)


def changed(**fields) -> bytes:
    return json.dumps({**json.loads(GOOD), **fields}).encode()


def with_cell(**fields) -> bytes:
    content = json.loads(GOOD)
    content["cells"][0].update(fields)
    return json.dumps(content).encode()


NO = 0

ATTACKS = {
    "not JSON": Attack(b"hello", NO, "not JSON"),
    "truncated": Attack(GOOD[:-40], NO, "not JSON"),
    "empty": Attack(b"", NO, "empty"),
    "zeros": Attack(bytes(5000), NO, "not JSON"),
    "a zip file by another name": Attack(b"PK\x03\x04" + bytes(range(256)), NO, "not text"),
    "a list": Attack(b"[]", NO, "not an object"),
    "a number": Attack(b"1e999", NO, "not an object"),
    "nested too deep": Attack(b'{"cells":' * 50_000, NO, "damaged"),
    "deep lists in the metadata": Attack(b'{"cells": [], "metadata": ' + b"[" * 900 + b"]" * 900 + b"}", NO),
    "a huge integer": Attack(b'{"nbformat": ' + b"9" * 10_000 + b"}", NO, "damaged"),
    "NaN and infinity for versions": Attack(changed(nbformat=float("nan"), nbformat_minor=float("inf")), 100),
    "an unknown version": Attack(changed(nbformat=4, nbformat_minor=999), 100),
    "a version that is text": Attack(changed(nbformat="four"), 100),
    "an old version without its parts": Attack(b'{"nbformat": 3, "worksheets": [7]}', NO, "format 3"),
    "UTF-16": Attack(GOOD.decode().encode("utf-16"), 100),
    "a byte-order mark": Attack(b"\xef\xbb\xbf" + GOOD, 100),
    "carriage returns": Attack(GOOD.replace(b"}, {", b"},\r\n {"), 100),
    "surrogates in a cell": cells(MEAN + "# \ud800", COUNT, score=40, says="cell 1"),
    "zero bytes in a cell": cells("x = '\x00'", MEAN, COUNT, says="cell 1"),
    "a source in lines": Attack(with_cell(source=MEAN.splitlines(keepends=True)), 100),
    "a source of numbers": Attack(with_cell(source=[1, None, {}]), 40),
    "a source that is an object": Attack(with_cell(source={"a": 1}), 40),
    "a cell without keys": Attack(changed(cells=[{}, None, 3, "x", *json.loads(GOOD)["cells"]]), 100),
    "cells that are an object": Attack(changed(cells={"0": 1}), NO, "no list of cells"),
    "metadata that is a list": Attack(changed(metadata=[1, 2]), 100),
    "another language": Attack(changed(metadata={"kernelspec": {"language": "julia"}}), NO, "julia"),
    "merge-conflict markers": Attack(b"<<<<<<< HEAD\n" + GOOD + b"\n=======\n>>>>>>> mine\n", NO, "merge-conflict"),
    "outputs of ten megabytes": Attack(with_cell(outputs=[{"text": "x" * 10_000_000}]), 100),
    "outputs that look like a pass": Attack(
        with_cell(source="check('arena.mean')", outputs=[{"output_type": "stream", "text": "✓ mean: 60 / 60 points"}]),
        40,
    ),
    "a score in the metadata": cells(COUNT, score=40, hpcdl={"lab": "arena", "score": 100, "points": 100}),
    "nbgrader's points and locks edited": Attack(
        with_cell(source="1", metadata={"nbgrader": {"grade": True, "points": 1e9, "locked": False}}), 40
    ),
    "another lab's name": cells(MEAN, COUNT, hpcdl={"lab": "../../etc"}),
    "a cell of a million characters": cells("x = '" + "a" * 1_000_000 + "'", MEAN, COUNT, says="left out"),
    "a thousand cells": cells(*["y = 1"] * 1000, MEAN, COUNT),
}
