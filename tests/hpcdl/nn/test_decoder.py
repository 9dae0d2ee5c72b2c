"""The small decoder: no token sees a later one, a tied matrix is one, and attention takes any share of the heads."""

import pytest
import torch

from hpcdl.nn.decoder import MLP, Attention, Decoder


@pytest.fixture
def decoder():
    torch.manual_seed(0)
    return Decoder(12, 8, heads=2, blocks=2).double()


def test_no_token_sees_a_later_one(decoder):
    tokens = torch.randint(0, 12, (3, 6), generator=torch.Generator().manual_seed(1))
    other = tokens.clone()
    other[:, 4] = (other[:, 4] + 1) % 12
    assert torch.equal(decoder(tokens)[:, :4], decoder(other)[:, :4])
    assert not torch.allclose(decoder(tokens)[:, 4:], decoder(other)[:, 4:])


def test_a_tied_matrix_is_one_and_its_gradient_has_both_uses():
    tied, apart = (Decoder(12, 8, 2, 1, tied=tied).double() for tied in (True, False))
    apart.load_state_dict(tied.state_dict())
    tokens = torch.tensor([[1, 2, 3]])
    for model in (tied, apart):
        model(tokens).square().sum().backward()
    assert len(list(tied.parameters())) == len(list(apart.parameters())) - 1
    torch.testing.assert_close(tied.head.weight.grad, apart.head.weight.grad + apart.embedding.weight.grad)


def test_two_shares_of_attention_and_of_the_mlp_add_up_to_the_whole():
    torch.manual_seed(0)
    x, attention, mlp = torch.randn(2, 5, 8), Attention(8, 4), MLP(8)
    sums = [torch.zeros(2, 5, 8), torch.zeros(2, 5, 8)]
    for rank in range(2):
        share, cut = Attention(8, 4), MLP(8)
        for columns, whole in ((share.q, attention.q), (share.k, attention.k), (share.v, attention.v)):
            columns.weight.data = whole.weight.data.chunk(2)[rank]
        cut.up.weight.data, cut.up.bias.data = mlp.up.weight.data.chunk(2)[rank], mlp.up.bias.data.chunk(2)[rank]
        for rows, whole in ((share.out, attention.out), (cut.down, mlp.down)):
            rows.weight.data, rows.bias.data = whole.weight.data.chunk(2, 1)[rank], whole.bias.data / 2
        sums[0] += share(x).detach()
        sums[1] += cut(x).detach()
    torch.testing.assert_close(sums[0], attention(x).detach())
    torch.testing.assert_close(sums[1], mlp(x).detach())


def test_heads_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="hidden is 8 and heads is 3"):
        Decoder(4, 8, 3, 1)
