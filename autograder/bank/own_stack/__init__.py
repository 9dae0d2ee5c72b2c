"""Wrong answers to lab `own_stack`."""

from autograder.bank.own_stack import buckets, convolution, momentum, ring, rounding, step, tape
