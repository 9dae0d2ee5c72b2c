"""From a file to a grade. Read the modules in this order to follow one submission:

1. `layouts` finds the submissions in a folder or zip file, and their owners (`owners` by names; `folders` even if they
   change meanwhile). A `submission` stores everything read from its file, so that nothing is read twice.
2. `batch` lets `submitted` read every file, with the files `beside` it, and gives each a lane, a process that grades
   one submission after another. `store` keeps results of earlier runs, by the hash of everything that a result depends
   on.
3. `grade` handles one submission: a walled worker parses the bytes (`sessions.parsing`); `submitted` says which
   lab it is; the worker gives the statements that the exercises need and runs them.
4. `run` runs the lab's checks, in order, on that worker's functions: each has a time limit, a seed (`seeds`: different
   for each student, from the course's secret) and a verdict, with the sentence that the student reads.
5. `pace` shortens the limits after a check that timed out. `alone` repeats checks that timed out next to other lanes,
   `again` repeats failed checks with the statements that were left out, and `follow` repeats them with the reference's
   functions if an earlier exercise was wrong. `real_ranks` repeats runs on simulated ranks with a real MPI.
6. `grades` takes each student's newest submission, and writes `grades.csv` and one result file each.

Besides: `replay` repeats one exercise from a report, for an appeal; `selfcheck` proves a lab's checks before they grade
anyone: the reference earns all points, blank and lazy answers none, and each known mistake loses its own.

May import: everything except `cli`, `api`, `doctor` and `outputs`, which build on it.
"""
