"""Wrong answers to lab `hogwild`."""

from autograder.bank.hogwild import adam, downpour, finish, hogwild, two_loop
