"""Wrong answers to lab `machines`."""

from autograder.bank.machines import hours, roofline, utilization, work
