"""Wrong answers to lab 00, each with the checks it must fail and the words that name its mistake."""

from autograder.bank.tensors import (
    average_in_place,
    by_channel,
    cut,
    epochs,
    grads,
    pick,
    safe_ratio,
    stretch,
    sums,
    windows,
)
