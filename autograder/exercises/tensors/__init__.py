"""Lab `tensors`: ten puzzles of a line or three. Oracles: plain Python loops over elements, and NumPy for bits."""

from autograder.authoring import Lab
from autograder.exercises.tensors import (
    average_in_place,
    by_channel,
    cut,
    epochs,
    grads,
    pick,
    safe_ratio,
    stretch,
    sums,
    windows,
)

lab = Lab(
    "tensors",
    title="Ten puzzles before the labs",
    exercises=(
        pick.exercise,
        by_channel.exercise,
        stretch.exercise,
        safe_ratio.exercise,
        sums.exercise,
        windows.exercise,
        average_in_place.exercise,
        cut.exercise,
        grads.exercise,
        epochs.exercise,
    ),
)
