"""Functions with their own backward pass, and derivatives of the wrapped model by torch.func and in forward mode."""

import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jvp, vmap
from torch.nn import functional
from zoo.entries import L, Model, P, mlp, two
from zoo.entries_loops import loop, step
from zoo.registry import add


# -- functions with their own backward pass
class Polar(torch.autograd.Function):
    """Two outputs, one of them often unused, and an argument without a gradient."""

    @staticmethod
    def forward(ctx, x, w, scale):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, w)
        ctx.scale = scale
        return x * w * scale, x + w

    @staticmethod
    def backward(ctx, dy, dz):
        x, w = ctx.saved_tensors
        dx, dw = (None, None) if dy is None else (dy * w * ctx.scale, (dy * x * ctx.scale).sum(0))
        if dz is not None:
            dx, dw = (dz, dz.sum(0)) if dx is None else (dx + dz, dw + dz.sum(0))
        return dx, dw, None


class Reversed(torch.autograd.Function):
    """A gradient turned round (domain adaptation)."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, dy):
        return -0.5 * dy


class Reversible(torch.autograd.Function):
    """A block whose inputs are computed again from its outputs in the backward pass (RevNet)."""

    @staticmethod
    def forward(ctx, x, f, g, *params):
        a, b = x.chunk(2, 1)
        a = a + f(b)
        b = b + g(a)
        ctx.parts, y = (f, g), torch.cat([a, b], 1)
        ctx.save_for_backward(y.detach())
        return y

    @staticmethod
    def backward(ctx, dy):
        f, g = ctx.parts
        a, b = (part.detach().requires_grad_() for part in ctx.saved_tensors[0].chunk(2, 1))
        da, db = dy.chunk(2, 1)
        with torch.enable_grad():
            moved = g(a)
            grads = torch.autograd.grad(moved, (a, *g.parameters()), db)
            da, of_g = da + grads[0], grads[1:]
            b = (b - moved).detach().requires_grad_()
            grads = torch.autograd.grad(f(b), (b, *f.parameters()), da)
        return torch.cat([da, db + grads[0]], 1), None, None, *grads[1:], *of_g


def _reversible(m, x):
    return Reversible.apply(x, m.f, m.g, *m.f.parameters(), *m.g.parameters())


class Rounded(torch.autograd.Function):
    """Rounded forward, straight through backward."""

    @staticmethod
    def forward(ctx, w):
        return (w * 4).round() / 4

    @staticmethod
    def backward(ctx, dw):
        return dw


add("function of two outputs, one unused", two(lambda m, x: Polar.apply(m.a(x), m.w, 2.0)[0], w=lambda: P(6)))
add("function of two outputs", two(lambda m, x: sum(Polar.apply(m.a(x), m.w, 2.0)), w=lambda: P(6)))
add("gradient turned round", two(lambda m, x: m.b(Reversed.apply(m.a(x))) + m.a(x)))
add("reversible block", lambda: Model(_reversible, f=nn.Sequential(L(3, 3), nn.Tanh()), g=L(3, 3)))
add("weights rounded straight through", lambda: Model(lambda m, x: x @ Rounded.apply(m.w), w=P(6, 6)))
add("weight used twice, once detached", two(lambda m, x: functional.linear(m.a(x), m.a.weight.detach()) + m.b(x)))
add("gradient scaled by the output's detach", two(lambda m, x: m.b(m.a(x)) * m.a(x).detach().sigmoid()))


# -- torch.func outside
def _by_func(entry, kit, model, optimizer, batch, i):
    params = {name: p.detach() for name, p in model.named_parameters()}
    found = grad(lambda ps: entry.loss(lambda *a: functional_call(model, ps, a), *kit.share(batch)))(params)
    for name, p in model.named_parameters():
        p.grad = found[name]
    kit.synchronize(model)
    optimizer.step()
    optimizer.zero_grad()


def _tangent(entry, kit, model, optimizer, batch, i):
    """The derivative along a direction is in the loss, forward over reverse."""
    (x,) = kit.share(batch)
    y, dy = jvp(model, (x,), (torch.ones_like(x),))
    step(entry, kit, model, optimizer, y.square().mean() + dy.square().mean())


def _sample_by_sample(entry, kit, model, optimizer, batch, i):
    step(entry, kit, model, optimizer, vmap(model)(*kit.share(batch)).square().mean())


def _input_gradient(entry, kit, model, optimizer, batch, i):
    """Contractive: the gradient by the inputs is in the loss."""
    (x,) = kit.share(batch)
    x = x.requires_grad_()
    y = model(x)
    (dx,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    step(entry, kit, model, optimizer, y.square().mean() + 0.1 * dx.square().sum(1).mean())


def _adversarial(entry, kit, model, optimizer, batch, i):
    """FGSM: the inputs go a step up their gradient, by backward, and that gradient is dropped."""
    (x,) = kit.share(batch)
    x = x.clone().requires_grad_()
    (dx,) = torch.autograd.grad(entry.loss(model, x), x)
    step(entry, kit, model, optimizer, entry.loss(model, (x + 0.1 * dx.sign()).detach()))


def _dual(entry, kit, model, optimizer, batch, i):
    """Forward-mode derivatives without torch.func."""
    (x,) = kit.share(batch)
    with forward_ad.dual_level():
        y, dy = forward_ad.unpack_dual(model(forward_ad.make_dual(x, torch.ones_like(x))))
    step(entry, kit, model, optimizer, y.square().mean() + dy.square().mean())


add("gradients by torch.func.grad", mlp, loop=loop(_by_func))
add("jvp of the wrapped model", mlp, loop=loop(_tangent))
add("vmap of the wrapped model", mlp, loop=loop(_sample_by_sample))
add("gradient by the inputs in the loss", mlp, loop=loop(_input_gradient))
add("adversarial inputs", mlp, loop=loop(_adversarial))
add("forward-mode derivative", mlp, loop=loop(_dual))
