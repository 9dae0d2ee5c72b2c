"""Wrong answers to `make_buckets`."""

from autograder.bank.own_stack.later import AFTER_THE_LOSS
from autograder.bank.slips import answers_to

wrong, slip = answers_to("own_stack.buckets")
ALL = ("in_reverse", "full_up_to_the_cap", "a_parameter_larger_than_the_cap", "extreme_caps", "the_same_on_every_rank")
ONE_MESSAGE = "step.one_message_a_bucket"

slip("forwards", "reversed(list(params)):", "params:", fails=ALL, says="This is the order of the forward pass")
slip(
    "counts elements",
    "if filled + param.nbytes > cap_bytes:",
    "if filled + param.numel() > cap_bytes:",
    "filled += param.nbytes",
    "filled += param.numel()",
    fails=("full_up_to_the_cap", "a_parameter_larger_than_the_cap", ONE_MESSAGE),
    says="cap_bytes counts bytes",
)
slip(
    "begins with an empty bucket",
    "buckets, filled = [], cap_bytes + 1",
    "buckets, filled = [[]], 0",
    fails=("a_parameter_larger_than_the_cap", "extreme_caps"),
    says="an empty one",
)


@wrong(
    "a bucket for each",
    fails=("full_up_to_the_cap", "a_parameter_larger_than_the_cap", "extreme_caps", ONE_MESSAGE),
    says="Every parameter has its own bucket",
)
def make_buckets(params, cap_bytes):
    return [[param] for param in reversed(list(params))]


slip("params gone through backwards", "list(params)", "params", fails="extreme_caps", says="not reversible")
slip("exactly full is too full", "> cap_bytes:", ">= cap_bytes:", fails="full_up_to_the_cap", says="cap")
slip(
    "copies of the tensors",
    "append(param)",
    "append(param.clone())",
    fails=" ".join((*ALL, *AFTER_THE_LOSS)),
    says="not one of the parameters",
)
