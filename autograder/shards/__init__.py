"""From one machine to many: each grades a part of a class by itself, and `merge` makes one result of what they wrote.

1. `shard` says whose the submissions are: a student belongs to the part that a hash of the name says, so that machines
   need not ask one another.
2. `records` appends each result to a file of the shard, one line each; a line that was cut short counts as none. To run
   a shard again is to resume it.
3. `merge` reads the records of all shards, of any number of them, and writes what `autograder grade` writes.
4. `scripts` prints what starts the shards: an array job of Slurm, torchrun, an indexed job of Kubernetes, one machine.

May import: `grading`, and what that may.
"""
