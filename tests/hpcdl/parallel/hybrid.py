"""A decoder trained by data, pipeline and tensor parallelism, held against the serial run: `runpy.run_path` reads it.

It stands alone, so that engines, which cannot import the tests, can run it too.
"""

import torch
from torch.nn.functional import cross_entropy

from hpcdl.data.text import Characters, corpus, windows
from hpcdl.nn.transformer import transformer
from hpcdl.parallel import Layers, Mesh, cut_batch, cut_layers, run_stage, split_transformer, sum_gradients
from hpcdl.parallel import tensor as tensor_parallel
from hpcdl.parallel.schedules import SCHEDULES
from hpcdl.parallel.tensor.weights import local_share
from hpcdl.training.momentum import Momentum

ROWS, TOKENS, HIDDEN, STEPS = 7, 5, 12, 3


def decoder():
    """Two blocks of three heads, for 81 words: nothing of it divides by two."""
    torch.manual_seed(0)
    return transformer(81, TOKENS, HIDDEN, heads=3, blocks=2).double()


def batches():
    tokens, generator = Characters(corpus()).encode(corpus()), torch.Generator().manual_seed(0)
    return [windows(tokens, TOKENS, ROWS, generator) for _ in range(STEPS)]


def serial():
    net = decoder()
    optimizer = Momentum(net.parameters(), 0.3)
    losses = []
    for x, y in batches():
        optimizer.zero_grad()
        loss = cross_entropy(net(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return net, losses


def hybrid(comm, name, m, **sizes):
    """Train on `comm`, and hold the weights of this rank against its share of the serial run's."""
    mesh, schedule = Mesh(comm, **sizes), SCHEDULES[name]
    p = mesh.pipeline.size
    parts, orders = schedule.parts(p, schedule.chunks), schedule.orders(p, m)

    def mine(net):
        return cut_layers(split_transformer(net, mesh.tensor), parts, mesh.stage)

    def loss(logits, target):
        return tensor_parallel.cross_entropy(logits.flatten(0, 1), target.flatten(), 81, mesh.tensor).mean()

    chunks = mine(decoder())
    params = [param for chunk in chunks for param in chunk.parameters()]
    layers, optimizer = [Layers(chunk) for chunk in chunks], Momentum(params, 0.3)
    found = []
    for x, y in batches():
        optimizer.zero_grad()
        x, y = (t.tensor_split(mesh.data.size)[mesh.replica] for t in (x, y))
        options = {"parts": parts, "dtype": torch.float64, "total": ROWS}
        run = run_stage(mesh.pipeline, layers, orders, cut_batch(x, y, m), loss, (TOKENS, HIDDEN), **options)
        sum_gradients(params, mesh.data)
        optimizer.step()
        found.append(run.loss)
    expected, losses = serial()
    expected = [param for chunk in mine(expected) for param in chunk.parameters()]
    pairs = zip(map(local_share, params), map(local_share, expected), strict=True)
    errors = [(mine - theirs).abs().max().item() for mine, theirs in pairs]
    assert max(errors) < 1e-12, errors
    return mesh.replica, mesh.part, found, losses
