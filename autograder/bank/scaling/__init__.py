"""Wrong answers to lab 12, scaling."""

from autograder.bank.scaling import fusion, utilization, work
