"""Wrong answers to lab `consistency`."""

from autograder.bank.consistency import clocks, delay, gossip, server
