"""Wrong answers to lab 13, frameworks."""

from autograder.bank.frameworks import config, ddp, elastic, fsdp, horovod, tensor
