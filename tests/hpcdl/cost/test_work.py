"""Operations and parameters, as torch counts them while it computes; nothing is computed, on the meta device."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop
from torch.utils.flop_counter import FlopCounterMode

from hpcdl.cost import work
from hpcdl.cost.roofline import Device, seconds
from hpcdl.cost.work import Transformer, training_flops
from hpcdl.nn.networks import alexnet, lenet5, resnet50, total, vgg16


def conv(channels_in, channels, kernel, stride=1, padding=None):
    return nn.Conv2d(channels_in, channels, kernel, stride, kernel // 2 if padding is None else padding, bias=False)


class TwoGroups(nn.Module):
    """A convolution in two groups, as two: torch counts the gradient of grouped filters as if there were no groups."""

    def __init__(self, channels_in, channels, kernel):
        super().__init__()
        self.halves = nn.ModuleList(conv(channels_in // 2, channels // 2, kernel) for _ in range(2))

    def forward(self, x):
        return torch.cat([half(part) for half, part in zip(self.halves, x.chunk(2, 1), strict=True)], 1)


def torch_lenet():
    linear = (nn.Linear(i, o, bias=False) for i, o in ((400, 120), (120, 84), (84, 10)))
    pool = nn.MaxPool2d(2)
    return nn.Sequential(conv(1, 6, 5), pool, conv(6, 16, 5, padding=0), pool, nn.Flatten(), *linear), (1, 28, 28)


def torch_alexnet():
    pool = nn.MaxPool2d(3, 2)
    convolutions = (
        conv(3, 96, 11, 4, 0), pool, TwoGroups(96, 256, 5), pool,
        conv(256, 384, 3), TwoGroups(384, 384, 3), TwoGroups(384, 256, 3), pool,
    )  # fmt: skip
    linear = (nn.Linear(i, o, bias=False) for i, o in ((9216, 4096), (4096, 4096), (4096, 1000)))
    return nn.Sequential(*convolutions, nn.Flatten(), *linear), (3, 227, 227)


def torch_vgg():
    parts, channels_in = [], 3
    for repeats, channels in ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)):
        for _ in range(repeats):
            parts.append(conv(channels_in, channels, 3))
            channels_in = channels
        parts.append(nn.MaxPool2d(2))
    linear = (nn.Linear(i, o, bias=False) for i, o in ((25088, 4096), (4096, 4096), (4096, 1000)))
    return nn.Sequential(*parts, nn.Flatten(), *linear), (3, 224, 224)


class Bottleneck(nn.Module):
    def __init__(self, channels_in, width, stride, shortcut):
        super().__init__()
        self.body = nn.Sequential(conv(channels_in, width, 1, stride), conv(width, width, 3), conv(width, 4 * width, 1))
        self.shortcut = conv(channels_in, 4 * width, 1, stride) if shortcut else nn.Identity()

    def forward(self, x):
        return self.body(x) + self.shortcut(x)


def torch_resnet():
    parts, channels = [conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
    for stage, repeats in enumerate((3, 4, 6, 3)):
        for block in range(repeats):
            parts.append(Bottleneck(channels, 64 << stage, 2 if stage and not block else 1, not block))
            channels = 4 * (64 << stage)
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000, bias=False))
    return nn.Sequential(*parts, *head), (3, 224, 224)


NETWORKS = {lenet5: torch_lenet, alexnet: torch_alexnet, vgg16: torch_vgg, resnet50: torch_resnet}


def counted(f) -> int:
    """With checkpoints computed again whole: torch would spare the last product, whose result is not needed."""
    with FlopCounterMode(display=False) as count, set_checkpoint_early_stop(False):
        f()
    return count.get_total_flops()


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
def test_a_convolution_networks_operations_are_those_torch_counts(network):
    batch = 3
    with torch.device("meta"):
        module, image = NETWORKS[network]()
        x = torch.empty(batch, *image)
    layers = network()
    assert total(layers, "weights") == sum(p.numel() for p in module.parameters())
    assert sum(work.forward(layer, batch).flops for layer in layers) == counted(lambda: module(x))
    assert training_flops(layers, batch) == counted(lambda: module(x).sum().backward())


def test_a_network_that_is_computed_twice_takes_one_forward_pass_more():
    batch = 2
    with torch.device("meta"):
        module, image = torch_vgg()
        x = torch.empty(batch, *image)

    def recomputed():  # the output first: it has no operations, and checkpoints all before it
        checkpoint(module, x, use_reentrant=False).sum().backward()

    assert training_flops(vgg16(), batch, "full") == counted(recomputed)


class Block(nn.Module):
    """A layer whose core of attention, or all of it, may be computed again."""

    def __init__(self, h, heads, recompute):
        super().__init__()
        self.heads, self.recompute = heads, recompute
        self.qkv, self.out = nn.Linear(h, 3 * h), nn.Linear(h, h)
        self.up, self.down = nn.Linear(h, 4 * h), nn.Linear(4 * h, h)
        self.norms = nn.ModuleList([nn.LayerNorm(h), nn.LayerNorm(h)])

    def forward(self, x):
        return checkpoint(self.layer, x, use_reentrant=False) if self.recompute == "full" else self.layer(x)

    def layer(self, x):
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norms[0](x)).chunk(3, -1)
        )
        core = (
            checkpoint(self.core, q, k, v, use_reentrant=False) if self.recompute == "selective" else self.core(q, k, v)
        )
        x = x + self.out(core.transpose(1, 2).flatten(-2))
        return x + self.down(functional.gelu(self.up(self.norms[1](x))))

    @staticmethod
    def core(q, k, v):
        return torch.softmax(q @ k.transpose(-1, -2), -1) @ v


@pytest.mark.parametrize("recompute", work.RECOMPUTE)
@pytest.mark.parametrize(("h", "heads", "tokens", "words", "layers"), [(32, 4, 16, 100, 1), (48, 3, 40, 70, 3)])
def test_a_transformers_operations_are_those_torch_counts(recompute, h, heads, tokens, words, layers):
    batch = 3
    with torch.device("meta"):
        blocks = nn.Sequential(*(Block(h, heads, recompute) for _ in range(layers)))
        head = nn.Linear(h, words, bias=False)
        x = torch.empty(batch, tokens, h, requires_grad=True)
    model = Transformer(layers, h, tokens, words, heads)
    assert training_flops(model, batch, recompute) == counted(lambda: head(blocks(x)).sum().backward())
    assert sum(work.forward(layer, batch).flops for layer in model.table()) == counted(lambda: head(blocks(x)))


def test_a_transformers_parameters_are_those_of_torchs_layers():
    h, layers, words, tokens = 32, 3, 100, 16
    block = nn.TransformerEncoderLayer(h, nhead=4, dim_feedforward=4 * h)
    parts = [*[block] * layers, nn.Embedding(words, h), nn.Embedding(tokens, h), nn.LayerNorm(h)]
    expected = sum(p.numel() for part in parts for p in part.parameters())
    model = Transformer(layers, h, tokens, words)
    assert model.parameters == expected == total(model.table(), "weights")


def test_torchs_encoder_layer_counts_the_same():
    h, batch, tokens, words = 32, 3, 16, 100
    block = nn.TransformerEncoderLayer(h, nhead=4, dim_feedforward=4 * h, batch_first=True)
    head = nn.Linear(h, words, bias=False)
    x = torch.randn(batch, tokens, h, requires_grad=True)
    with FlopCounterMode(display=False) as count, torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        head(block(x)).sum().backward()
    assert Transformer(1, h, tokens, words).flops(batch, "nothing") == count.get_total_flops()


def test_bytes_are_what_must_be_read_and_written():
    fc6 = vgg16()[13]
    forward, backward, first = work.forward(fc6, 2), work.backward(fc6, 2), work.backward(fc6, 2, first=True)
    assert forward == (2 * 2 * 25088 * 4096, 4 * (2 * (25088 + 4096) + 25088 * 4096), 25088 * 4096)
    assert (backward.flops, backward.nbytes) == (2 * forward.flops, 2 * forward.nbytes)
    assert (first.flops, first.nbytes) == (forward.flops, forward.nbytes)


def test_a_backward_pass_takes_at_least_its_arithmetic_and_its_bytes():
    slow, layers = Device(1.0, 1e30), resnet50()
    flops = training_flops(layers, 4) - 2 * 4 * total(layers, "macs")
    assert work.backward_seconds(layers, 4, slow) == pytest.approx(seconds(flops, 0, slow))
    assert work.forward_seconds(layers, 4, Device(1e30, 1.0)) == sum(work.forward(layer, 4).nbytes for layer in layers)


@pytest.mark.parametrize("model", [[], [1, 2], 3, "resnet50", Transformer])
def test_what_is_no_model_is_refused_in_a_sentence(model):
    with pytest.raises(TypeError, match=r"it is a list of hpcdl.nn.networks.Layer, such as resnet50\(\), or a"):
        work.table(model)


def test_only_a_transformer_has_a_core_of_attention():
    with pytest.raises(ValueError, match="recompute is 'selective', which is for the attention of a Transformer"):
        training_flops(resnet50(), 1, "selective")
    with pytest.raises(ValueError, match="recompute is 'all'"):
        training_flops(resnet50(), 1, "all")
