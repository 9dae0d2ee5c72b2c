"""Lab `hogwild`: its five exercises.

Oracles: every pair of edges, events played one by one, serial Adagrad, the dense inverse Hessian, a clock, autograd,
the trace of the simulated machine and its virtual seconds. None of them is the library's `hpcdl.consistency`.
"""

from autograder.authoring import Lab
from autograder.exercises.hogwild import adam, downpour, finish, hogwild, two_loop

lab = Lab(
    "hogwild",
    title="Training without waiting",
    exercises=(hogwild.exercise, downpour.exercise, two_loop.exercise, finish.exercise, adam.exercise),
)
