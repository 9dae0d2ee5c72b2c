"""Wrong answers to `volume` and `one_weird_trick`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("model_parallel.one_weird_trick")
VOLUMES = ("by_the_batch", "by_the_network")
PLANS = ("least_of_all_plans", "alexnet_and_vgg")


@wrong("gathers and forgets the way back", fails=("by_the_network", *PLANS), says="That is half: backward")
def volume(weights, inputs, batch, p, how):
    n = 4 * (weights if how == "data" else batch * inputs)
    return (2 if how == "data" else 1) * (p - 1) / p * n


@wrong("numbers, not bytes", fails=VOLUMES, says="A number has 4 bytes")
def volume(weights, inputs, batch, p, how):
    return 2 * (p - 1) / p * (weights if how == "data" else batch * inputs)


@wrong("its own part travels, too", fails=VOLUMES, says="Each rank keeps its own part")
def volume(weights, inputs, batch, p, how):
    return 2 * 4 * (weights if how == "data" else batch * inputs)


@wrong("all ranks together", fails=VOLUMES, says="That is what all ranks send together")
def volume(weights, inputs, batch, p, how):
    return 2 * (p - 1) * 4 * (weights if how == "data" else batch * inputs)


@wrong("the inputs of one sample", fails=("by_the_network", *PLANS), says="Count the whole batch")
def volume(weights, inputs, batch, p, how):
    return 2 * (p - 1) / p * 4 * (weights if how == "data" else inputs)


@wrong("the inputs of a rank's samples", fails=("by_the_network", *PLANS), says="not only of their part")
def volume(weights, inputs, batch, p, how):
    return 2 * (p - 1) / p * 4 * (weights if how == "data" else batch / p * inputs)


@wrong("data and model exchanged", fails=(*VOLUMES, *PLANS), says="That is the volume of the other cut")
def volume(weights, inputs, batch, p, how):
    return 2 * (p - 1) / p * 4 * (weights if how == "model" else batch * inputs)


@wrong("the whole network in one way", fails=PLANS, says="You cut all layers by")
def one_weird_trick(layers, batch, p):
    data, model = (sum(volume(*layer, batch, p, how) for layer in layers) for how in ("data", "model"))
    return ["data" if data < model else "model"] * len(layers)


@wrong("the dearer one", fails=PLANS, says="This plan sends the most")
def one_weird_trick(layers, batch, p):
    return [max(("data", "model"), key=lambda how: volume(*layer, batch, p, how)) for layer in layers]


@wrong("sixty samples in any batch", fails=("by_the_network", *PLANS), says="volume(")
def volume(weights, inputs, batch, p, how):
    return 2 * (p - 1) / p * 4 * (weights if how == "data" else 60 * inputs)


slip("batch on each rank", "batch, p, how", "batch * p, p, how", fails=PLANS, says="if each rank has `batch` samples")


@wrong("every other layer of six", fails=PLANS, says="Of all plans with data or model for each layer")
def one_weird_trick(layers, batch, p):
    if len(layers) == 6:
        return ["data", "model"] * 3
    return [min(("data", "model"), key=lambda how: volume(*layer, batch, p, how)) for layer in layers]
