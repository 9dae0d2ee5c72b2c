"""The two ends of a language model, of whose vocabulary each rank has a share: the embedding and the loss.

Both after Shoeybi et al. 2019 ("Megatron-LM", section 3): the logits of a token, which are many, stay where they are;
only a few numbers of each token travel.
"""

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding

from hpcdl.collectives import all_gather
from hpcdl.comm import Communicator
from hpcdl.parallel.shares import share, shares
from hpcdl.parallel.tensor.conjugate import reduce


class VocabularyEmbedding(nn.Module):
    """The rows of this rank's share of the words, (its words, hidden): tokens, (...), to (..., hidden).

    A rank gives zeros for the words of others, and one all-reduce forward sums all; backward it sends nothing. Raises
    ValueError for more ranks than words.
    """

    def __init__(self, weight: torch.Tensor, vocabulary: int, comm: Communicator):
        super().__init__()
        self.comm, (self.first, self.last) = comm, word_range(vocabulary, comm)
        self.weight = nn.Parameter(weight)

    @classmethod
    def of(cls, dense: nn.Embedding, comm: Communicator) -> "VocabularyEmbedding":
        """This rank's part of an embedding that every rank has whole."""
        return cls(share(dense.weight, comm), dense.num_embeddings, comm)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mine = (self.first <= tokens) & (tokens < self.last)
        rows = embedding((tokens - self.first) * mine, self.weight)
        return reduce(rows * mine.unsqueeze(-1), self.comm)


def cross_entropy(logits: torch.Tensor, target: torch.Tensor, vocabulary: int, comm: Communicator) -> torch.Tensor:
    """-log softmax(logits)[target] of each token, the same on every rank, where each has the logits of its words.

    logits: (n, this rank's share of `vocabulary`); target: (n), words from 0. Returns (n): take their mean. Two numbers
    of each token travel round the ring, the logarithm of this rank's part of the sum of exponentials, and the target's
    logit: 2 (p-1) n of them leave each rank. Backward it sends nothing. Raises ValueError for logits of another shape
    and for targets out of range.
    """
    first, last = word_range(vocabulary, comm)
    if logits.shape != (len(target), last - first):
        raise ValueError(
            f"rank {comm.rank}: logits is {tuple(logits.shape)}; for {len(target)} targets and its share of "
            f"{vocabulary} words it is {(len(target), last - first)}"
        )
    if len(target) and not 0 <= int(target.min()) <= int(target.max()) < vocabulary:
        raise ValueError(
            f"rank {comm.rank}: target has {int(target.min())} to {int(target.max())}; words are 0 to {vocabulary - 1}"
        )
    return _CrossEntropy.apply(logits, target, first, comm)


def word_range(vocabulary: int, comm: Communicator) -> tuple[int, int]:
    """This rank's words, from the first to before the last; ValueError where there are fewer than ranks."""
    if vocabulary < comm.size:
        raise ValueError(f"vocabulary is {vocabulary}; {comm.size} ranks need one word each or more")
    sizes = shares(vocabulary, comm.size)
    first = sum(sizes[: comm.rank])
    return first, first + sizes[comm.rank]


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, first, comm):
        words, mine = _local(target, first, logits.shape[1])
        table = logits.new_zeros(comm.size, 2, len(target))
        table[comm.rank, 0] = logits.logsumexp(1)
        table[comm.rank, 1] = logits.gather(1, words)[:, 0] * mine
        all_gather(table, comm)  # equal chunks: row r is rank r's
        log_sum = table[:, 0].logsumexp(0)
        ctx.save_for_backward((logits - log_sum[:, None]).exp_(), words, mine)
        return log_sum - table[:, 1].sum(0)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        softmax, words, mine = ctx.saved_tensors
        softmax = softmax.scatter_add(1, words, -mine.to(softmax.dtype)[:, None])
        return softmax.mul_(grad[:, None]), None, None, None


def _local(target: torch.Tensor, first: int, words: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Where each target is among this rank's words, (n, 1), 0 where it is another's; and whether it is its own, (n)."""
    mine = (first <= target) & (target < first + words)
    return ((target - first) * mine)[:, None], mine
