"""The protocol between the grader and the process with the student's code.

`protocol` has frames, `encode` and `decode` turn values into their nodes and back, `peer` calls and serves calls,
`verbs` lists the possible calls, `limits` are time limits. Nothing here knows a check, an answer or a verdict.

May import: this room, `hpcdl`, other people's packages.
"""
