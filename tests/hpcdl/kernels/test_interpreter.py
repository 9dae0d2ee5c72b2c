"""The patched interpreter: where Triton's own takes an array for an integer, and nowhere else."""

from types import SimpleNamespace

import numpy as np
import pytest

triton = pytest.importorskip("triton")
from hpcdl.kernels.interpreter import interpreter, patch  # noqa: E402


class Tensor:
    """A value of a kernel, as the interpreter holds it."""

    def __init__(self, value: int):
        self.handle = SimpleNamespace(data=np.array([value]))


@pytest.mark.parametrize(("version", "patched"), [("3.6.0", True), ("3.7.1", False)])
def test_loops_run_to_values_of_arguments(monkeypatch, version, patched):
    prepared = []
    monkeypatch.setattr(triton, "__version__", version)
    monkeypatch.setattr(interpreter, "_patch_lang_tensor", lambda tensor, scope: prepared.append((tensor, scope)))
    tensor = type("Prepared", (Tensor,), {})
    patch()
    patch()  # a second time changes nothing
    interpreter._patch_lang_tensor(tensor, "scope")
    assert prepared == [(tensor, "scope")]
    assert hasattr(tensor, "__index__") == patched
    if patched:
        assert list(range(tensor(3))) == [0, 1, 2]
