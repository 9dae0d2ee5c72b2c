"""No backward pass of ours leaves its part out of a second derivative: it has one, or refuses."""

import ast
from pathlib import Path

import pytest
import torch
from torch import nn

import hpcdl
from hpcdl.comm import simulate
from hpcdl.nn.stage import Stage
from hpcdl.parallel.sequence import ring_attention
from hpcdl.training.fp8 import to_fp8

ROOT = Path(hpcdl.__file__).parent
DIFFERENTIABLE = {  # and why
    "nn/awkward.py TimedWork": "the identity",
    "sharding/passes.py _AtEnd": "the identity",
    "parallel/experts.py _Exchange": "an exchange back is an exchange",
    "parallel/pipeline/calls.py _Number": "it hands a gradient on",
    "parallel/pipeline/fused_layers.py _Linear": "outside of a pipeline's own pass products of torch",
    **{
        f"parallel/tensor/conjugate.py {name}": "each is the other's backward pass"
        for name in ("_Copy", "_Reduce", "_Gather", "_ReduceScatter", "_Split", "_Join")
    },
    **{
        f"conv/algorithm.py {name}": "each is made of the other two"
        for name in ("_Forward", "_GradInput", "_GradWeight")
    },
}


def functions() -> dict[str, bool]:
    """The autograd functions of the library, and whether their backward pass refuses."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("Function") for base in node.bases):
                (backward,) = [part for part in node.body if getattr(part, "name", "") == "backward"]
                refuses = any("first_only" in ast.unparse(decorator) for decorator in backward.decorator_list)
                found[f"{path.relative_to(ROOT).as_posix()} {node.name}"] = refuses
    return found


def test_each_backward_pass_has_a_derivative_or_refuses():
    found = functions()
    assert {name for name, refuses in found.items() if not refuses} == set(DIFFERENTIABLE)
    assert sum(found.values()) > 8


def penalty(y, x):
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (slope.norm(dim=1) - 1).square().mean().backward()


def in_eight_bits():
    x = torch.ones(3, 4, requires_grad=True)
    penalty(to_fp8(nn.Linear(4, 2))(x), x)


def in_a_stage():
    x = torch.ones(3, 4, requires_grad=True)
    stage = Stage(nn.Sequential(nn.Linear(4, 2)), [3])
    stage.forward(0, x.detach())
    penalty(stage.module(x), x)


def around_a_ring():
    def rank(comm):
        x = torch.ones(1, 2, 3, 4, requires_grad=True)
        penalty(ring_attention(x, x, x, comm), x)

    simulate(rank, 2)


@pytest.mark.parametrize("way", [in_eight_bits, in_a_stage, around_a_ring])
def test_a_second_derivative_that_is_not_there_is_refused(way):
    with pytest.raises(RuntimeError, match=r"create_graph=True: .* has no second derivative; call backward without"):
        way()


def test_a_layer_in_two_places_stays_one_in_eight_bits():
    layer = nn.Linear(4, 4)
    model = to_fp8(nn.Sequential(layer, nn.Tanh(), layer))
    assert model[0] is model[2]
    assert model(torch.ones(0, 3, 4)).shape == (0, 3, 4)
