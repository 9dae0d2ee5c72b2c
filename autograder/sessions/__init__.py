"""How a check reaches the student's code: the trusted end of every call.

A `session` is one student's code and its remaining time: `local` in this process (a notebook), `remote` in a sandboxed
worker (grading), `parsing` in a worker that first reads the submission, `mpi_team` on the ranks of a real MPI, which
`mpi_slots` finds. A check sees its `Student`, and a `handle` for each object of a student's class; `grader` is the peer
that sends and receives, and `errors` say why there is no result. `ranks` is a call on p ranks; `desk` performs their
operations on the simulated machine; `copies` protects a check's own values. `canaries` test the walls.

May import: this room, `walls`, `inside`, `boundary`, `checks` and `show` (a check's failure may cross a call), `hpcdl`.
"""
