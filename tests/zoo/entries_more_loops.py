"""Training loops of other kinds: evaluation between, gradients by hand, steps that fail or are skipped."""

import contextlib

import torch
from torch import nn
from torch.func import functional_call
from zoo.entries import L, mlp
from zoo.entries_loops import loop, step
from zoo.registry import Entry, Kit, Weights, add


def _func_outside(entry: Entry, kit: Kit) -> Weights:
    """functional_call on the wrapped model, with its own parameters."""
    model = kit.wrap(entry.build())
    optimizer = kit.optimizer(model, entry.optimizer)
    for batch in entry.batches():
        y = functional_call(model, dict(model.named_parameters()), kit.share(batch))
        step(entry, kit, model, optimizer, y.square().mean())
    return kit.weights(model)


def _retain(entry, kit, model, optimizer, batch, i):
    loss = entry.loss(model, *kit.share(batch))
    with kit.no_sync(model):
        (0.5 * loss).backward(retain_graph=True)
    step(entry, kit, model, optimizer, 0.5 * loss)


def _eval_between(entry, kit, model, optimizer, batch, i):
    (x,) = kit.share(batch)
    loss = entry.loss(model, x)
    model.eval()
    with torch.no_grad():
        model(x)
    model.train()
    step(entry, kit, model, optimizer, loss)


def _forward_unused(entry, kit, model, optimizer, batch, i):
    """A forward pass with an unused graph, as for a metric without no_grad."""
    (x,) = kit.share(batch)
    model(x).argmax(-1)
    step(entry, kit, model, optimizer, entry.loss(model, x))


def _graph_kept(entry, kit, model, optimizer, batch, i):
    """The losses of all steps are kept with their graphs."""
    kept = model.__dict__.setdefault("_losses", [])
    loss = entry.loss(model, *kit.share(batch))
    kept.append(loss)
    step(entry, kit, model, optimizer, loss)


def _grads_by_autograd(entry, kit, model, optimizer, batch, i):
    """torch.autograd.grad of the parameters, put into .grad by hand."""
    params = [param for param in model.parameters() if param.requires_grad]
    grads = torch.autograd.grad(entry.loss(model, *kit.share(batch)), params)
    for param, grad in zip(params, grads, strict=True):
        param.grad = grad
    kit.synchronize(model)
    optimizer.step()
    optimizer.zero_grad()


def _backward_inputs(entry, kit, model, optimizer, batch, i):
    """backward(inputs=...) of the last layer alone."""
    loss = entry.loss(model, *kit.share(batch))
    loss.backward(inputs=list(kit.inner(model)[2].parameters()))
    kit.synchronize(model)
    optimizer.step()
    optimizer.zero_grad()


def _noise(entry, kit, model, optimizer, batch, i):
    """Weights changed between steps under no_grad, the same on all ranks."""
    step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))
    with torch.no_grad():
        for param in model.parameters():
            param.mul_(0.9)


def _grads_scaled(entry, kit, model, optimizer, batch, i):
    """Gradients multiplied in place after synchronize."""
    entry.loss(model, *kit.share(batch)).backward()
    kit.synchronize(model)
    for param in model.parameters():
        if param.grad is not None:
            param.grad.mul_(0.5)
    optimizer.step()
    optimizer.zero_grad()


def _zero_by_hand(entry, kit, model, optimizer, batch, i):
    for param in model.parameters():
        param.grad = None
    entry.loss(model, *kit.share(batch)).backward()
    kit.synchronize(model)
    optimizer.step()


def _model_zero_grad(entry, kit, model, optimizer, batch, i):
    model.zero_grad()
    entry.loss(model, *kit.share(batch)).backward()
    kit.synchronize(model)
    optimizer.step()


def _module_called(entry, kit, model, optimizer, batch, i):
    """The inner module is called instead of the wrapper."""
    step(entry, kit, model, optimizer, entry.loss(kit.inner(model), *kit.share(batch)))


def _loss_is_zero(entry, kit, model, optimizer, batch, i):
    """A batch whose loss is masked away: gradients of zero."""
    loss = entry.loss(model, *kit.share(batch))
    step(entry, kit, model, optimizer, loss * (i != 1))


def _skip_a_step(entry, kit, model, optimizer, batch, i):
    """Gradients are synchronized and dropped."""
    entry.loss(model, *kit.share(batch)).backward()
    kit.synchronize(model)
    if i != 1:
        optimizer.step()
    optimizer.zero_grad()


def _closure(entry, kit, model, optimizer, batch, i):
    def closure():
        optimizer.zero_grad()
        loss = entry.loss(model, *kit.share(batch))
        loss.backward()
        kit.synchronize(model)
        return loss

    optimizer.step(closure)


def _interrupted(entry, kit, model, optimizer, batch, i):
    """A forward pass that fails on every rank, and is tried again."""
    with contextlib.suppress(RuntimeError):
        model(torch.ones(2, 5, dtype=torch.float64))
    step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))


class _Fails(torch.autograd.Function):
    """The identity; its backward raises."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("no gradient")


class _Breaks(nn.Module):
    """The identity, whose backward raises while it is broken."""

    broken = False

    def forward(self, x):
        return _Fails.apply(x) if self.broken else x


def _left_out(of_loss, ends=False):
    """The first batch's loss, or its backward pass, fails on every rank; the loop continues with the next one.

    With `ends` it first ends the failed step, without stepping.
    """

    def run(entry, kit, model, optimizer, batch, i):
        layer = next(layer for layer in kit.inner(model).modules() if isinstance(layer, _Breaks))
        layer.broken = i == 0 and not of_loss
        optimizer.zero_grad()
        loss = entry.loss(model, *kit.share(batch))
        if i == 0 and of_loss:
            return
        with contextlib.suppress(RuntimeError) if layer.broken else contextlib.nullcontext():
            loss.backward()
        if ends or not layer.broken:
            kit.synchronize(model)
        if layer.broken and ends:
            kit.clip(model, 1.0)
        elif not layer.broken:
            optimizer.step()

    return run


def _breaking():
    return nn.Sequential(L(6, 8), _Breaks(), nn.Tanh(), L(8, 6))


add("functional_call of the wrapped model", mlp, loop=_func_outside)
add("backward twice with retain_graph", mlp, loop=loop(_retain))
add("evaluation between forward and backward", mlp, loop=loop(_eval_between))
add("forward pass without backward", mlp, loop=loop(_forward_unused))
add("losses kept with their graphs", mlp, loop=loop(_graph_kept))
add("gradients by torch.autograd.grad", mlp, loop=loop(_grads_by_autograd))
add("backward(inputs=...)", mlp, loop=loop(_backward_inputs))
add("weights changed between steps", mlp, loop=loop(_noise))
add("gradients scaled by hand", mlp, loop=loop(_grads_scaled))
add("grad = None by hand", mlp, loop=loop(_zero_by_hand))
add("model.zero_grad()", mlp, loop=loop(_model_zero_grad))
add("inner module called", mlp, loop=loop(_module_called))
add("a batch masked away", mlp, loop=loop(_loss_is_zero))
add("a step skipped", mlp, loop=loop(_skip_a_step))
add("step with a closure", mlp, loop=loop(_closure))
add("forward that failed and is repeated", mlp, loop=loop(_interrupted))
add("batch left out, since its loss failed", _breaking, loop=loop(_left_out(True)))
add("batch left out, since its backward failed", _breaking, loop=loop(_left_out(False)))
add("batch left out, and its step ended", _breaking, loop=loop(_left_out(False, ends=True)))
