"""Wrong answers to `holds` and `which`."""

from functools import partial

from autograder.bank.slips import slip

slip = partial(slip, "frameworks.which_when")
CHOICE = "the_fastest_that_fits ranks_that_do_not_divide"
ALL = f"bytes_of_a_rank {CHOICE}"
ALONE, KEPT = ' / (1 if way == "DDP" else ranks)', "return weights + layers"
POSSIBLE, FITS = "divided % ranks == 0", "holds(way, model, ranks) <= budget"
FASTEST = "min(found, key=found.get, default=None)"

slip("no optimizer states", "= 16 * Transformer", "= 4 * Transformer", fails=ALL, says="Adam's states 12")
slip("DDP divides the weights", ALONE, " / ranks", fails=ALL, says="DDP copies weights")
for mistake, way, says in (
    ("FSDP2 divides the activations", "FSDP2", "not the activations"),
    ("a pipeline with one sample in flight", "pipeline", "the first one holds p samples"),
):
    divided = f'layers = layers / ranks if way == "{way}" else layers\n    {KEPT}'
    slip(mistake, KEPT, divided, fails=ALL, says=says)
slip(
    "tensor parallelism divides all activations",
    *("(10 + 24 / t", "(10 / t + 24 / t"),
    fails=ALL,
    says="keeps 10 whole on each rank",
)
slip("no activations", KEPT, f"return weights\n    {KEPT}", fails=ALL, says="The activations are missing")
slip("fastest without a look at memory", f" and {FITS}", "", fails=CHOICE, says="a rank holds")
slip("the first way that fits", FASTEST, "next(iter(found), None)", fails=CHOICE, says="it fits, but is slower")
slip(
    "the way with the fewest bytes",
    *(FASTEST, "min(found, key=lambda way: holds(way, model, ranks), default=None)"),
    fails=CHOICE,
    says="it fits, but is slower",
)
slip("ways that are not possible", f"{POSSIBLE} and ", "", fails=CHOICE, says="is not possible")
slip("FSDP2 if nothing fits", "default=None", 'default="FSDP2"', fails=CHOICE, says="expected None; ")
slip("only the batch must be divided", POSSIBLE, "batch % ranks == 0", fails=CHOICE, says="is not possible")
slip("less than the budget", "<= budget", "< budget", fails=CHOICE, says="A way fits")
