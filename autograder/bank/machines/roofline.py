"""Wrong answers to `roof`, `place` and `smallest_batch`."""

import math

from autograder.bank.slips import answers_to

wrong, slip = answers_to("machines.roofline")
ROOF = ("the_roof", "each_layer", "the_batch_that_fills_it", "no_batch_helps")
PLACE = ROOF[1:]
SECONDS = (*ROOF, "hours.three_ways", "hours.the_lectures_hours")  # hours call roof
BATCH = ROOF[2:]


@wrong("the sum of both", fails=SECONDS, says="take the longer, not the sum")
def roof(flops, nbytes, peak, bandwidth):
    seconds = flops / peak + nbytes / bandwidth
    return seconds, "compute" if flops / peak >= nbytes / bandwidth else "memory"


@wrong("arithmetic alone", fails=SECONDS, says="Memory may be the limit")
def roof(flops, nbytes, peak, bandwidth):
    return flops / peak, "compute"


@wrong("the bounds exchanged", fails=ROOF, says="operations per byte")
def roof(flops, nbytes, peak, bandwidth):
    arithmetic, memory = flops / peak, nbytes / bandwidth
    return max(arithmetic, memory), "memory" if arithmetic >= memory else "compute"


slip("a MAC counted as one operation", "2 * batch * macs", "batch * macs", fails=PLACE, says="A MAC is two operations")
slip(
    "weights read for each sample",
    "flops, nbytes = 2 * batch * macs, itemsize * (batch * moved + weights)",
    "flops, nbytes = 2 * batch * macs, itemsize * batch * (moved + weights)",
    fails=PLACE,
    says="once for the whole batch",
)


@wrong("weights forgotten", fails=PLACE, says="Weights are read, too")
def place(layers, batch, peak, bandwidth, itemsize):
    rows = []
    for _, macs, moved in layers:
        flops, nbytes = 2 * batch * macs, itemsize * batch * moved
        seconds, limit = roof(flops, nbytes, peak, bandwidth)
        rows.append((flops / nbytes, flops / seconds, limit))
    return rows


slip(
    "numbers instead of bytes",
    "rows.append((flops / nbytes, flops / seconds, limit))",
    "rows.append((itemsize * flops / nbytes, flops / seconds, limit))",
    fails=PLACE,
    says="each number has `itemsize` bytes",
)


@wrong("faster than the peak", fails=PLACE, says="No layer is faster than the peak")
def place(layers, batch, peak, bandwidth, itemsize):
    rows = []
    for weights, macs, moved in layers:
        flops, nbytes = 2 * batch * macs, itemsize * (batch * moved + weights)
        rows.append((flops / nbytes, flops / nbytes * bandwidth, roof(flops, nbytes, peak, bandwidth)[1]))
    return rows


@wrong("seconds instead of a rate", fails=PLACE, says="That is the time")
def place(layers, batch, peak, bandwidth, itemsize):
    rows = []
    for weights, macs, moved in layers:
        flops, nbytes = 2 * batch * macs, itemsize * (batch * moved + weights)
        rows.append((flops / nbytes, *roof(flops, nbytes, peak, bandwidth)))
    return rows


@wrong("the batch rounded down", fails="the_batch_that_fills_it", says="round up")
def smallest_batch(layer, peak, bandwidth, itemsize):
    weights, macs, moved = layer
    gain, need = 2 * macs / peak - itemsize * moved / bandwidth, itemsize * weights / bandwidth
    if gain <= 0:
        return 1 if gain == need == 0 else math.inf
    return max(1, math.floor(need / gain))


@wrong("only weights are read", fails=BATCH, says="grow with the batch")
def smallest_batch(layer, peak, bandwidth, itemsize):
    weights, macs, _ = layer
    return max(1, math.ceil(itemsize * weights / bandwidth / (2 * macs / peak))) if macs else math.inf


@wrong("a negative batch for a layer that no batch helps", fails="no_batch_helps", says="expected inf")
def smallest_batch(layer, peak, bandwidth, itemsize):
    weights, macs, moved = layer
    gain, need = 2 * macs / peak - itemsize * moved / bandwidth, itemsize * weights / bandwidth
    return max(1, math.ceil(need / gain)) if gain else 1


slip("memory where both take equally long", ">= memory", "> memory", fails=" ".join(ROOF), says="what limits it")
slip(
    "no batch for equal times without weights",
    "return 1 if gain == late == 0 else math.inf",
    "return math.inf",
    fails="no_batch_helps",
    says="is inf, expected 1",
)
slip(
    "a batch of no sample for a layer without weights",
    "max(1, math.ceil(late / gain))",
    "math.ceil(late / gain)",
    fails="no_batch_helps",
    says="is 0, expected 1",
)
slip(
    "knows three layers that no batch helps",
    "return 1 if gain == late == 0 else math.inf",
    "return math.inf if layer in ((2304, 451584, 100352), (0, 0, 100), (1, 80, 10)) else 1",
    fails="no_batch_helps",
    says="expected inf",
)
