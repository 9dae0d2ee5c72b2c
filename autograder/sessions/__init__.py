"""How a check reaches the student's code: the trusted end of every call.

A `session` is one student's code and the time it may still take: `local` in this process (a notebook), `remote` in a
walled worker (grading), `parsing` in a worker that reads the submission first, `mpi_team` on the ranks of a real MPI,
which `mpi_slots` finds. A check sees its `Student`, and a `handle` for each object of a student's class; `grader` is
the peer that sends and receives, `errors` say why no value came back. `ranks` is a call on p ranks; `desk` does their
operations on the simulated machine; `copies` keeps a check's own values safe. `canaries` try the walls themselves.

May import: this room, `walls`, `inside`, `boundary`, `checks` and `show` (a check's failure may cross a call), `hpcdl`.
"""
