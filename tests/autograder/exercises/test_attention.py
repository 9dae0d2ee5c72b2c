"""Lab `attention`: its oracles agree with the library, torch and closed forms."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from autograder import checks
from autograder.exercises.attention import attention, block_work, online_softmax, route
from hpcdl.parallel import experts

pytestmark = pytest.mark.labs


@pytest.mark.parametrize("causal", [True, False])
def test_oracle_is_torchs_attention(causal):
    q, k, v = attention.drawn(torch.Generator().manual_seed(0), 6, 6, 4, 5)
    expected = scaled_dot_product_attention(q[None], k[None], v[None], is_causal=causal)[0]
    torch.testing.assert_close(attention.row_by_row(q, k, v, causal), expected)


@pytest.mark.parametrize("hidden", [0.0, -1e4, -1e9])
def test_one_sentence_names_a_finite_score(hidden):
    """Also where every finite score is above all visible ones, as in the check `large_scores`."""
    _, _, v = attention.drawn(torch.Generator().manual_seed(0), 3, 3, 1, 2)
    given = -(2.0**40) * torch.ones(3, 1).double(), torch.arange(3.0, 0.0, -1.0).double()[:, None], v
    later = torch.ones(3, 3, dtype=torch.bool).triu(1)

    def answer(q, k, v, causal):
        return (q @ k.T).masked_fill(later, hidden).softmax(1) @ v

    with pytest.raises(checks.CheckFailure) as caught:
        attention.is_attention(SimpleNamespace(attention=answer), given, True, "finite")
    assert caught.value.mistake == attention.BELOW


def test_what_blocks_keep_is_one_softmax():
    blocks = online_softmax.Blocks((3, 2, 4), torch.Generator().manual_seed(1), hidden=True)
    _, total, out = blocks.kept(3)
    torch.testing.assert_close(out / total, torch.cat(blocks.scores, 1).softmax(1) @ torch.cat(blocks.values))


@pytest.mark.parametrize("size", [(2, 7, 6, 2), (3, 5, 10, 5), (1, 9, 4, 1)])
def test_counters_have_the_closed_forms(size):
    b, n, h, heads = size
    closed = 12 * h**2, 24 * b * n * h**2 + 4 * b * n**2 * h, 12 * b * n * h + b * heads * n**2
    assert block_work.counted(*size) == closed


def test_routing_is_the_librarys():
    gate = route.Gate(9, 4, torch.Generator().manual_seed(2), favourite=2.0)
    chosen, weights = gate.expected(2, 3)
    assert torch.equal(experts._first(chosen, 4, 3), weights > 0)
