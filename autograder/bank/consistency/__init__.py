"""Wrong answers to lab `consistency`."""

from autograder.bank.consistency import adam, clocks, delay, downpour, hogwild, sandblaster, server
