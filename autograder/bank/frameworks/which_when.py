"""Wrong answers to `holds` and `which`."""

from autograder.authoring import wrong

HERE = "frameworks.which_when"
ALL = ("bytes_of_a_rank", "the_fastest_that_fits", "ranks_that_do_not_divide")
CHOICE = ALL[1:]


@wrong(HERE, "no optimizer states", fails=ALL, says="Adam's states 12")
def holds(way, model, ranks):
    layers, hidden, sequence, _, heads = model
    weights = 4 * Transformer(*model).parameters / (1 if way == "DDP" else ranks)
    t = ranks if way == "tensor" else 1
    return weights + layers * sequence * hidden * (10 + 24 / t + 5 * heads * sequence / (hidden * t))


@wrong(HERE, "DDP divides the weights", fails=ALL, says="DDP copies weights")
def holds(way, model, ranks):
    layers, hidden, sequence, _, heads = model
    weights = 16 * Transformer(*model).parameters / ranks
    t = ranks if way == "tensor" else 1
    return weights + layers * sequence * hidden * (10 + 24 / t + 5 * heads * sequence / (hidden * t))


@wrong(HERE, "FSDP2 divides the activations", fails=ALL, says="not the activations")
def holds(way, model, ranks):
    layers, hidden, sequence, _, heads = model
    weights = 16 * Transformer(*model).parameters / (1 if way == "DDP" else ranks)
    t = ranks if way == "tensor" else 1
    layers = layers / ranks if way == "FSDP2" else layers
    return weights + layers * sequence * hidden * (10 + 24 / t + 5 * heads * sequence / (hidden * t))


@wrong(HERE, "tensor parallelism divides all activations", fails=ALL, says="keeps 10 whole on each rank")
def holds(way, model, ranks):
    layers, hidden, sequence, _, heads = model
    weights = 16 * Transformer(*model).parameters / (1 if way == "DDP" else ranks)
    t = ranks if way == "tensor" else 1
    return weights + layers * sequence * hidden * (10 / t + 24 / t + 5 * heads * sequence / (hidden * t))


@wrong(HERE, "a pipeline with one sample in flight", fails=ALL, says="the first one holds p samples")
def holds(way, model, ranks):
    layers, hidden, sequence, _, heads = model
    weights = 16 * Transformer(*model).parameters / (1 if way == "DDP" else ranks)
    t = ranks if way == "tensor" else 1
    layers = layers / ranks if way == "pipeline" else layers
    return weights + layers * sequence * hidden * (10 + 24 / t + 5 * heads * sequence / (hidden * t))


@wrong(HERE, "no activations", fails=ALL, says="The activations are missing")
def holds(way, model, ranks):
    return 16 * Transformer(*model).parameters / (1 if way == "DDP" else ranks)


@wrong(HERE, "fastest without a look at memory", fails=CHOICE, says="a rank holds")
def which(model, machine, ranks, batch, budget):
    cuts = {
        "DDP": (batch, {"data": ranks}),
        "FSDP2": (batch, {"data": ranks, "zero": 3}),
        "tensor": (model[4], {"tensor": ranks}),
        "pipeline": (model[0], {"pipeline": ranks}),
    }
    found = {}
    for way, (divided, cut) in cuts.items():
        if divided % ranks == 0:
            found[way] = seconds(model, machine, batch, **cut)
    return min(found, key=found.get, default=None)


@wrong(HERE, "the first way that fits", fails=CHOICE, says="it fits, but is slower")
def which(model, machine, ranks, batch, budget):
    cuts = {
        "DDP": (batch, {"data": ranks}),
        "FSDP2": (batch, {"data": ranks, "zero": 3}),
        "tensor": (model[4], {"tensor": ranks}),
        "pipeline": (model[0], {"pipeline": ranks}),
    }
    found = {}
    for way, (divided, cut) in cuts.items():
        if divided % ranks == 0 and holds(way, model, ranks) <= budget:
            found[way] = seconds(model, machine, batch, **cut)
    return next(iter(found), None)


@wrong(HERE, "the way with the fewest bytes", fails=CHOICE, says="it fits, but is slower")
def which(model, machine, ranks, batch, budget):
    cuts = {
        "DDP": (batch, {"data": ranks}),
        "FSDP2": (batch, {"data": ranks, "zero": 3}),
        "tensor": (model[4], {"tensor": ranks}),
        "pipeline": (model[0], {"pipeline": ranks}),
    }
    found = {}
    for way, (divided, cut) in cuts.items():
        if divided % ranks == 0 and holds(way, model, ranks) <= budget:
            found[way] = seconds(model, machine, batch, **cut)
    return min(found, key=lambda way: holds(way, model, ranks), default=None)


@wrong(HERE, "ways that are not possible", fails=CHOICE, says="is not possible")
def which(model, machine, ranks, batch, budget):
    cuts = {
        "DDP": (batch, {"data": ranks}),
        "FSDP2": (batch, {"data": ranks, "zero": 3}),
        "tensor": (model[4], {"tensor": ranks}),
        "pipeline": (model[0], {"pipeline": ranks}),
    }
    found = {}
    for way, (divided, cut) in cuts.items():
        if holds(way, model, ranks) <= budget:
            found[way] = seconds(model, machine, batch, **cut)
    return min(found, key=found.get, default=None)


@wrong(HERE, "FSDP2 if nothing fits", fails=CHOICE, says="expected None; ")
def which(model, machine, ranks, batch, budget):
    cuts = {
        "DDP": (batch, {"data": ranks}),
        "FSDP2": (batch, {"data": ranks, "zero": 3}),
        "tensor": (model[4], {"tensor": ranks}),
        "pipeline": (model[0], {"pipeline": ranks}),
    }
    found = {}
    for way, (divided, cut) in cuts.items():
        if divided % ranks == 0 and holds(way, model, ranks) <= budget:
            found[way] = seconds(model, machine, batch, **cut)
    return min(found, key=found.get, default="FSDP2")


@wrong(HERE, "only the batch must be divided", fails=CHOICE, says="is not possible")
def which(model, machine, ranks, batch, budget):
    cuts = {
        "DDP": (batch, {"data": ranks}),
        "FSDP2": (batch, {"data": ranks, "zero": 3}),
        "tensor": (model[4], {"tensor": ranks}),
        "pipeline": (model[0], {"pipeline": ranks}),
    }
    found = {}
    for way, (divided, cut) in cuts.items():
        if batch % ranks == 0 and holds(way, model, ranks) <= budget:
            found[way] = seconds(model, machine, batch, **cut)
    return min(found, key=found.get, default=None)
