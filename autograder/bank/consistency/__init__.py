"""Wrong answers to lab 09, consistency."""

from autograder.bank.consistency import adam, clocks, delay, downpour, hogwild, sandblaster, server
