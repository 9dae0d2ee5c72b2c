"""Families of compiled operators and packages that could be an answer by themselves.

Each exercise opens the families that its right answers use, and closes the others: `autograder/exercises/families.json`
has its row, which `python -m autograder.grading.families` derives. Operators that work element by element, and shapes,
indices, sums, sorting, products, solvers and Fourier transforms belong to no family: every answer may use them.
No operator is in two families, so closing one closes nothing of another.

Torch has many operators and algorithms a second time, in Python, for its own compilers and exporters: `torch._refs`,
`torch._decomp`, a knapsack. Its private packages are a family, except the few that every program runs, and so are its
tools.
"""

import pkgutil

import torch

# Private packages that run with any code: torch calls their functions for a module, an optimizer or a class of tensors.
RUN = ("_custom_op", "_dispatch", "_dynamo", "_functorch", "_library", "_logging", "_prims_common", "_subclasses")


def private(paths: list[str], name: str = "torch") -> list[str]:
    """Return the private packages in these folders, except those that every program runs, but with those in them."""
    found = []
    for module in pkgutil.iter_modules(paths):
        if module.ispkg and module.name.startswith("_"):
            full = f"{name}.{module.name}"
            is_run = name == "torch" and module.name in RUN
            found += private([f"{path}/{module.name}" for path in paths], full) if is_run else [full]
    return found


FAMILIES: dict[str, tuple[str, ...]] = {
    "networks": (
        *(
            f"aten::*{name}*"
            for name in (
                "conv[!e]", "pool[1-3_]", "batch_norm", "group_norm", "layer_norm", "rms_norm", "weight_norm",
                "embedding_bag", "upsample", "grid_sampler", "affine_grid", "pixel_shuffle", "pixel_unshuffle",
                "channel_shuffle", "_loss", "lstm", "_gru", "_rnn",
            )
        ),
        *(
            f"aten::{name}*"
            for name in (
                "binary_cross_entropy", "celu", "elu", "gelu", "glu", "hardsigmoid", "hardswish", "hardtanh",
                "hardshrink", "leaky_relu", "log_sigmoid", "mish", "_prelu", "rrelu", "silu", "softplus", "softshrink",
            )
        ),
    ),
    "attention": ("aten::*attention*", "aten::_fused_sdp*", "aten::_transform*", "aten::_safe_softmax*"),
    "optimizers": ("aten::_fused_ad*", "aten::_fused_sgd*", "aten::_amp_*"),
    "special": ("aten::special_*",),
    "quantized": ("aten::*quantize_*", "aten::_dyn_quant*", "quantized::*", "_quantized::*"),
    "backends": ("onednn::*", "mkldnn*::*", "mkl::*", "static_runtime::*", "inductor*::*", "sparse::*"),
    "sparse": ("aten::_sparse_*softmax*", "aten::_nested_*softmax*", "aten::*segment_reduce*"),
    "internal": tuple(private(list(torch.__path__))),
    "tools": tuple(f"torch.{name}" for name in ("masked", "onnx", "testing")),
    "distributed": ("torch.distributed",),
    "scipy": ("scipy",),
    "sklearn": ("sklearn",),
}  # fmt: skip


def closed(opened: list[str]) -> tuple[str, ...]:
    """Return the patterns of all families except the `opened` ones."""
    return tuple(pattern for name, patterns in FAMILIES.items() if name not in opened for pattern in patterns)
