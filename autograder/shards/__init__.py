"""Grade a class on many machines: each grades one part independently, and `merge` combines the results.

1. `shard` assigns submissions: a hash of the student's name selects the part, so machines do not need to communicate.
2. `records` appends each result to a file of the shard, one line each; an incomplete line does not count. Running a
   shard again resumes it.
3. `merge` reads the records of any number of shards, and writes the same files as `autograder grade`.
4. `scripts` prints scripts that start the shards: an array job of Slurm, torchrun, an indexed job of Kubernetes, one
   machine.

May import: `grading`, and everything that `grading` may import.
"""
