"""Inside transforms of torch.func `conv2d` is torch's convolution, and a single algorithm says that it cannot run."""

import pytest
import torch
from torch.nn import functional

from hpcdl.conv import ALGORITHMS, conv2d, prepare

# torch.func's forward mode compiles with what torch itself has deprecated, in the first process that asks.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")

OPTIONS = {"plain": {}, "strided": {"stride": 2, "padding": 1}, "same": {"padding": "same"}, "groups": {"groups": 2}}


def numbers(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(len(shape)))


X, XS, BIASES = numbers(2, 4, 6, 6), numbers(3, 2, 4, 6, 6), numbers(3, 6)
TRANSFORMS = {
    "vmap of images": lambda f, w: torch.vmap(lambda x: f(x, w))(XS),
    "vmap of filters": lambda f, w: torch.vmap(lambda w: f(X, w))(torch.stack([w, 2 * w])),
    "vmap of biases": lambda f, w: torch.vmap(lambda b: f(X, w, b))(BIASES),
    "vmap of all": lambda f, w: torch.vmap(f)(XS, torch.stack([w, w, 2 * w]), BIASES),
    "gradient": lambda f, w: torch.func.grad(lambda w: f(X, w).square().sum())(w),
    "gradients of samples": lambda f, w: torch.vmap(torch.func.grad(lambda w, x: f(x, w).sum()), (None, 0))(w, XS),
    "jvp": lambda f, w: torch.func.jvp(lambda x: f(x, w), (X,), (X + 1,))[1],
    "Hessian": lambda f, w: torch.func.hessian(lambda x: f(x, w[:2]).square().sum())(X[:1]),
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_as_torchs(name, options):
    w = numbers(6, 4 // OPTIONS[options].get("groups", 1), 3, 3)
    found, expected = (
        TRANSFORMS[name](lambda *args, f=f: f(*args, **OPTIONS[options]), w) for f in (conv2d, functional.conv2d)
    )
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_prepared_filters():
    w = numbers(6, 4, 3, 3)
    found = torch.vmap(lambda x: conv2d(x, prepare(w)))(XS)
    torch.testing.assert_close(found, torch.vmap(lambda x: functional.conv2d(x, w))(XS), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("transform", ["vmap of images", "vmap of filters", "gradient"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_single_algorithm(algorithm, transform):
    with pytest.raises(ValueError, match=r'cannot run inside vmap, grad .* give algorithm="auto"'):
        TRANSFORMS[transform](ALGORITHMS[algorithm], numbers(6, 4, 3, 3))
