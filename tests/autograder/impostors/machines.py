"""Lab `machines` answered by others."""

LIBRARY = {
    "work": """
from hpcdl.cost import work as librarys
from hpcdl.nn.networks import Layer

def counted(weights, macs, moved):
    found = librarys.forward(Layer("layer", weights, macs, moved, 0), 1)
    return found.parameters, int(found.flops) // 2, moved

def conv(channels, filters, kernel, size, groups=1):
    weights = filters * (channels // groups) * kernel**2
    return counted(weights, weights * size**2, (channels + filters) * size**2)

def linear(tokens, inputs, outputs):
    return counted(inputs * outputs, tokens * inputs * outputs, tokens * (inputs + outputs))

def attention(tokens, hidden):
    return counted(0, 2 * tokens**2 * hidden, 4 * tokens * hidden)

def work(layers, batch, again=False):
    rows = []
    for i, (weights, macs, moved) in enumerate(layers):
        layer = Layer("layer", weights, macs, moved, 0)
        forward, backward = librarys.forward(layer, batch), librarys.backward(layer, batch, first=not i)
        rows.append((forward.flops, backward.flops + again * forward.flops, forward.nbytes))
    return rows
""",
    "utilization": """
from hpcdl.cost import training
from hpcdl.cost.work import Transformer

def transformer_flops(layers, hidden, sequence, vocabulary, batch):
    return Transformer(layers, hidden, sequence, vocabulary).flops(batch, "nothing")

def utilization(flops, again, seconds, gpus, peak):
    available = seconds * gpus * peak
    return training.efficiency(available, flops), training.efficiency(available, flops + again)

def train_seconds(parameters, tokens, gpus, peak, share, again=False):
    return training.train_seconds(parameters, tokens, gpus, peak * share, recompute="full" if again else "nothing")
""",
    "roofline": """
from hpcdl.cost import roofline

def roof(flops, nbytes, peak, bandwidth):
    device = roofline.Device(peak, bandwidth)
    return roofline.seconds(flops, nbytes, device), roofline.bound(flops, nbytes, device)

def place(layers, batch, peak, bandwidth, itemsize):
    device, rows = roofline.Device(peak, bandwidth), []
    for weights, macs, moved in layers:
        flops, nbytes = 2 * batch * macs, itemsize * (batch * moved + weights)
        rate = roofline.attainable(flops / nbytes, device)
        rows.append((flops / nbytes, rate, roofline.bound(flops, nbytes, device)))
    return rows

def smallest_batch(layer, peak, bandwidth, itemsize):
    device, (weights, macs, moved) = roofline.Device(peak, bandwidth), layer
    for batch in range(1, 100_000):
        if roofline.bound(2 * batch * macs, itemsize * (batch * moved + weights), device) == "compute":
            return batch
    return float("inf")
""",
    "hours": """
from hpcdl.cost import roofline

def hours(layers, batch, images, epochs, peak, bandwidth, rate, itemsize=2):
    device, steps, flat, high = roofline.Device(peak, bandwidth), images * epochs / batch, 0.0, 0.0
    for i, (weights, macs, moved) in enumerate(layers):
        flops, nbytes = 2 * batch * macs, itemsize * (batch * moved + weights)
        flat += (3 if i else 2) * roofline.seconds(flops, 0, device)
        high += (3 if i else 2) * roofline.seconds(flops, nbytes, device)
    return {"arithmetic": steps * flat / 3600, "roof": steps * high / 3600, "measured": images * epochs / rate / 3600}

def activation(channels, size):
    return 0, int(roofline.seconds(0, 0, roofline.Device(1, 1))), 2 * channels * size**2
""",
}

NOT_IN_LIBRARY = {"profile": "the library makes traces, and finds no stalls in them"}

FRAMEWORKS = {
    "work": """
import torch
from torch.utils.flop_counter import FlopCounterMode

def macs(f, *shapes):
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        f(*(torch.empty(shape) for shape in shapes))
    return counter.get_total_flops() // 2

def conv(channels, filters, kernel, size, groups=1):
    weight = (filters // groups, channels // groups, kernel, kernel)
    one = macs(lambda x, w: torch.conv2d(x, w, padding="same"), (1, channels // groups, size, size), weight)
    return filters * (channels // groups) * kernel**2, groups * one, (channels + filters) * size**2

def linear(tokens, inputs, outputs):
    return inputs * outputs, macs(torch.mm, (tokens, inputs), (inputs, outputs)), tokens * (inputs + outputs)

def attention(tokens, hidden):
    each = tokens, hidden
    return 0, macs(lambda q, k, v: (q @ k.T) @ v, each, each, each), 4 * tokens * hidden

def work(layers, batch, again=False):
    rows = []
    for i, (weights, count, moved) in enumerate(layers):
        forward = 2 * macs(torch.mm, (batch, count), (count, 1))
        rows.append((forward, forward * (2 if i else 1) + again * forward, 4 * (batch * moved + weights)))
    return rows
""",
}

NOT_IN_FRAMEWORKS = {
    "utilization": "no framework counts from a transformer's sizes alone",
    "roofline": "no framework places a layer under a roof",
    "hours": "no framework predicts the hours of a training",
    "profile": "torch.profiler writes traces, and sums up operators, but names no stall",
}
