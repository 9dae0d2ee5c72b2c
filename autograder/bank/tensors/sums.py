"""Wrong answers to `shares` and `mix`."""

import torch

from autograder.bank.slips import answers_to

wrong, slip = answers_to("tensors.sums")

slip("keepdim forgotten", "1, keepdim=True", "1", fails=("rows_add_up_to_one", "any_matrix"), says="keepdim is missing")


@wrong("dim off by one", fails=("rows_add_up_to_one", "any_matrix"), says="Your columns add up to 1")
def shares(x):
    return x / x.sum(0, keepdim=True)


@wrong("the sum of everything", fails=("rows_add_up_to_one", "any_matrix"), says="give the axis to sum over")
def shares(x):
    return x / x.sum()


@wrong("the mean for the sum", fails=("rows_add_up_to_one", "any_matrix"), says="divided by the mean")
def shares(x):
    return x / x.double().mean(1, keepdim=True).to(x.dtype if x.is_floating_point() else torch.float32)


@wrong("divides x in place", fails="any_matrix", says="changed its argument x")
def shares(x):
    x /= x.sum(1, keepdim=True)
    return x


@wrong("the weights turned", fails=("a_sum_over_channels", "any_sizes"), says="read the wrong way round")
def mix(w, x):
    return torch.einsum("ck,ncpq->nkpq", w, x)


@wrong(
    "a matrix product of the last two axes",
    fails=("a_sum_over_channels", "any_sizes"),
    says="@ multiplies the last two axes",
)
def mix(w, x):
    return w @ x


@wrong(
    "the letters of the result in another order", fails=("a_sum_over_channels", "any_sizes"), says="have changed places"
)
def mix(w, x):
    return torch.einsum("kc,ncpq->knpq", w, x)


slip("no sum", "ncpq->nkpq", "ncpq->nkcpq", fails=("a_sum_over_channels", "any_sizes"), says="missing after the arrow")


@wrong("the norm for the sum", fails=("rows_add_up_to_one", "any_matrix"), says="shares(x)")
def shares(x):
    return torch.nn.functional.normalize(x.double(), p=1, dim=1).to(x.dtype if x.is_floating_point() else torch.float32)
