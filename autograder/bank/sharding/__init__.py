"""Wrong answers to lab `sharding`."""

from autograder.bank.sharding import checkpointed, clip, memory, offload, save_load, sharded, sharded_adam
