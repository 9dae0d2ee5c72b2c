"""The verbs of the protocol: everything that one side can request from the other. A call's target is `[verb, operand]`.

`Worker.verbs` and `Grader.verbs` implement them; a verb in neither table is refused with a `ProtocolError`.
"""

EITHER = {"yours": "call the object that the other side gave out under the number `operand`"}

WORKER = EITHER | {
    "name": "call the student's function or class of that name",
    "operator": "apply the operator of that name, also getattr, setattr, len, ..., to an object of the student's",
    "rank": "call the student's function of that name as one rank of several",
    "execute": "run cells, (label, source) pairs; what went wrong in each",
    "forbid": "from now on the student's code may not make the calls that these patterns name",
    "count": "count the calls of these operators from now on; the counts so far",
    "parse": "the parts of a notebook file: cells, notes, the lab's slug, the names that are bound, cells of text",
    "needed": "the statements that exercises' functions need, notes, each exercise's fingerprint and shapes",
    "wider": "the statements that functions need, with all others that mention an object of theirs",
}

GRADER = EITHER | {"forbidden": "a forbidden call was made, of that name, in that line"}
