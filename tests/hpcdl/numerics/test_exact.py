"""Products are rounded as they are written; no count of the library comes from a rounded product of floats."""

import ast
import math
from fractions import Fraction
from pathlib import Path

import pytest

import hpcdl
from hpcdl.numerics.exact import as_written, product

ROOT = Path(hpcdl.__file__).parent
FOLDERS = ("cost", "data", "ddp", "parallel", "sharding", "training")
# Places where a rounding error does no harm.
HARMLESS = {
    "cost/published/data_parallel.py": 1,  # hours that are shown
    "cost/traffic.py": 2,  # bytes of an estimate
    "cost/published/transformers.py": 1,  # a percentage that is shown
    "training/fp8.py": 1,  # a scale, a power of two: what is just above the largest number saturates
}


@pytest.mark.parametrize("room", ["0.1", "0.7", "1.1", "1.15", "2.3"])
@pytest.mark.parametrize("n", [10, 30, 70, 100, 290])
def test_products_are_those_of_the_decimals(room, n):
    for over in (1, 3, 10, 100):
        exact = Fraction(room) * n / over
        assert product(float(room), n, over=over) == exact
        assert math.ceil(product(float(room), n, over=over)) == math.ceil(exact)


def test_infinity_is_not_rounded():
    with pytest.raises(ValueError, match="inf is not a number"):
        as_written(math.inf)


def products_rounded(tree):
    """The calls of ceil, floor, int, trunc and round whose argument multiplies or divides, not by `product`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and len(node.args) == 1:
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in ("ceil", "floor", "int", "trunc", "round"):
                inside = [node.args[0]]
                while inside:
                    part = inside.pop()
                    exact = isinstance(part, ast.Call) and getattr(part.func, "id", "") in ("product", "as_written")
                    if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult | ast.Div):
                        if not any(getattr(n, "id", "") in ("product", "as_written") for n in ast.walk(part)):
                            yield node.lineno
                            break
                    elif not exact:
                        inside += ast.iter_child_nodes(part)


def test_no_product_of_floats_is_rounded():
    found = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if lines := list(products_rounded(ast.parse(path.read_text(encoding="utf-8")))):
                found[path.relative_to(ROOT).as_posix()] = lines
    assert {path: len(lines) for path, lines in found.items()} == HARMLESS
