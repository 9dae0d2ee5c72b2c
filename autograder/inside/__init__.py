"""What runs beside the student's code, in a process that holds no check, no expected value and no verdict.

`worker` holds the student's names and serves the grader's calls (`socket_worker` at the end of a socket), `location`
finds the student's lines; `notebook` and `source` read a submission and find the statements that matter, `fingerprint`
what they share with others'; `forbidden` denies calls, `console` those that would wait at the keyboard; `wire_comm`,
`mpi_rank` and `harnesses` are what a function over several ranks needs. In a notebook the same worker stands on the
kernel's own names.

May import: this room, `boundary`, `hpcdl`, other people's packages.
"""
