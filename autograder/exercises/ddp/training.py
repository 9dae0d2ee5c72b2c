"""One machine's training on all ranks' samples, in float64, and what known mistakes make of it."""

import torch
from torch.nn.functional import cross_entropy

from autograder import checks
from autograder.checks import CheckFailure
from autograder.inside.harnesses import network
from hpcdl.nn.awkward import MODELS

LR = 0.3


def a_rate(rng) -> float:
    """A learning rate of this run."""
    return LR * (0.5 + torch.rand((), generator=rng).item())


def parts(rng, least: int = 0) -> tuple[int, ...]:
    """How many samples each of two to five ranks has: `least` to five, and some in all."""
    p = int(torch.randint(2, 6, (), generator=rng))
    first, *others = torch.randint(least, 6, (p,), generator=rng).tolist()
    return (max(first, 1), *others)


def weights_of(name: str, rng) -> list[torch.Tensor]:
    """Random weights for the network of that name, none of them zero."""
    return [torch.randn(param.shape, generator=rng) / 2 for param in MODELS[name]().parameters()]


def batches_for(sizes: tuple[int, ...], steps: int, rng) -> list[list[list[torch.Tensor]]]:
    """By rank the batches of each step: `[x (n_r, 4), y (n_r,)]`."""
    return [
        [[torch.randn(n, 4, generator=rng), torch.randint(3, (n,), generator=rng)] for _ in range(steps)] for n in sizes
    ]


def routed_batches(rng) -> list[list[list[torch.Tensor]]]:
    """A batch for each of three ranks: rank 0 uses one expert of `Routed`, rank 1 the other, rank 2 both."""
    batches = batches_for((4, 4, 4), 1, rng)
    for batch, signs in zip(batches, ((-1, -1, -1, -1), (1, 1, 1, 1), (1, -1, 1, -1)), strict=True):
        batch[0][0][:, 0] = batch[0][0][:, 0].abs() * torch.tensor(signs)
    return batches


def joined(batches) -> list[list[torch.Tensor]]:
    """The global batch of each step."""
    return [[torch.cat(parts) for parts in zip(*step, strict=True)] for step in zip(*batches, strict=True)]


def serial(name: str, weights: list, batches: list, lr: float = LR, keep: bool = False) -> list[torch.Tensor]:
    """One machine's weights after a step on each batch, computed in float64.

    It is a mistake to `keep` gradients from step to step.
    """
    model = network(name, weights).double()
    for x, y in batches:
        if not keep:
            model.zero_grad()
        cross_entropy(model(x.double()), y).backward()
        with torch.no_grad():
            for param in model.parameters():
                if param.grad is not None:
                    param -= lr * param.grad
    return [param.detach().float() for param in model.parameters()]


def of_means(name: str, weights: list, batches, lr: float) -> list[torch.Tensor]:
    """The weights after one step with the mean of the ranks' means, every rank counting the same."""
    parts = [serial(name, weights, one[:1], lr) for one in batches if len(one[0][1])]
    share = 1 / len(batches)
    return [share * sum(same) + (1 - share * len(parts)) * w for *same, w in zip(*parts, weights, strict=True)]


def described(name: str) -> str:
    """What is special about the network of that name, in a few words for feedback."""
    return (MODELS[name].__doc__ or name).partition(":")[0].rstrip(".").lower()


def names_of(name: str) -> list[str]:
    return [label for label, _ in MODELS[name]().named_parameters()]


def agree(run, name: str, weights: list, batches, setting: str, lr: float = LR, advice: str = "") -> None:
    """Every rank has the weights of one machine that trained on the global batches, and all have the same bits.

    `advice` ends the message of other weights.
    """
    expected = serial(name, weights, joined(batches), lr)
    setting += f", after {len(batches[0])} step{'s' * (len(batches[0]) > 1)}"
    try:
        have(run, name, expected, setting)
    except CheckFailure:
        alone = "Each rank takes a step with its own gradients: average them over the ranks first."
        own = [{alone: serial(name, weights, mine, lr)} if len(batches) > 1 else {} for mine in batches]
        wrongs = wrong_weights(name, weights, batches, lr)
        wrongs["This weight has not changed."] = weights
        have(run, name, expected, setting, [mine | wrongs for mine in own], advice)
        raise
    for rank, label, value, first in each_weight(run, name):
        checks.that(
            torch.equal(value, first),
            f"{setting}: {label} on rank {rank} differs from rank 0's in its last bits. All ranks subtract the same "
            "mean: use the sum from the all-reduce, not one of your own.",
        )


def have(run, name: str, expected: list, setting: str, wrongs: list[dict] | None = None, advice: str = "") -> None:
    """Every rank has the `expected` weights; `wrongs` are those of known mistakes, by rank."""
    for rank, (got, *_) in enumerate(run.results):
        for i, label in enumerate(names_of(name)):
            mistakes = {sentence: values[i] for sentence, values in (wrongs[rank] if wrongs else {}).items()}
            where = f"{setting}: {label} on rank {rank}"
            why = f"This is the result of one machine that trains on all ranks' samples together.{advice}"
            checks.close(got[i], expected[i], name=where, why=why, rtol=1e-4, mistakes=mistakes)


def each_weight(run, name: str):
    """Rank, name, value on that rank and on rank 0, of every weight."""
    first, labels = run.results[0][0], names_of(name)
    for rank, (got, *_) in enumerate(run.results):
        yield from zip([rank] * len(labels), labels, got, first, strict=True)


def wrong_weights(name: str, weights: list, batches, lr: float) -> dict[str, list]:
    """The weights that known mistakes give, by the sentence that names the mistake."""
    everything, p = joined(batches), len(batches)
    found = {
        "The step goes uphill: subtract lr times the gradient.": serial(name, weights, everything, -lr),
        "lr is missing: subtract lr times the gradient.": serial(name, weights, everything, 1.0),
        "The gradients still contain the last step's: begin with zero_grad.": serial(
            name, weights, everything, lr, keep=True
        ),
    }
    if p > 1:
        found |= {
            "This is the sum over ranks: divide by the number of all samples.": serial(
                name, weights, everything, lr * p
            ),
            "This step is too short by the number of ranks: you divided a mean once more.": serial(
                name, weights, everything, lr / p
            ),
        }
    if len(everything) == 1 and len({len(one[0][1]) for one in batches}) > 1:
        mean_of_means = (
            "This is the mean of the ranks' means. A rank with more samples must count more: weight by n_r / N."
        )
        found[mean_of_means] = of_means(name, weights, batches, lr)
    return {sentence: values for sentence, values in found.items() if all(v.isfinite().all() for v in values)}
