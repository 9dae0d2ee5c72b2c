"""Wrong answers to `backpropagate_error`."""

from autograder.bank.backprop.later import BACKPROP, TRAIN
from autograder.bank.slips import answers_to
from hpcdl.nn.mlp import sigma, sigma_prime

wrong, slip = answers_to("backprop.backpropagate_error")

BACK = ("one_layer_back", "a_batch_one_layer_back", "all_the_way_back")


@wrong("forgets σ'", fails=(*BACK, *BACKPROP, *TRAIN, "backprop.leaves_parameters_alone"), says="multiply by the slope")
def backpropagate_error(delta, w_next, z):
    return delta @ w_next


@wrong("σ for σ'", fails=(*BACK, *BACKPROP, *TRAIN, "backprop.leaves_parameters_alone"), says="σ(z) instead of σ'(z)")
def backpropagate_error(delta, w_next, z):
    return (delta @ w_next) * sigma(z)


@wrong(
    "not transposed", fails=(*BACK, *BACKPROP, "backprop.leaves_parameters_alone", *TRAIN), says="W is not transposed"
)
def backpropagate_error(delta, w_next, z):
    return (delta @ w_next.T) * sigma_prime(z)


slip(
    "writes the slopes into z",
    "(delta @ w_next) * sigma_prime(z)",
    "z.copy_(sigma_prime(z)) * (delta @ w_next)",
    fails="a_batch_one_layer_back",
    says="changed its argument z",
)
