"""Wrong answers to `output_error`."""

import torch

from autograder.bank.backprop.later import BACKPROP
from autograder.bank.slips import answers_to
from hpcdl.nn.mlp import sigma, sigma_prime

wrong, slip = answers_to("backprop.output_error")

OUTPUT = ("error_of_the_output", "error_of_a_batch", "error_far_out")


@wrong("forgets σ'", fails=(*OUTPUT, *BACKPROP, "backprop.leaves_parameters_alone"), says="σ'(z) is missing")
def output_error(a, y, z):
    return a - y


@wrong("y − a for a − y", fails=(*OUTPUT, *BACKPROP, "backprop.leaves_parameters_alone"), says="The sign is wrong")
def output_error(a, y, z):
    return (y - a) * sigma_prime(z)


@wrong("σ for σ'", fails=(*OUTPUT, *BACKPROP, "backprop.leaves_parameters_alone"), says="instead of its derivative")
def output_error(a, y, z):
    return (a - y) * sigma(z)


@wrong("factor 2", fails=(*OUTPUT, *BACKPROP, "backprop.leaves_parameters_alone"), says="a factor 2 too much")
def output_error(a, y, z):
    return 2 * (a - y) * sigma_prime(z)


@wrong(
    "σ' at 0 alone", fails=(*OUTPUT, *BACKPROP, "backprop.leaves_parameters_alone"), says="one number for each neuron"
)
def output_error(a, y, z):
    return (a - y) * (z == 0) / 4


@wrong("σ' overflows", fails="error_far_out", says="exp(z) alone overflows")
def output_error(a, y, z):
    return (a - y) * torch.exp(z) / (1 + torch.exp(z)) ** 2


slip("subtracts from a itself", "(a - y)", "a.sub_(y)", fails="error_of_a_batch", says="changed its argument a")
slip(
    "adds up the layer",
    "(a - y) * sigma_prime(z)",
    "((a - y) * sigma_prime(z)).sum()",
    fails=" ".join((*OUTPUT, *BACKPROP, "backprop.leaves_parameters_alone")),
    says="You took the sum",
)
