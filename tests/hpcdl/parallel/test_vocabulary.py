"""The ends of a language model whose vocabulary is in shares: the embedding and the loss, against torch's."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hpcdl.comm import RankError, simulate
from hpcdl.parallel import tensor
from hpcdl.parallel.shares import shares
from hpcdl.parallel.tensor import VocabularyEmbedding

RANKS = [1, 2, 3, 4, 5]


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("p", RANKS)
def test_the_embedding_of_a_vocabulary_in_shares(p):
    dense, tokens = nn.Embedding(11, 3, dtype=torch.float64), torch.tensor([[0, 10, 3], [3, 7, 5]])
    dy = torch.randn(2, 3, 3, dtype=torch.float64)
    dense(tokens).backward(dy)

    def rank(comm):
        layer = VocabularyEmbedding.of(dense, comm)
        y = layer(tokens)
        y.backward(dy)
        return y.detach(), layer.weight.grad

    run = simulate(rank, p)
    for y, _ in run.results:
        close(y, dense.weight.detach()[tokens])
    close(torch.cat([grad for _, grad in run.results]), dense.weight.grad)
    assert sum(run.bytes_sent) == 2 * (p - 1) * dy.nbytes


@pytest.mark.parametrize("scale", [1.0, 1e4])
@pytest.mark.parametrize("p", RANKS)
def test_the_loss_of_a_vocabulary_in_shares_is_torchs(p, scale):
    n, words = 6, 11
    logits, target = scale * torch.randn(n, words, dtype=torch.float64), torch.tensor([0, 10, 3, 4, 7, 7])
    weights = torch.rand(n, dtype=torch.float64)
    whole = logits.clone().requires_grad_()
    losses = cross_entropy(whole, target, reduction="none")
    (losses * weights).sum().backward()

    def rank(comm):
        mine = logits.tensor_split(p, 1)[comm.rank].clone().requires_grad_()
        found = tensor.cross_entropy(mine, target, words, comm)
        (found * weights).sum().backward()
        return found.detach(), mine.grad

    run = simulate(rank, p)
    for found, _ in run.results:
        close(found, losses.detach())
    close(torch.cat([grad for _, grad in run.results], dim=1), whole.grad)
    assert run.bytes_sent == [(p - 1) * 2 * n * 8] * p


# -- what does not fit ------------------------------------------------------------------------------------------------


def wrong_logits(comm):
    return tensor.cross_entropy(torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64), 7, comm)


def wrong_target(comm):
    share = shares(7, comm.size)[comm.rank]
    return tensor.cross_entropy(torch.zeros(2, share), torch.tensor([1, 7]), 7, comm)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (wrong_logits, r"logits is \(2, 3\); for 2 targets and its share of 7 words it is \(2, 4\)"),
        (wrong_target, r"target has 1 to 7; words are 0 to 6"),
        (lambda comm: VocabularyEmbedding.of(nn.Embedding(1, 2), comm), r"vocabulary is 1; 2 ranks need one word each"),
    ],
)
def test_what_does_not_fit_is_said(call, said):
    with pytest.raises(RankError, match=said):
        simulate(call, 2)
