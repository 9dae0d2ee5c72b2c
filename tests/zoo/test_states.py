"""State dicts of wrapped models and optimizers: the names, shapes and numbers of one process, saved and loaded."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from zoo import page
from zoo.outcomes import RIGHT, float64
from zoo.registry import ENTRIES, plain, sgd

from hpcdl.comm import simulate
from hpcdl.ddp import DistributedDataParallel
from hpcdl.sharding import FullyShardedDataParallel, ShardedOptimizer, load, load_dcp, save, save_dcp

# torch.func compiles with what torch itself has deprecated, in the first process that asks.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")

STATED = page.read()
DOTTED = "module whose name has a dot"  # torch cannot load its own state dict, nor an expanded buffer
OF_DDP = [
    name
    for name, entry in ENTRIES.items()
    if entry.loop is plain and STATED.get((name, "DDP")) == RIGHT and name not in (DOTTED, "expanded buffer")
]
OF_ZERO = [
    name
    for name, entry in ENTRIES.items()
    if entry.loop is plain and entry.optimizer is sgd and STATED.get((name, "ZeRO-1")) == RIGHT
]
NAMES = [name for name, entry in ENTRIES.items() if entry.loop is plain and STATED.get((name, "ZeRO-3")) == RIGHT]


def build(name):
    with float64():
        return ENTRIES[name].build()


def other(name):
    """The same model with other numbers."""
    model = build(name)
    with torch.no_grad():
        for x in (*model.parameters(), *model.buffers()):
            if x.is_floating_point() and x.numel() and all(x.stride()):
                x.mul_(2)
    return model


def equal(found, expected):
    assert list(found) == list(expected)
    for key, value in expected.items():
        same = torch.equal(found[key], value) if isinstance(value, torch.Tensor) else found[key] == value
        assert same, key


def wrap(comm, model, name):
    return FullyShardedDataParallel(model, comm, **ENTRIES[name].options)


@pytest.mark.thinned(20, 6)
@pytest.mark.parametrize("name", [name for name in NAMES if name != DOTTED])
def test_state_dict_is_the_modules_own(name):
    def rank(comm):
        model = wrap(comm, build(name), name)
        equal(model.state_dict(), build(name).state_dict())
        copy = wrap(comm, other(name), name)
        copy.load_state_dict(model.state_dict())
        equal(copy.state_dict(), build(name).state_dict())

    simulate(rank, 2)


@pytest.mark.thinned(20, 6)
@pytest.mark.parametrize("name", NAMES)
def test_saved_and_loaded_is_the_state_dict(name, tmp_path):
    def rank(comm):
        model = wrap(comm, build(name), name)
        save(tmp_path / "own", 1, model.shards(), comm)
        save_dcp(tmp_path / "dcp", model.shards(), comm)
        for fill in (lambda s: load(tmp_path / "own", comm).fill(s), lambda s: load_dcp(tmp_path / "dcp", s, comm)):
            copy = wrap(comm, other(name), name)
            fill(copy.shards())
            equal(copy.state_dict(), build(name).state_dict())

    simulate(rank, 3)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled, unavailable or uninitialized")
@pytest.mark.thinned(20, 6)
@pytest.mark.parametrize("name", [name for name in NAMES if name != "names changed by a state_dict hook"])
def test_torch_reads_what_dcp_wrote(name, tmp_path):
    """Shards have the parameters' own names, so those that a hook changes are left out."""
    import torch.distributed.checkpoint as dcp

    simulate(lambda comm: save_dcp(tmp_path / "dcp", wrap(comm, build(name), name).shards(), comm), 2)
    expected = {key: x for key, x in build(name).state_dict().items() if isinstance(x, torch.Tensor)}
    found = {key: torch.zeros_like(x.contiguous()) for key, x in expected.items()}
    dcp.load(found, checkpoint_id=tmp_path / "dcp", no_dist=True)
    equal(found, expected)


@pytest.mark.thinned(20, 6)
@pytest.mark.parametrize("name", OF_DDP)
def test_ddp_state_dict_is_the_modules_own(name):
    """The keys are torch's: "module." and the module's own names."""

    def rank(comm):
        model = DistributedDataParallel(build(name), comm, **ENTRIES[name].options)
        expected = {f"module.{key}": value for key, value in build(name).state_dict().items()}
        equal(model.state_dict(), expected)
        copy = DistributedDataParallel(other(name), comm, **ENTRIES[name].options)
        copy.load_state_dict(model.state_dict())
        equal(copy.state_dict(), expected)

    simulate(rank, 2)


@pytest.mark.thinned(20, 6)
@pytest.mark.parametrize("name", OF_ZERO)
@pytest.mark.parametrize("stage", [1, 2])
def test_zero_state_dict_is_one_process_s(name, stage):
    """After a step on 2 ranks the optimizer's state is that of one process, and can be loaded on 3."""
    found = {}

    def train(model, optimizer):
        ENTRIES[name].loss(model, *ENTRIES[name].batches()[0]).backward()
        optimizer.step()
        return optimizer.state_dict()

    def rank(comm):
        model = build(name)
        found[comm.rank] = train(model, ShardedOptimizer(model.parameters(), comm, sgd, stage))

    def again(comm):
        optimizer = ShardedOptimizer(build(name).parameters(), comm, sgd, stage)
        optimizer.load_state_dict(found[0])
        same(optimizer.state_dict(), found[0])

    def same(state, expected):
        held = [
            i
            for i, values in expected["state"].items()
            if any(map(torch.numel, filter(torch.is_tensor, values.values())))
        ]
        assert list(state["state"]) == held  # an empty parameter has no state
        for number, values in expected["state"].items():
            for key, value in values.items():
                if isinstance(value, torch.Tensor) and number in held:
                    torch.testing.assert_close(state["state"][number][key], value.to_dense(), rtol=1e-12, atol=1e-12)

    with float64():
        model = build(name)
        expected = train(model, sgd(list(model.parameters())))
        simulate(rank, 2)
        same(found[0], expected)
        simulate(again, 3)
