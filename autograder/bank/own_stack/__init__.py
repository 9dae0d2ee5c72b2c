"""Wrong answers to lab 14, own_stack."""

from autograder.bank.own_stack import buckets, convolution, momentum, ring, rounding, step, tape
