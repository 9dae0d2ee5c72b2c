"""The two ends of a language model, with a share of the vocabulary on each rank: the embedding and the loss.

Both after Shoeybi et al. 2019 ("Megatron-LM", section 3): the logits of a token, which are many, stay where they are;
only a few numbers of each token travel.
"""

from typing import Any

import torch
from torch import nn
from torch.nn.functional import embedding

from hpcdl.collectives import all_gather
from hpcdl.comm import Communicator
from hpcdl.first_derivative import first_only
from hpcdl.parallel.shares import share, shares
from hpcdl.parallel.tensor.conjugate import reduce
from hpcdl.parallel.tensor.dense import SplitLayer, as_parameter, parameter, part_of, require_plain
from hpcdl.parallel.tensor.weights import within
from hpcdl.sharding.pieces import untraced


class VocabularyEmbedding(SplitLayer):
    """The rows of this rank's share of the words, (its words, hidden): tokens, (...), to (..., hidden).

    A rank gives zeros for the words of others, and one all-reduce forward sums all; backward it sends nothing.
    `options` are those of torch's `embedding`: padding_idx, a word of the whole vocabulary, max_norm, norm_type,
    scale_grad_by_freq and sparse. Raises ValueError for more ranks than words, and for tokens out of range.
    """

    def __init__(self, weight: torch.Tensor, vocabulary: int, comm: Communicator, **options: Any):
        super().__init__()
        self.comm, (self.first, self.last), self.vocabulary = comm, word_range(vocabulary, comm), vocabulary
        self.weight, self.options = as_parameter(weight), {key: value for key, value in options.items() if value}
        padding = options.get("padding_idx")
        self.options.pop("padding_idx", None)
        if padding is not None:
            self.options["padding_idx"] = padding - self.first if self.first <= padding < self.last else None

    @classmethod
    def of(cls, dense: nn.Embedding, comm: Communicator) -> "VocabularyEmbedding":
        """Return this rank's part of an embedding that every rank has whole; ValueError as `require_plain`."""
        require_plain(dense, nn.Embedding)
        options = {name: getattr(dense, name) for name in ("padding_idx", "max_norm", "scale_grad_by_freq", "sparse")}
        if dense.max_norm is not None:
            options["norm_type"] = dense.norm_type
        word_range(dense.num_embeddings, comm)
        weight = parameter(dense, "weight", comm, lambda x: share(x, comm), "dimension 0")
        assert weight is not None
        return cls(weight, dense.num_embeddings, comm, **options).train(dense.training)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < self.vocabulary:
            raise ValueError(
                f"rank {self.comm.rank}: tokens has {int(tokens.min())} to {int(tokens.max())}; words are 0 to "
                f"{self.vocabulary - 1}"
            )
        mine, weight = (self.first <= tokens) & (tokens < self.last), part_of(self, "weight", self.comm)
        if not self.options:
            rows = within(embedding, (tokens - self.first) * mine, weight)
            return reduce(rows * mine.unsqueeze(-1), self.comm)
        # The options count which words come: only this rank's own may.
        own = within(embedding, tokens[mine] - self.first, weight, **self.options)
        rows = own.new_zeros(*tokens.shape, own.shape[-1]).index_put(mine.nonzero(as_tuple=True), own)
        return reduce(rows, self.comm)


def cross_entropy(
    logits: torch.Tensor,
    target: torch.Tensor,
    vocabulary: int,
    comm: Communicator,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """-log softmax(logits)[target] of each token, the same on every rank, where each has the logits of its words.

    logits: (n, this rank's share of `vocabulary`); target: (n), words from 0, or `ignore_index`, whose loss and
    gradient are 0. Returns (n): take their mean, over the targets that count. With `label_smoothing` e the loss is
    (1 - e) times that and e times its mean over all words as targets. Two numbers of each token travel round the ring,
    the logarithm of this rank's part of the sum of exponentials, and the target's logit: 2 (p-1) n of them leave each
    rank, of float32 at least; with smoothing a third, the sum of the logits. Backward it sends nothing. Raises
    ValueError for logits of another shape, for targets out of range, and for smoothing that is not 0 to 1.
    """
    first, last = word_range(vocabulary, comm)
    if logits.shape != (len(target), last - first):
        raise ValueError(
            f"rank {comm.rank}: logits is {tuple(logits.shape)}; for {len(target)} targets and its share of "
            f"{vocabulary} words it is {(len(target), last - first)}"
        )
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing is {label_smoothing!r}; it is 0 to 1")
    counts = target != ignore_index
    words = target[counts]
    if len(words) and not 0 <= int(words.min()) <= int(words.max()) < vocabulary:
        raise ValueError(
            f"rank {comm.rank}: target has {int(words.min())} to {int(words.max())}; words are 0 to {vocabulary - 1}"
        )
    return _CrossEntropy.apply(logits, target, first, vocabulary, comm, counts, label_smoothing)


untraced(cross_entropy)


def word_range(vocabulary: int, comm: Communicator) -> tuple[int, int]:
    """Return this rank's words, from the first to before the last; ValueError where there are fewer than ranks."""
    if vocabulary < comm.size:
        raise ValueError(f"vocabulary is {vocabulary}; {comm.size} ranks need one word each or more")
    sizes = shares(vocabulary, comm.size)
    first = sum(sizes[: comm.rank])
    return first, first + sizes[comm.rank]


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, first, vocabulary, comm, counts, smoothing):
        words, mine = _local(target, first, logits.shape[1])
        wide = logits if logits.element_size() >= 4 else logits.float()
        table = wide.new_zeros(comm.size, 3 if smoothing else 2, len(target))
        table[comm.rank, 0] = wide.logsumexp(1)
        table[comm.rank, 1] = wide.gather(1, words)[:, 0] * mine
        if smoothing:
            table[comm.rank, 2] = wide.sum(1)
        all_gather(table, comm)  # equal chunks: row r is rank r's
        log_sum = table[:, 0].logsumexp(0)
        ctx.save_for_backward((wide - log_sum[:, None]).exp_(), words, mine, counts)
        ctx.dtype, ctx.smoothing, ctx.vocabulary = logits.dtype, smoothing, vocabulary
        loss = log_sum - table[:, 1].sum(0)
        if smoothing:
            loss = (1 - smoothing) * loss + smoothing * (log_sum - table[:, 2].sum(0) / vocabulary)
        return loss.masked_fill(~counts, 0).to(logits.dtype)

    @staticmethod
    @first_only(
        "the loss of a vocabulary in shares",
        "join the logits with hpcdl.parallel.tensor.join and take torch's cross_entropy",
    )
    def backward(ctx, grad):
        softmax, words, mine, counts = ctx.saved_tensors
        hit = (
            -(1 - ctx.smoothing) * mine.to(softmax.dtype)[:, None]
            if ctx.smoothing
            else -mine.to(softmax.dtype)[:, None]
        )
        slope = softmax.scatter_add(1, words, hit)
        if ctx.smoothing:
            slope.sub_(ctx.smoothing / ctx.vocabulary)
        slope = slope.mul_(grad[:, None]).masked_fill_(~counts[:, None], 0)
        return slope.to(ctx.dtype), None, None, None, None, None, None


def _local(target: torch.Tensor, first: int, words: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each target's index among this rank's words, (n, 1), 0 for another rank's; and whether it is ours, (n)."""
    mine = (first <= target) & (target < first + words)
    return ((target - first) * mine)[:, None], mine
