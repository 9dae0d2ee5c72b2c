"""Wrong answers to lab 11, sharding."""

from autograder.bank.sharding import clip, memory, sharded, sharded_adam
