"""Code in the student's process, which holds no check, no expected value and no verdict.

`worker` holds the student's names and serves the grader's calls (`socket_worker` at the end of a socket), `location`
finds the student's lines; `notebook` and `source` read a submission and find the statements that matter, `fingerprint`
compares submissions; `forbidden` denies calls (`operators`, `dotted`, `doors`, `shims`, `compiled`), `sentry`, `once`,
`copies` and `hiding` keep answers away from the worker, `console` denies waiting at the keyboard; `wire_comm`,
`mpi_rank` and `harnesses` run functions on several ranks. In a notebook the same worker uses the kernel's own names.

May import: this room, `boundary`, `hpcdl`, other people's packages.
"""
