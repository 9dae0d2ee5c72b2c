"""Wrong answers to `plan`."""

from autograder.bank.slips import answers_to

wrong, slip = answers_to("frameworks.plan")
WHOLE = "a_share_of_each_matrix"
SUMS = "two_sums_in_a_block"


@wrong("columns everywhere, and gathered", fails=SUMS, says="of them all_gather")
def plan(model):
    from torch.distributed.tensor import Replicate

    names = ("attention.q", "attention.k", "attention.v", "attention.out", "mlp.up", "mlp.down")
    return {
        f"blocks.{i}.{name}": ColwiseParallel(output_layouts=Replicate())
        for i in range(len(model.blocks))
        for name in names
    }


@wrong("the MLP alone", fails=(WHOLE, SUMS), says="attention.q")
def plan(model):
    styles = {}
    for i in range(len(model.blocks)):
        styles[f"blocks.{i}.mlp.up"], styles[f"blocks.{i}.mlp.down"] = ColwiseParallel(), RowwiseParallel()
    return styles


@wrong("the first block alone", fails=(WHOLE, SUMS), says="blocks.1.attention.q")
def plan(model):
    styles = {f"blocks.0.{name}": ColwiseParallel() for name in ("attention.q", "attention.k", "attention.v", "mlp.up")}
    return styles | {f"blocks.0.{name}": RowwiseParallel() for name in ("attention.out", "mlp.down")}


@wrong("an empty plan", fails=("the_same_numbers", WHOLE, SUMS), says="12 of 12 matrices are whole")
def plan(model):
    return {}


@wrong("rows everywhere", fails=SUMS, says="are enough. Columns first")
def plan(model):
    from torch.distributed.tensor import Replicate

    names = ("attention.q", "attention.k", "attention.v", "attention.out", "mlp.up", "mlp.down")
    return {
        f"blocks.{i}.{name}": RowwiseParallel(input_layouts=Replicate())
        for i in range(len(model.blocks))
        for name in names
    }


@wrong("columns, columns without a gather", fails=("the_same_numbers", WHOLE, SUMS), says="RowwiseParallel")
def plan(model):
    names = ("attention.q", "attention.k", "attention.v", "attention.out", "mlp.up", "mlp.down")
    return {f"blocks.{i}.{name}": ColwiseParallel() for i in range(len(model.blocks)) for name in names}


slip(
    "no return",
    "return",
    "styles =",
    fails=("the_same_numbers", WHOLE, SUMS),
    says="plan(model) is None, expected a dict",
)
slip(
    "a name that is misspelt",
    "attention.q",
    "attn.q",
    fails=("the_same_numbers", WHOLE, SUMS),
    says="Did you mean 'blocks.0.attention.q'?",
)
slip(
    "two blocks of any number",
    "range(len(model.blocks))",
    "range(2)",
    fails=(WHOLE, SUMS),
    says="holds all of blocks.2.attention.q",
)
slip(
    "eight blocks at most",
    "range(len(model.blocks))",
    "range(min(8, len(model.blocks)))",
    fails=WHOLE,
    says="holds all of blocks.8.attention.q",
)
