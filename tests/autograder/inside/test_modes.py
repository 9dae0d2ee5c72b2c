"""What an answer leaves behind cannot answer a harness's questions."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from autograder import checks
from autograder.authoring import Lab
from autograder.boundary.encode import Encoder
from autograder.exercises.ready_made import DERIVATIVES
from autograder.grading import run
from autograder.grading.seeds import seeds
from autograder.inside import modes


class Function(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return torch.Tensor.__new__(torch.Tensor) if func is torch.Tensor.detach else func(*args, **(kwargs or {}))


class Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {})) * 0


@pytest.fixture(autouse=True)
def no_mode_stays():
    before = modes.count()
    yield
    modes.leave(before)


@pytest.mark.parametrize("kind", [Function, Dispatch])
def test_a_mode_that_is_left_on_is_taken_off_and_named(kind):
    before = modes.count()
    kind().__enter__()
    assert modes.leave(before) == [f"{__name__}.{kind.__name__}.__enter__"]
    assert modes.count() == before


def test_modes_of_the_harness_stay():
    with Function(), Dispatch():
        before = modes.count()
        Function().__enter__()
        assert len(modes.leave(before)) == 1
        assert modes.count() == before


def test_a_default_device_is_no_mode_of_an_answer():
    before = modes.count()
    try:
        torch.set_default_device("cpu")
        assert modes.leave(before) == []
        assert modes.count() != before
    finally:
        torch.set_default_device(None)


class Seen(TorchFunctionMode):
    """Keeps what it sees, and passes it on by the name that it has in torch."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


def test_no_mode_sees_that_graphs_are_turned_off():
    """A mode passes its call on to the function that grading has put before torch's, which takes it for an answer's."""
    with Seen() as mode:
        with modes.graphs(False):
            assert not torch.ones(1, requires_grad=True).mul(2).requires_grad
        assert torch.is_grad_enabled()
        ours = mode.names.count("_set_grad_enabled")
        torch._C._set_grad_enabled(True)
        assert (ours, mode.names.count("_set_grad_enabled")) == (0, 1)


@pytest.mark.parametrize("device", ["torch.set_default_device('cpu')", "torch.device('cpu').__enter__()"])
def test_a_default_device_is_no_way_to_derivatives(remote, device):
    lab = Lab("halves", number=0, title="Halves")
    exercise = lab.exercise("half", points=100, minutes=1, forbid=DERIVATIVES)

    @exercise.check(points=100)
    def values(student, rng):
        checks.close(student.half(torch.ones(2)), torch.full((2,), 0.5), name="half(x)")

    (result,) = run.run_lab(lab, remote(f"import torch\n{device}\ndef half(x):\n    return x / 2"), seeds(b"", ""))
    assert (result.points, result.forbidden) == (100, []), result


def test_attributes_that_hide_methods_are_named():
    x, y = torch.ones(2), torch.nn.Parameter(torch.ones(2))
    x.note, y.data_ptr = "mine", lambda: 0
    assert modes.hidden_methods((x, [y])) == ["torch.Tensor.__setattr__('data_ptr')"]


def as_written(x):
    encoder = Encoder()
    return encoder.write(x), [bytes(buffer) for buffer in encoder.buffers]


def test_no_attribute_of_a_tensor_changes_what_is_written():
    x, other = torch.ones(2, 3), torch.zeros(4)
    right = as_written(x)
    for name in sorted(modes.METHODS):
        if callable(getattr(torch.Tensor, name)):
            vars(x)[name] = getattr(other, name)
    assert as_written(x) == right


@pytest.mark.parametrize("kind", [Function, Dispatch])
def test_no_mode_changes_what_is_written(kind):
    x = torch.ones(2, 3)
    right = as_written(x)
    with kind():
        assert as_written(x) == right


def test_a_mode_of_torchs_compiler_is_taken_off_too():
    before = modes.count()
    FakeTensorMode().__enter__()
    assert len(modes.leave(before)) == 1
    assert modes.count() == before
