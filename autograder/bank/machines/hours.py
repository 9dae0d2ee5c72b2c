"""Wrong answers to `activation`, `pooling`, `batch_norm` and `hours`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("machines.hours")
ROWS = ("layers_without_products", "three_ways", "the_lectures_hours")
WAYS = ROWS[1:]

slip("an activation that only reads", "0, 2 * channels", "0, channels", fails=ROWS, says="Count the outputs, too")
slip("batch norm in one pass", "0, 3 * channels", "0, 2 * channels", fails=ROWS, says="The input is read twice")
slip("batch norm without weights", "return 2 * channels", "return 0", fails=ROWS, says="A scale and a shift")


@wrong("pooling that keeps its size", fails=ROWS, says="The output is smaller")
def pooling(channels, size, window):
    return 0, 0, 2 * channels * size**2


@wrong("pooling divided once", fails=ROWS, says="Rows and columns are both divided")
def pooling(channels, size, window):
    return 0, 0, channels * size**2 + channels * size**2 // window


@wrong("a MAC counted as one operation", fails=WAYS, says="A MAC is two operations")
def hours(layers, batch, images, epochs, peak, bandwidth, rate, itemsize=2):
    steps, arithmetic, at_roof = images * epochs / batch, 0.0, 0.0
    for i, (weights, macs, moved) in enumerate(layers):
        flops, nbytes = batch * macs, itemsize * (batch * moved + weights)
        arithmetic += (3 if i else 2) * flops / peak
        at_roof += (3 if i else 2) * roof(flops, nbytes, peak, bandwidth)[0]
    seconds = {"arithmetic": steps * arithmetic, "roof": steps * at_roof, "measured": images * epochs / rate}
    return {kind: value / 3600 for kind, value in seconds.items()}


@wrong("forward passes alone", fails=WAYS, says="three passes in all")
def hours(layers, batch, images, epochs, peak, bandwidth, rate, itemsize=2):
    steps, arithmetic, at_roof = images * epochs / batch, 0.0, 0.0
    for weights, macs, moved in layers:
        flops, nbytes = 2 * batch * macs, itemsize * (batch * moved + weights)
        arithmetic += flops / peak
        at_roof += roof(flops, nbytes, peak, bandwidth)[0]
    seconds = {"arithmetic": steps * arithmetic, "roof": steps * at_roof, "measured": images * epochs / rate}
    return {kind: value / 3600 for kind, value in seconds.items()}


@wrong("a gradient for the images", fails=WAYS, says="needs no gradient")
def hours(layers, batch, images, epochs, peak, bandwidth, rate, itemsize=2):
    steps, arithmetic, at_roof = images * epochs / batch, 0.0, 0.0
    for weights, macs, moved in layers:
        flops, nbytes = 2 * batch * macs, itemsize * (batch * moved + weights)
        arithmetic += 3 * flops / peak
        at_roof += 3 * roof(flops, nbytes, peak, bandwidth)[0]
    seconds = {"arithmetic": steps * arithmetic, "roof": steps * at_roof, "measured": images * epochs / rate}
    return {kind: value / 3600 for kind, value in seconds.items()}


@wrong("a step for each image", fails=WAYS, says="A step takes a whole batch")
def hours(layers, batch, images, epochs, peak, bandwidth, rate, itemsize=2):
    steps, arithmetic, at_roof = images * epochs, 0.0, 0.0
    for i, (weights, macs, moved) in enumerate(layers):
        flops, nbytes = 2 * batch * macs, itemsize * (batch * moved + weights)
        arithmetic += (3 if i else 2) * flops / peak
        at_roof += (3 if i else 2) * roof(flops, nbytes, peak, bandwidth)[0]
    seconds = {"arithmetic": steps * arithmetic, "roof": steps * at_roof, "measured": images * epochs / rate}
    return {kind: value / 3600 for kind, value in seconds.items()}


@wrong("one roof for the whole network", fails=WAYS, says="Each layer has its own roof")
def hours(layers, batch, images, epochs, peak, bandwidth, rate, itemsize=2):
    steps, arithmetic, memory = images * epochs / batch, 0.0, 0.0
    for i, (weights, macs, moved) in enumerate(layers):
        arithmetic += (3 if i else 2) * 2 * batch * macs / peak
        memory += (3 if i else 2) * itemsize * (batch * moved + weights) / bandwidth
    at_roof = max(arithmetic, memory)
    seconds = {"arithmetic": steps * arithmetic, "roof": steps * at_roof, "measured": images * epochs / rate}
    return {kind: value / 3600 for kind, value in seconds.items()}


@wrong("seconds", fails=WAYS, says="Those are seconds")
def hours(layers, batch, images, epochs, peak, bandwidth, rate, itemsize=2):
    steps, arithmetic, at_roof = images * epochs / batch, 0.0, 0.0
    for i, (weights, macs, moved) in enumerate(layers):
        flops, nbytes = 2 * batch * macs, itemsize * (batch * moved + weights)
        arithmetic += (3 if i else 2) * flops / peak
        at_roof += (3 if i else 2) * roof(flops, nbytes, peak, bandwidth)[0]
    return {"arithmetic": steps * arithmetic, "roof": steps * at_roof, "measured": images * epochs / rate}


slip(
    "every layer that equals the first counts as the first",
    "in enumerate(layers):",
    "in ((layers.index(layer), layer) for layer in layers):",
    fails=" ".join(WAYS),
    says="A later layer may equal the first",
)
slip("always float32", "itemsize * (batch", "4 * (batch", fails=" ".join(WAYS), says="`itemsize` bytes")
slip("one epoch measured", "images * epochs / rate", "images / rate", fails=" ".join(WAYS), says=": measured")
