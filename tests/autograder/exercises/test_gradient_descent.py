"""The oracles of lab 02's checks: the functional forms used there are torch.optim's own classes."""

import torch

from autograder.exercises.gradient_descent.adam_step import adam_variant, torch_adam, torch_sgd


def by_class(optimizer, w0, gradients, **settings):
    w = torch.nn.Parameter(w0.clone())
    step, path = optimizer([w], **settings), [w0]
    for g in gradients:
        w.grad = g.clone()
        step.step()
        path.append(w.detach().clone())
    return torch.stack(path)


def problem():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(4, generator=generator), torch.randn(100, 4, generator=generator)


def test_sgd_with_momentum_is_the_class():
    w0, gradients = problem()
    for settings in ({}, {"momentum": 0.9}, {"momentum": 0.5, "nesterov": True}):
        expected = by_class(torch.optim.SGD, w0, gradients, lr=0.1, **settings)
        torch.testing.assert_close(torch_sgd(w0, gradients, 0.1, **settings), expected)


def test_adam_is_the_class_with_its_defaults():
    w0, gradients = problem()
    expected = by_class(torch.optim.Adam, w0, gradients, lr=0.05)
    torch.testing.assert_close(torch_adam(w0, gradients, 0.05), expected)


def test_a_wrong_adam_is_recognised_only_when_it_is_wrong():
    w0, gradients = problem()
    torch.testing.assert_close(adam_variant(w0, gradients, 0.05), torch_adam(w0, gradients, 0.05))
