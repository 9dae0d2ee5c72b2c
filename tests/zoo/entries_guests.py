"""Models and loops as guests bring them: scans, graphs, functions with their own gradients, gradients read by loops."""

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize, prune
from zoo.entries import L, Model, P, mlp, two
from zoo.entries_layers import images, sequences
from zoo.entries_loops import loop, step
from zoo.registry import add, words


# -- models -----------------------------------------------------------------------------------------------------------
def _time_mixing(m, x):
    """RWKV: each token with the one before it, then a decaying sum."""
    before = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1)
    k, v, r = (each(x * m.mix + before * (1 - m.mix)) for each in (m.k, m.v, m.r))
    top = bottom = torch.zeros_like(x[:, 0])
    out = []
    for t in range(x.shape[1]):
        top, bottom = (
            a * torch.exp(-m.decay.exp()) + b for a, b in ((top, k[:, t].exp() * v[:, t]), (bottom, k[:, t].exp()))
        )
        out.append(top / bottom)
    return torch.sigmoid(r) * torch.stack(out, 1)


def _selective_scan(m, x):
    """Mamba: steps, inputs and outputs of a state space depend on the token."""
    dt, b, c = functional.softplus(m.dt(x)), m.b(x), m.c(x)
    h, out = x.new_zeros(len(x), 6, 3), []
    for t in range(x.shape[1]):
        h = torch.exp(-dt[:, t, :, None] * m.a.exp()) * h + (dt[:, t] * x[:, t])[..., None] * b[:, t, None]
        out.append((h * c[:, t, None]).sum(-1))
    return torch.stack(out, 1) + m.d * x


def _edges(m, x):
    """EdgeConv: each point with its nearest ones in the same cloud."""
    near = torch.cdist(x, x).topk(2, largest=False).indices
    others = torch.gather(x[:, None].expand(-1, x.shape[1], -1, -1), 2, near[..., None].expand(-1, -1, -1, 6))
    return m.mlp(torch.cat([x[:, :, None].expand_as(others), others - x[:, :, None]], -1)).amax(2)


def _graph_attention(m, x):
    """Scores of edges, normalized over those that end in one node."""
    start, end = torch.tensor([0, 1, 2, 2]), torch.tensor([1, 2, 0, 1])
    h = m.w(x)
    e = functional.leaky_relu((m.a * torch.cat([h[:, start], h[:, end]], -1)).sum(-1)).exp()
    total = torch.zeros(len(x), 3, dtype=x.dtype).index_add(1, end, e)
    return torch.zeros_like(h).index_add(1, end, h[:, start] * (e / total[:, end])[..., None])


def _masked(m, x):
    kernel = m.weight * torch.tensor([1.0, 1, 1, 1, 0, 0, 0, 0, 0], dtype=x.dtype).view(3, 3)
    return functional.conv2d(x, kernel, m.bias, padding=1)


class Adjoint(torch.autograd.Function):
    """Two Euler steps, whose gradients come from steps back."""

    @staticmethod
    def forward(ctx, x, f, *params):
        ctx.f, ctx.params = f, params
        with torch.no_grad():
            ctx.states = [x, x + 0.5 * f(x)]
            return ctx.states[1] + 0.5 * f(ctx.states[1])

    @staticmethod
    def backward(ctx, dy):
        sums = [torch.zeros_like(p) for p in ctx.params]
        for x in reversed(ctx.states):
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                dx, *gs = torch.autograd.grad(ctx.f(x), (x, *ctx.params), 0.5 * dy)
            dy, sums = dy + dx, [a + b for a, b in zip(sums, gs, strict=True)]
        return dy, None, *sums


class Feedback(torch.autograd.Function):
    """A product whose gradient goes back through another matrix."""

    @staticmethod
    def forward(ctx, x, w, back):
        ctx.save_for_backward(x, back)
        return x @ w

    @staticmethod
    def backward(ctx, dy):
        x, back = ctx.saved_tensors
        return dy @ back, x.t() @ dy, None


def _implicit(m, x):
    """A fixed point by iteration without a graph; a hook solves for its gradient."""
    with torch.no_grad():
        z = torch.zeros_like(x)
        for _ in range(200):
            z = torch.tanh(0.3 * m.a(z) + x)
    z = torch.tanh(0.3 * m.a(z) + x)
    z0 = z.detach().requires_grad_()
    f0 = torch.tanh(0.3 * m.a(z0) + x)

    def solve(g):
        y = g
        for _ in range(200):
            y = torch.autograd.grad(f0, z0, y, retain_graph=True)[0] + g
        return y

    if z.requires_grad:
        z.register_hook(solve)
    return m.b(z)


def _ternary(m, x):
    scale = m.w.abs().mean()
    q = scale * (m.w / scale).round().clamp(-1, 1)
    return x @ (m.w + (q - m.w).detach())


def _circulant(m, x):
    return torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(m.w), n=6)


add("RWKV", lambda: Model(_time_mixing, k=L(6, 6), v=L(6, 6), r=L(6, 6), mix=P(6), decay=P(6, seed=4)), sequences())
add(
    "selective scan",
    lambda: Model(_selective_scan, dt=L(6, 6), b=L(6, 3), c=L(6, 3), a=P(6, 3), d=P(6)),
    sequences(),
)
add("convolution on edges of point clouds", lambda: Model(_edges, mlp=nn.Sequential(L(12, 6), nn.ReLU())), sequences())
add("graph attention", lambda: Model(_graph_attention, w=L(6, 6), a=P(12)), sequences())
add("masked convolution", lambda: Model(lambda m, x: _masked(m.c, x), c=nn.Conv2d(3, 3, 3)), images(3))
add(
    "adjoint of an ordinary differential equation",
    lambda: Model(lambda m, x: Adjoint.apply(x, m.f, *m.f.parameters()), f=mlp()),
)
add(
    "feedback alignment",
    lambda: Model(lambda m, x: Feedback.apply(torch.tanh(x @ m.v), m.w, P(6, 6)), v=P(6, 6), w=P(6, 6)),
)
add("deep equilibrium, gradient by a hook", two(_implicit))
add("ternary weights", lambda: Model(_ternary, w=P(6, 6)))
add("circulant weights", lambda: Model(_circulant, w=P(6)))
add(
    "inducing points",
    lambda: Model(
        lambda m, x: m.b(x, *(m.a(m.i.expand(len(x), -1, -1), x, x)[0],) * 2)[0],
        a=nn.MultiheadAttention(6, 2, batch_first=True),
        b=nn.MultiheadAttention(6, 2, batch_first=True),
        i=P(1, 2, 6),
    ),
    sequences(),
)
add(
    "hashed embeddings",
    lambda: Model(lambda m, x: m.e(x % 5) * m.e(x * 3 % 7), e=nn.Embedding(7, 6)),
    lambda: [(words(n),) for n in (7, 6, 8)],
)
add(
    "monotone network",
    two(lambda m, x: functional.linear(torch.tanh(functional.linear(x, m.a.weight.exp())), m.b.weight.exp())),
)


def _density(m, x):
    """Minus the logarithm of a mixture of normal densities, of each sample."""
    weight, mean, log_width = m.net(x).view(len(x), 3, -1).unbind(1)
    inside = weight.log_softmax(-1) - 0.5 * ((x[:, :1] - mean) / log_width.exp()) ** 2 - log_width
    return -inside.logsumexp(-1)


add("mixture density", lambda: Model(_density, net=L(6, 6)), loss=lambda m, x: m(x).mean())


# -- loops ------------------------------------------------------------------------------------------------------------
def after_backward(use):
    """A step with `use(model, optimizer)` between synchronization and update, as loops read and change gradients."""

    def run(entry, kit, model, optimizer, batch, i):
        entry.loss(model, *kit.share(batch)).backward()
        kit.synchronize(model)
        if use(model, optimizer) is not False:
            optimizer.step()
        optimizer.zero_grad()

    return loop(run)


def _project(model, _):
    """GaLore: gradients of matrices in the space of their first singular vectors."""
    for p in model.parameters():
        if p.dim() == 2:
            u = torch.linalg.svd(p.grad, full_matrices=False)[0][:, :2]
            p.grad = u @ (u.t() @ p.grad)


def _total_norm(model, _):
    norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])
    nn.utils.clip_grads_with_norm_(model.parameters(), 0.01, norm)


def _finite(model, _):
    return all(p.grad.isfinite().all() for p in model.parameters())


for name, use in {
    "gradients projected by singular vectors": _project,
    "clipped by get_total_norm": _total_norm,
    "no step unless gradients are finite": _finite,
    "no step for a large gradient": lambda model, _: bool(max(p.grad.abs().max() for p in model.parameters()) < 9),
    "gradients printed": lambda model, _: [f"{p.grad}" for p in model.parameters()] and None,
    "an element of each gradient logged": lambda model, _: [p.grad.flatten()[0].item() for p in model.parameters()],
    "histograms of gradients": lambda model, _: [torch.histc(p.grad, 4) for p in model.parameters()],
    "rows of gradients changed": lambda model, _: [p.grad[:1].zero_() for p in model.parameters()],
    "gradients by a matrix": lambda model, _: [
        setattr(p, "grad", p.grad.T.contiguous().T) for p in model.parameters() if p.dim() > 1
    ],
}.items():
    add(name, mlp, loop=after_backward(use))


def _scaled_by_hand(entry, kit, model, optimizer, batch, i):
    (1024 * entry.loss(model, *kit.share(batch))).backward()
    kit.synchronize(model)
    for p in model.parameters():
        p.grad /= 1024
    optimizer.step()
    optimizer.zero_grad()


def _evolved(entry, kit, model, optimizer, batch, i):
    """Evolution strategies: gradients are differences of losses, and no graph is made."""
    with torch.no_grad():
        for p in model.parameters():
            noise = torch.linspace(-1, 1, p.numel(), dtype=p.dtype).view_as(p)
            p.add_(noise, alpha=0.1)
            up = entry.loss(model, *kit.share(batch))
            p.sub_(noise, alpha=0.1)
            p.grad = (up - entry.loss(model, *kit.share(batch))) * noise
    kit.synchronize(model)
    optimizer.step()
    optimizer.zero_grad()


def _pruned(entry, kit, model, optimizer, batch, i):
    if i == 1:
        prune.l1_unstructured(kit.inner(model)[0], "weight", 0.5)
    step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))


def _made_plain(entry, kit, model, optimizer, batch, i):
    if i == 1:
        parametrize.remove_parametrizations(kit.inner(model)[0], "weight")
    step(entry, kit, model, optimizer, entry.loss(model, *kit.share(batch)))


add("loss scaled by hand", mlp, loop=loop(_scaled_by_hand))
add("evolution strategies", mlp, loop=loop(_evolved))
add("pruned in training", mlp, loop=loop(_pruned))
add(
    "parametrization removed in training",
    lambda: nn.Sequential(parametrizations.weight_norm(L(6, 6)), L(6, 6)),
    loop=loop(_made_plain),
)


def _by_their_losses(model, x):
    """Samples with large losses count more: weights that sum to 1 over a rank's samples."""
    losses = model(x).square().mean(1)
    return (losses.detach().softmax(0) * losses).sum()


def _self_paced(model, x):
    losses = model(x).square().mean(1)
    return ((losses < losses.detach().median()) * losses).mean()


add("samples weighed by a softmax of their losses", mlp, loss=_by_their_losses)
add("samples below the median loss, same batch", mlp, loss=_self_paced, same=True)
