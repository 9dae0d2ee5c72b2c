"""A notebook's guard keeps its kernels, and nothing meets them but an answer while it runs."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.functional import hessian
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from autograder.inside import forbidden, lasting, operators
from autograder.inside.lasting import LastingGuard


def has_kernel(name, key):
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)


def convolve():
    return functional.conv2d(torch.ones(1, 1, 3, 3), torch.ones(1, 1, 3, 3))


@pytest.fixture
def calls():
    return []


@pytest.fixture
def guard(calls):
    guard = LastingGuard(calls.append)
    guard.forbid(forbidden.CONVOLUTION)
    yield guard
    guard.forbid(())


def test_between_checks_the_kernels_stay_and_are_not_met(guard, monkeypatch):
    guard.forbid(())
    assert has_kernel("aten::convolution", operators.ASKED)
    assert not has_kernel("aten::convolution", operators.DOOR)
    monkeypatch.setattr(LastingGuard, "meet", lambda *_: pytest.fail("a kernel was met"))
    convolve()
    made = []
    monkeypatch.setattr(lasting, "watching", lambda *named: made.append(named))
    other = LastingGuard()
    other.forbid(forbidden.CONVOLUTION)
    assert not made
    other.forbid(())


def test_the_next_exercise_allows_what_this_one_refuses(guard, calls):
    guard.forbid(("aten::mm",))
    assert has_kernel("aten::mm", operators.ASKED)
    with guard.up():
        assert convolve().item() == 9
        with pytest.raises(forbidden.ForbiddenCallError):
            torch.ones(1, 1) @ torch.ones(1, 1)
    assert calls == ["aten::mm"]


def test_a_door_still_hears_after_another_guard_has_opened_it(calls):
    name, told = "torch.nn.functional.normalize", []
    ours, plain = LastingGuard(calls.append), forbidden.Guard(told.append)
    for guard in (ours, plain, ours):
        guard.forbid((name,))
        with guard.up(), pytest.raises(forbidden.ForbiddenCallError):
            functional.normalize(torch.ones(1, 2))
        guard.forbid(())
        functional.normalize(torch.ones(1, 2))
    assert (calls, told) == ([name, name], [name])


def test_a_guard_that_refuses_nothing_lets_all_compute():
    code = (
        "import torch; from autograder.inside.lasting import LastingGuard\nwith LastingGuard().up(): torch.ones(2) * 2"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_only_the_guard_that_is_up_is_told(guard, calls):
    other = LastingGuard(pytest.fail)
    other.forbid(forbidden.CONVOLUTION)
    with guard.up(), pytest.raises(forbidden.ForbiddenCallError):
        convolve()
    assert calls == ["aten::convolution"]
    other.forbid(())


def test_an_error_or_a_stop_ends_the_asking(guard):
    def fail(error):
        with guard.up():
            with guard.up(False):
                assert not operators.is_asked()
            assert operators.is_asked()
            raise error

    for error in (ValueError, KeyboardInterrupt, forbidden.ForbiddenCallError):
        with pytest.raises(error):
            fail(error)
        assert not operators.is_asked()
        convolve()


def in_a_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def in_a_pool(work):
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).exception()


def in_a_threads_thread(work):
    in_a_thread(lambda: in_a_thread(work))


@pytest.mark.parametrize("start", [in_a_thread, in_a_pool, in_a_threads_thread])
@pytest.mark.filterwarnings("ignore:Exception in thread")
def test_threads_that_an_answer_starts_are_watched(start, guard, calls):
    with guard.up():
        start(convolve)
        with guard.up(False):
            start(convolve)
    start(convolve)
    assert calls == ["aten::convolution"]


SQUARE = torch.arange(9.0).reshape(3, 3) / 9
LAYER = nn.Linear(3, 3)


def cube(x):
    return (x @ x @ x).tanh().sum()


def with_autocast():
    with torch.autocast("cpu", torch.bfloat16):
        return SQUARE @ SQUARE


def with_inference():
    with torch.inference_mode():
        return (SQUARE @ SQUARE).clone()


def with_checkpoint():
    x = SQUARE.clone().requires_grad_()
    checkpoint(cube, x, use_reentrant=False).backward()
    return x.grad


def with_fake_tensors():
    with FakeTensorMode() as mode:
        return tuple(cube(mode.from_tensor(SQUARE)).shape)


def with_doubles():
    x = SQUARE.clone().requires_grad_()
    (first,) = torch.autograd.grad(cube(x), x, create_graph=True)
    return torch.autograd.grad(first.square().sum(), x)[0]


PROGRAMS = {
    "vmap": lambda: torch.func.vmap(cube)(SQUARE.expand(4, 3, 3)),
    "grad of functions": lambda: torch.func.grad(cube)(SQUARE),
    "gradients in a batch": lambda: torch.func.vmap(torch.func.grad(cube))(SQUARE.expand(4, 3, 3)),
    "forward mode": lambda: torch.func.jvp(cube, (SQUARE,), (SQUARE,))[1],
    "hessian": lambda: hessian(cube, SQUARE),
    "gradients of gradients": with_doubles,
    "checkpoint": with_checkpoint,
    "autocast": with_autocast,
    "inference mode": with_inference,
    "fake tensors": with_fake_tensors,
    "a traced graph": lambda: make_fx(cube)(SQUARE)(SQUARE),
    "an exported graph": lambda: torch.export.export(LAYER, (SQUARE,)).module()(SQUARE),
    "a script": lambda: torch.jit.trace(cube, SQUARE)(SQUARE),
    "shapes alone": lambda: tuple((SQUARE.to("meta") @ SQUARE.to("meta")).shape),
    "sparse": lambda: torch.sparse.mm(SQUARE.to_sparse(), SQUARE),
    "complex, conjugated": lambda: torch.view_as_real((SQUARE * 1j).conj() @ SQUARE.to(torch.complex64)),
    "a loss": lambda: functional.cross_entropy(LAYER(SQUARE), torch.tensor([0, 1, 2])),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_what_is_not_refused_computes_as_without_a_guard(name, guard, calls):
    expected = PROGRAMS[name]()
    watched = ("aten::silu", "aten::mm", "aten::tanh", "aten::sum", "aten::_log_softmax", "aten::linear")
    guard.forbid((*forbidden.CONVOLUTION, *watched))
    guard.refused = forbidden.operators(forbidden.CONVOLUTION)  # the others are met, and may be called
    with guard.up():
        found = PROGRAMS[name]()
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert not calls
