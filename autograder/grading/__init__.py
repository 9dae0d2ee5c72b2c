"""From a file to a grade. Read the modules in this order to follow one submission through:

1. `layouts` finds the submissions in a folder or zip file, and whose each is (`owners`, by names; `folders`, however
   they change). A `submission` keeps all that is asked of its file, and nothing is asked twice.
2. `batch` has `submitted` read every file, with what lies `beside` it, and gives each a lane, a process that grades one
   submission after another; `store` knows those whose result is kept from an earlier run, by the hash of all that a
   result depends on.
3. `grade` is the way of one submission: a walled worker parses the bytes (`sessions.parsing`); `submitted` says which
   lab it is; the worker gives the statements that the exercises need and runs them.
4. `run` asks the lab's checks, in order, about that worker's functions: each gets its time, its seed (`seeds`: the
   course's secret makes every student's own) and its verdict, with the sentence that the student reads.
5. `pace` shortens the limits after a check that ran out of time; `alone` asks again what ran out of time beside other
   lanes, `again` what failed without statements that were left out; `follow` asks again with the reference's functions
   where an earlier exercise was wrong; `real_ranks` repeats what ran on simulated ranks on those of a real MPI.
6. `grades` takes the newest of each student, and writes `grades.csv` and a result file each.

Beside that way: `replay` repeats one exercise from a report, for an appeal; `selfcheck` proves a lab's checks before
they grade anyone: the reference has all points, blank and lazy answers none, each known mistake loses its own.

May import: everything but `cli`, `api`, `doctor` and `outputs`, which stand on it.
"""
