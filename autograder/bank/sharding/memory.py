"""Wrong answers to `memory`, `largest` and `activations`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("sharding.memory")
STATES = ("states_gradients_weights", "the_largest_that_fits")
KEPT = ("what_a_layer_keeps", "over_ranks")


@wrong("8 bytes of states", fails=STATES, says="the weight again in float32")
def memory(parameters, p, stage):
    divided, whole = (8, 2, 2)[:stage], (8, 2, 2)[stage:]
    return parameters * (sum(whole) + sum(divided) / p)


@wrong("everything is divided", fails=STATES, says="You divide everything at every stage")
def memory(parameters, p, stage):
    return 16 * parameters / (p if stage else 1)


@wrong("weights in float32", fails=STATES, says="Weights and gradients have 16 bits here")
def memory(parameters, p, stage):
    divided, whole = (12, 4, 4)[:stage], (12, 4, 4)[stage:]
    return parameters * (sum(whole) + sum(divided) / p)


@wrong("stages counted from 0", fails=STATES, says="one stage too far")
def memory(parameters, p, stage):
    divided, whole = (12, 2, 2)[: stage + 1], (12, 2, 2)[stage + 1 :]
    return parameters * (sum(whole) + sum(divided) / p)


@wrong("all ranks together", fails=STATES, says="what all ranks hold together")
def memory(parameters, p, stage):
    divided, whole = (12, 2, 2)[:stage], (12, 2, 2)[stage:]
    return parameters * (p * sum(whole) + sum(divided))


@wrong("memory of all ranks for the largest", fails="the_largest_that_fits", says="only what the stage divides")
def largest(nbytes, p, stage):
    return p * nbytes / 16


@wrong("no scores", fails=KEPT, says="The scores of attention are missing")
def activations(sequence, batch, hidden, heads, recompute="nothing", t=1, cut=False):
    tokens, parts = sequence * batch * hidden, t if cut else 1
    if recompute == "full":
        return 2 * tokens / parts
    return 10 * tokens / parts + 24 * tokens / t


slip("scores of one head", "5 * heads * batch", "5 * batch", fails=KEPT, says="Every head has its own scores")


@wrong("selective keeps the scores", fails=KEPT, says="Selective recomputation drops the scores")
def activations(sequence, batch, hidden, heads, recompute="nothing", t=1, cut=False):
    tokens, parts = sequence * batch * hidden, t if cut else 1
    if recompute == "full":
        return 2 * tokens / parts
    return 10 * tokens / parts + (24 * tokens + 5 * heads * batch * sequence**2) / t


@wrong("normalizations divided by tensor parallelism", fails="over_ranks", says="unless the sequence is cut")
def activations(sequence, batch, hidden, heads, recompute="nothing", t=1, cut=False):
    tokens = sequence * batch * hidden
    if recompute == "full":
        return 2 * tokens / (t if cut else 1)
    scores = 5 * heads * batch * sequence**2 if recompute == "nothing" else 0
    return (34 * tokens + scores) / t


@wrong("whole parameters", fails="the_largest_that_fits", says="That is rounded down")
def largest(nbytes, p, stage):
    return nbytes // memory(1, p, stage)


slip(
    "tensor parallelism keeps the scores whole",
    "(24 * tokens + scores) / t",
    "24 * tokens / t + scores",
    fails="over_ranks",
    says="Tensor parallelism divides the scores of attention, too",
)
slip("weights first", "(12, 2, 2)", "(2, 2, 12)", fails=STATES, says="Stage 1 divides the states")
