"""Model parallelism: the network itself is cut, and each rank holds a part of it.

`schedules`: who computes which microbatch when in a pipeline, as data that can be timed (`hpcdl.cost.pipeline`), drawn
and run.
"""
