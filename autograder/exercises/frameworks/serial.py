"""One process without any framework: what every tool's training is compared with, to 1e-12."""

import torch

from autograder import checks
from autograder.inside.dtensor_harnesses import SIZES, decoder, next_token
from autograder.inside.framework_harnesses import MOMENTUM, network
from hpcdl.nn.awkward import MODELS
from hpcdl.nn.decoder import Decoder

__all__ = ["MOMENTUM", "decoder", "network", "next_token"]  # the same models as on the ranks

RTOL = 1e-12  # float64: the ranks add in another order, and nothing else
NUMBER = 8  # bytes


def weights_of(name: str, rng: torch.Generator) -> list[torch.Tensor]:
    """Weights of a network of `MODELS`, in float64."""
    return [torch.randn(p.shape, generator=rng).double() / 2 for p in MODELS[name]().parameters()]


def samples(n: int, rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """x (n, 4) and one of three classes for each."""
    return torch.randn(n, 4, generator=rng).double(), torch.randint(0, 3, (n,), generator=rng)


def numel(name: str) -> int:
    return sum(param.numel() for param in MODELS[name]().parameters())


def decoder_weights(rng: torch.Generator, tied: bool = False, blocks: int = SIZES[3]) -> list[torch.Tensor]:
    model = Decoder(*SIZES[:3], blocks, tied=tied)
    return [torch.randn(p.shape, generator=rng).double() / 2 for p in model.parameters()]


def tokens(batch: int, length: int, rng: torch.Generator) -> torch.Tensor:
    return torch.randint(0, SIZES[0], (batch, length), generator=rng)


def weights_agree(got, expected, name: str, mistakes=None, why: str = "") -> None:
    """Every weight is the expected one; `mistakes` maps sentences to functions that give all weights of a mistake."""
    for i, right in enumerate(expected):
        checks.close(
            got[i],
            right,
            name=f"{name}: parameter {i}",
            why=why,
            rtol=RTOL,
            atol=RTOL,
            mistakes={sentence: lambda of=of, i=i: of()[i] for sentence, of in (mistakes or {}).items()},
        )
