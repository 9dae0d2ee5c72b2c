"""Wrong answers to `transformer_flops`, `utilization` and `train_seconds`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("machines.utilization")
FLOPS, SHARES, SECONDS = "every_product", "printed_utilization", "seconds_to_the_end"


@wrong("only the forward pass", fails=FLOPS, says="three times in all")
def transformer_flops(layers, hidden, sequence, vocabulary, batch):
    tokens = batch * sequence
    return layers * (24 * tokens * hidden**2 + 4 * tokens * sequence * hidden) + 2 * tokens * hidden * vocabulary


@wrong("no attention", fails=FLOPS, says="Attention is missing")
def transformer_flops(layers, hidden, sequence, vocabulary, batch):
    tokens = batch * sequence
    return 3 * (layers * 24 * tokens * hidden**2 + 2 * tokens * hidden * vocabulary)


@wrong("half of attention", fails=FLOPS, says="Attention has two products")
def transformer_flops(layers, hidden, sequence, vocabulary, batch):
    tokens = batch * sequence
    return 3 * (layers * (24 * tokens * hidden**2 + 2 * tokens * sequence * hidden) + 2 * tokens * hidden * vocabulary)


@wrong("the embedding counted as a product", fails=FLOPS, says="The embedding only looks words up")
def transformer_flops(layers, hidden, sequence, vocabulary, batch):
    tokens = batch * sequence
    return 3 * (layers * (24 * tokens * hidden**2 + 4 * tokens * sequence * hidden) + 4 * tokens * hidden * vocabulary)


@wrong("six operations for each parameter", fails=FLOPS, says="Attention is missing")
def transformer_flops(layers, hidden, sequence, vocabulary, batch):
    return 6 * batch * sequence * (12 * layers * hidden**2 + hidden * vocabulary)


@wrong("what is done twice counted for the model", fails=SHARES, says="The model needs no operation twice")
def utilization(flops, again, seconds, gpus, peak):
    return (flops + again) / (seconds * gpus * peak), (flops + again) / (seconds * gpus * peak)


@wrong("the hardware's without what is done twice", fails=SHARES, says="include what is recomputed")
def utilization(flops, again, seconds, gpus, peak):
    return flops / (seconds * gpus * peak), flops / (seconds * gpus * peak)


@wrong("one GPU's peak", fails=SHARES, says="Divide by the peak of all GPUs")
def utilization(flops, again, seconds, gpus, peak):
    return flops / (seconds * peak), (flops + again) / (seconds * peak)


@wrong("percent", fails=SHARES, says="Return a share, not percent")
def utilization(flops, again, seconds, gpus, peak):
    return 100 * flops / (seconds * gpus * peak), 100 * (flops + again) / (seconds * gpus * peak)


@wrong("two operations for each parameter and token", fails=SECONDS, says="only the forward pass")
def train_seconds(parameters, tokens, gpus, peak, share, again=False):
    return 2 * parameters * tokens / (gpus * peak * share)


slip("nothing for what is computed again", "(8 if again else 6)", "6", fails=SECONDS, says="one more forward pass: 8")
slip("at the peak", "(gpus * peak * share)", "(gpus * peak)", fails=SECONDS, says="do not reach their peak")
slip(
    "recomputed even if again is False",
    "(8 if again else 6)",
    "8",
    fails="seconds_to_the_end",
    says="Without recomputation it is 6",
)
