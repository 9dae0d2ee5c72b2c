"""The picture of lab `frameworks`: what its table says is sent, torch's own tools send on simulated ranks."""

import pytest
import torch

from hpcdl.comm import simulate
from hpcdl.nn.decoder import Decoder
from hpcdl.widgets.pictures import six_tools

pytestmark = pytest.mark.labs

VALUES = {
    "tool": tuple(six_tools.TOOLS),
    "stage": six_tools.STAGES,
    "p": (1, 2, 64),
    "model": tuple(six_tools.MODELS),
    "tokens": (256, 16384),
}


def test_every_corner_is_drawn_without_warning(draws_its_corners):
    draws_its_corners(six_tools.explorable, VALUES, most=24)


def test_every_control_changes_the_picture(answers_its_controls):
    answers_its_controls(six_tools.explorable, VALUES, tool="DTensor", stage="forward")


HIDDEN, BLOCKS, TOKENS = 8, 2, 12


def blocks() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(*Decoder(4, HIDDEN, 2, BLOCKS).blocks)


def passes(model, comm) -> list[int]:
    """Bytes that this rank sends forward and backward."""
    x, counts = torch.ones(1, TOKENS, HIDDEN), []
    out = [None]
    for work in (lambda: out.__setitem__(0, model(x).sum()), lambda: out[0].backward()):
        before = sum(event.nbytes for event in comm.trace if event.op == "send")
        work()
        counts.append(sum(event.nbytes for event in comm.trace if event.op == "send") - before)
    return counts


def counted(prepare, p: int) -> list[float]:
    """The mean over the ranks: rings of parts that are not equal are the mean's."""
    from hpcdl.comm import TracingComm
    from hpcdl.training.process_group import process_group

    def rank(comm):
        traced = TracingComm(comm)
        with process_group(traced):
            return passes(prepare(blocks(), p), traced)

    return [sum(column) / p for column in zip(*simulate(rank, p).results, strict=True)]


def ddp(model, p):
    return torch.nn.parallel.DistributedDataParallel(model)


def fsdp(model, p):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (p,))
    for block in model:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def dtensor(model, p):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    plan = {}
    for i in range(BLOCKS):
        plan |= {f"{i}.{name}": ColwiseParallel() for name in ("attention.q", "attention.k", "attention.v", "mlp.up")}
        plan |= {f"{i}.{name}": RowwiseParallel() for name in ("attention.out", "mlp.down")}
    return parallelize_module(model, init_device_mesh("cpu", (p,)), plan)


def said(tool: str, p: int) -> list[float]:
    by_stage = [six_tools.sent(tool, stage, p, HIDDEN, BLOCKS, TOKENS) for stage in six_tools.STAGES[:3]]
    return [by_stage[0], by_stage[1] + by_stage[2]]  # gradients travel in the backward pass


@pytest.mark.parametrize(("tool", "prepare"), [("DDP", ddp), ("FSDP2", fsdp), ("DTensor", dtensor)])
def test_what_a_tool_sends_is_what_the_machine_counts(tool, prepare):
    p = 2
    assert counted(prepare, p) == pytest.approx(said(tool, p))


def test_one_rank_sends_nothing():
    assert not any(six_tools.sent(tool, stage, 1, 8, 2, 12) for tool in six_tools.TOOLS for stage in six_tools.STAGES)


def test_the_sentence_names_the_tool_and_the_least():
    explorable = six_tools.explorable()
    explorable.picture.render({**explorable.state, "p": 1})
    assert "One rank sends nothing" in explorable.picture.caption
    explorable.picture.render({**explorable.state, "tool": "DeepSpeed", "stage": "update", "p": 4})
    assert "DeepSpeed, update" in explorable.picture.caption


@pytest.mark.parametrize("p", VALUES["p"][1:])
@pytest.mark.parametrize("tokens", VALUES["tokens"])
def test_every_tool_that_sends_the_least_is_named(p, tokens):
    explorable = six_tools.explorable()
    explorable.picture.render({**explorable.state, "p": p, "tokens": tokens})
    total = {
        tool: sum(six_tools.sent(tool, stage, p, *six_tools.MODELS["85 M"], tokens) for stage in six_tools.STAGES)
        for tool in six_tools.TOOLS
    }
    said = explorable.picture.caption.split("whole step. ")[1].split(" send")[0]
    assert set(said.replace(" and ", ", ").split(", ")) == {t for t, n in total.items() if n == min(total.values())}
