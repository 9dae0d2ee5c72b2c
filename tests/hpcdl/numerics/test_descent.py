"""Gradient descent on a linear model: against float64 autograd, closed forms and the eigenvalues of the iteration."""

import pytest
import torch

from hpcdl.numerics import descent

F64 = torch.float64


def problem(seed, n=9, d=3):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=generator, dtype=F64) for shape in ((d,), (n, d), (n,)))


@pytest.mark.parametrize("seed", range(3))
def test_gradient_and_hessian_are_those_of_autograd(seed):
    w, X, y = problem(seed)
    loss = lambda w: torch.nn.functional.mse_loss(X @ w, y)  # noqa: E731
    torch.testing.assert_close(descent.mse_loss(w, X, y), loss(w))
    torch.testing.assert_close(descent.mse_grad(w, X, y), torch.autograd.functional.jacobian(loss, w))
    torch.testing.assert_close(descent.mse_hessian(X), torch.autograd.functional.hessian(loss, w))


def test_descent_follows_the_closed_form_and_leaves_its_start_alone():
    _, X, _ = problem(1)
    H, w0 = descent.mse_hessian(X), torch.ones(3, dtype=F64)
    path = descent.descend(lambda w: H @ w, w0, lr=0.1, steps=7)
    power = torch.linalg.matrix_power(torch.eye(3, dtype=F64) - 0.1 * H, 7)
    torch.testing.assert_close(path[-1], power @ w0)
    assert path.shape == (8, 3)
    assert torch.equal(w0, torch.ones(3, dtype=F64))


def test_momentum_is_that_of_torch():
    w0, X, y = problem(2)
    parameter = torch.nn.Parameter(w0.clone())
    optimizer = torch.optim.SGD([parameter], lr=0.05, momentum=0.8)
    for _ in range(30):
        parameter.grad = descent.mse_grad(parameter.detach(), X, y)
        optimizer.step()
    path = descent.descend(lambda w: descent.mse_grad(w, X, y), w0, lr=0.05, steps=30, beta=0.8)
    torch.testing.assert_close(path[-1], parameter.detach())


@pytest.mark.parametrize("beta", [0.0, 0.3, 0.9])
def test_limit_separates_convergence_from_divergence(beta):
    """The spectral radius of one step on (w, v), per eigenvalue of the Hessian, is below one below the limit only."""
    H = torch.tensor([[3.0, 1.0], [1.0, 2.0]], dtype=F64)
    limit = descent.max_stable_lr(H, beta)

    def radius(lr):
        blocks = [torch.tensor([[1 - lr * e, -lr * beta], [e, beta]], dtype=F64) for e in torch.linalg.eigvalsh(H)]
        return max(float(torch.linalg.eigvals(block).abs().max()) for block in blocks)

    assert radius(0.999 * limit) < 1 < radius(1.001 * limit)


def test_minibatch_gradients_of_one_epoch_average_to_the_full_gradient():
    w, X, y = problem(3, n=12)
    grad = descent.minibatch_grad(X, y, 4, torch.Generator().manual_seed(0))
    epochs = [torch.stack([grad(w) for _ in range(3)]) for _ in range(2)]
    for epoch in epochs:
        torch.testing.assert_close(epoch.mean(0), descent.mse_grad(w, X, y))
    assert not torch.equal(*epochs)
