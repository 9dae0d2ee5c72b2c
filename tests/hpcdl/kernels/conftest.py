"""Triton kernels on the CPU: run by Triton's interpreter, between guard bytes; or recorded, to be compiled."""

import importlib
import sys
from importlib.util import find_spec

import pytest
import torch

from hpcdl.kernels.advice import INSTALL_TRITON

ON_CPU = ["direct", "direct_simple", "winograd", "depthwise", "im2col"]
GUARD = 64  # bytes on either side of a tensor; all bits 1, which is NaN in every type of the kernels


@pytest.fixture(scope="module")
def interpreter(need):
    """Triton's interpreter, chosen for the kernels and as long as they run; other tests choose for themselves."""
    need("triton", find_spec("triton") is not None, INSTALL_TRITON)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TRITON_INTERPRET", "1")
        for module in ON_CPU:
            importlib.import_module(f"hpcdl.kernels.gpu.{module}")
        assert sys.modules["hpcdl.kernels.gpu.base"].INTERPRETED, (
            "a test imported the kernels before this fixture chose"
        )
        yield


class Guards:
    """Memory between bytes of ones: what a kernel must not read is NaN, and what it must not write is seen."""

    def __init__(self):
        self.buffers = []

    def empty(self, like: torch.Tensor, *shape, dtype=None, device=None) -> torch.Tensor:
        """Instead of `like.new_empty(*shape)`: all NaN, between guards."""
        if device == "meta":
            return torch.empty(*shape, device="meta")
        shape, dtype = torch.Size(shape), dtype or like.dtype
        buffer = torch.full((2 * GUARD + shape.numel() * dtype.itemsize,), 0xFF, dtype=torch.uint8)
        self.buffers.append(buffer)
        return buffer[GUARD : len(buffer) - GUARD].view(dtype).view(shape)

    def around(self, x: torch.Tensor) -> torch.Tensor:
        """A copy of `x` between guards."""
        return self.empty(x, *x.shape).copy_(x)

    def intact(self) -> bool:
        return all(bool((b[:GUARD] == 0xFF).all() and (b[-GUARD:] == 0xFF).all()) for b in self.buffers)


@pytest.fixture
def guards(monkeypatch, interpreter):
    """All that kernels' functions allocate lies between guards, and begins as NaN; checked when the test ends."""
    guards = Guards()
    monkeypatch.setattr(
        torch.Tensor, "new_empty", lambda like, *shape, **options: guards.empty(like, *shape, **options)
    )
    yield guards
    assert guards.buffers
    assert guards.intact(), "a kernel wrote outside its output"


@pytest.fixture(scope="module")
def launches(interpreter):
    """`launches(f, *arguments)`: the (kernel, arguments, constants) that f would launch; tensors may be "meta"."""
    from triton.runtime.interpreter import InterpretedFunction

    def record(f, *arguments, **options):
        found = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                InterpretedFunction,
                "__getitem__",
                lambda kernel, grid: lambda *given, **constants: found.append((kernel, given, constants)),
            )
            f(*arguments, **options)
        return found

    return record
