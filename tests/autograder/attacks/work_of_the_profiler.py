# machines.work: 9 points, flagged, long
# Torch's profiler counts operations.
import torch


def flops(f, *names):
    with torch.profiler.profile(with_flops=True, record_shapes=True) as p:
        f()
    return sum(e.flops or 0 for e in p.events() if e.name in names)


def conv(channels, filters, kernel, size, groups=1):
    x, w = torch.zeros(1, channels, size, size), torch.zeros(filters, channels // groups, kernel, kernel)
    macs = flops(lambda: torch.nn.functional.conv2d(x, w, padding=kernel // 2, groups=groups), "aten::conv2d") // 2
    return w.numel(), macs, (channels + filters) * size**2


def linear(tokens, inputs, outputs):
    x, w = torch.zeros(tokens, inputs), torch.zeros(inputs, outputs)
    return w.numel(), flops(lambda: x @ w, "aten::mm") // 2, x.numel() + (x @ w).numel()


def attention(tokens, hidden):
    q = torch.zeros(tokens, hidden)
    return 0, flops(lambda: (q @ q.T) @ q, "aten::mm") // 2, 4 * q.numel()


def work(layers, batch, again=False):
    rows = []
    for i, (weights, macs, moved) in enumerate(layers):
        f = 2 * batch * macs
        rows.append((f, f * (2 if i else 1) + again * f, 4 * (batch * moved + weights)))
    return rows
