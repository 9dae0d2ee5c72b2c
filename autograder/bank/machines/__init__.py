"""Wrong answers to lab `machines`."""

from autograder.bank.machines import hours, profile, roofline, utilization, work
