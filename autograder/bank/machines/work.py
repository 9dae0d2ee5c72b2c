"""Wrong answers to `conv`, `linear`, `attention` and `work`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("machines.work")
WORK = ("forward_and_backward", "once_more")


@wrong("groups forgotten", fails="convolutions", says="Each group has channels / groups of the inputs")
def conv(channels, filters, kernel, size, groups=1):
    weights = filters * channels * kernel**2
    return weights, weights * size**2, (channels + filters) * size**2


@wrong("filters divided by the groups as well", fails="convolutions", says="keep all filters")
def conv(channels, filters, kernel, size, groups=1):
    weights = (filters // groups) * (channels // groups) * kernel**2
    return weights, weights * size**2, (channels + filters) * size**2


@wrong("two for each MAC", fails="convolutions", says="work makes two operations of it")
def conv(channels, filters, kernel, size, groups=1):
    weights = filters * (channels // groups) * kernel**2
    return weights, 2 * weights * size**2, (channels + filters) * size**2


@wrong("weights that grow with the sequence", fails="products", says="The same weights serve all tokens")
def linear(tokens, inputs, outputs):
    weights = tokens * inputs * outputs
    return weights, weights, tokens * (inputs + outputs)


slip("the scores alone", "2 * tokens**2", "tokens**2", fails="products", says="Count two products: the scores")


@wrong("half of the scores for the mask", fails="products", says="A causal mask hides half of the scores")
def attention(tokens, hidden):
    return 0, tokens**2 * hidden // 2, 4 * tokens * hidden


@wrong("one operation for a MAC", fails=WORK, says="A multiply-accumulate is two operations")
def work(layers, batch, again=False):
    rows = []
    for i, (weights, macs, moved) in enumerate(layers):
        forward = batch * macs
        rows.append((forward, forward * (2 if i else 1) + again * forward, 4 * (batch * moved + weights)))
    return rows


@wrong("backward as long as forward", fails=WORK, says="Backward is two products")
def work(layers, batch, again=False):
    rows = []
    for weights, macs, moved in layers:
        forward = 2 * batch * macs
        rows.append((forward, forward + again * forward, 4 * (batch * moved + weights)))
    return rows


@wrong("a gradient of the data", fails=WORK, says="The first layer's inputs are data")
def work(layers, batch, again=False):
    rows = []
    for weights, macs, moved in layers:
        forward = 2 * batch * macs
        rows.append((forward, 2 * forward + again * forward, 4 * (batch * moved + weights)))
    return rows


@wrong("weights read for each sample", fails=WORK, says="The weights are read once for the whole batch")
def work(layers, batch, again=False):
    rows = []
    for i, (weights, macs, moved) in enumerate(layers):
        forward = 2 * batch * macs
        rows.append((forward, forward * (2 if i else 1) + again * forward, 4 * batch * (moved + weights)))
    return rows


@wrong("nothing computed again", fails="once_more", says="Recomputation is one more forward pass")
def work(layers, batch, again=False):
    rows = []
    for i, (weights, macs, moved) in enumerate(layers):
        forward = 2 * batch * macs
        rows.append((forward, forward * (2 if i else 1), 4 * (batch * moved + weights)))
    return rows


slip(
    "every layer that equals the first counts as the first",
    "in enumerate(layers):",
    "in ((layers.index(layer), layer) for layer in layers):",
    fails=" ".join(WORK),
    says="Backward is two products",
)
