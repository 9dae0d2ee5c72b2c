"""Wrong answers to lab 09, consistency."""

from autograder.bank.consistency import clocks, server
