"""The pictures of the labs by name: `PICTURES["secant"]()` makes one, and imports its module only then.

A picture is a module with a pure `draw(state, axes)` and an `explorable()` that gives it controls.
"""

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

from hpcdl.widgets.kit.explorable import Explorable


def explorable(picture: str, *args: Any, **options: Any) -> Explorable:
    """Make the picture of that name; some take what the student wrote or measured: see its own `explorable`."""
    return importlib.import_module(f"{__name__}.{picture}").explorable(*args, **options)


_NAMES = (
    *("strides", "broadcasting", "masks", "row_sums"),  # tensors
    *("aliases", "bits", "grad_steps", "handing_out"),
    *("secant", "step_error", "surface"),  # calculus
    *("descent_path", "learning_rates", "shards", "more_workers"),  # gradient descent
    *("perceptron_plane", "perceptron_lift", "perceptron_mlp", "any_function"),  # perceptron
    *("backprop", "gradient_norms", "value_graph", "three_sets"),  # backprop
    *("sliding_window", "winograd_products", "convolution_race", "conv_gradient"),  # convolution
    *("number_line", "running_mean", "stalling_sum", "low_precision_training"),  # stochastic rounding
    *("ring_passing", "bucket_timeline"),  # ddp
    *("topology", "message_cost", "best_algorithm"),  # collectives
    "attention_weights",  # attention
    *("cut_the_matrix", "fill_the_bubble", "your_design"),  # model parallel
    *("who_waits", "how_late", "gossip"),  # consistency
    "lost_updates",  # hogwild
    "does_it_fit",  # sharding
    "under_the_roof",  # machines
    *("speed_up", "loss_scale"),  # scaling
    "six_tools",  # frameworks
    "own_stack",
    "calibration",  # the map
)
PICTURES: dict[str, Callable[..., Explorable]] = {name: partial(explorable, name) for name in _NAMES}
