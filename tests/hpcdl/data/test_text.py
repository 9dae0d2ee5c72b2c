"""The corpus and its tokens."""

import pytest
import torch

from hpcdl.data import Characters, corpus, windows


def test_the_corpus_is_what_its_docstring_says():
    text = corpus()
    assert len(text) == 63_172
    assert len(set(text)) == 81
    assert len(text.encode()) < 200_000
    assert text.isascii()
    assert text.count("\n") > 300
    assert "gradient" in text


def test_tokens_there_and_back():
    tokens = Characters(corpus())
    assert len(tokens) == 81
    numbers = tokens.encode(corpus())
    assert numbers.dtype == torch.int64
    assert int(numbers.min()) == 0
    assert int(numbers.max()) == 80
    assert tokens.decode(numbers) == corpus()
    assert tokens.decode([]) == ""
    with pytest.raises(ValueError, match="text has 'é'; the alphabet is"):
        tokens.encode("café")


def test_windows_are_pieces_with_what_follows():
    tokens = torch.arange(100)
    x, y = windows(tokens, 7, 500, torch.Generator().manual_seed(1))
    assert x.shape == y.shape == (500, 7)
    assert torch.equal(y, x + 1)
    assert (x[:, 1:] == x[:, :-1] + 1).all()
    assert x.min() == 0
    assert y.max() == 99, "the last token is somebody's next one"
    again, _ = windows(tokens, 7, 500, torch.Generator().manual_seed(1))
    assert torch.equal(again, x)


@pytest.mark.parametrize("length", [0, 5, 6])
def test_windows_of_a_short_text(length):
    with pytest.raises(ValueError, match=f"length is {length}; with 5 tokens it is 1 to 4"):
        windows(torch.arange(5), length, 1, torch.Generator())


def test_a_counting_model_learns_it():
    """The text has structure: characters that follow one another are guessed far better than by their frequency."""
    numbers = Characters(corpus()).encode(corpus())
    pairs = torch.zeros(81, 81, dtype=torch.float64)
    pairs.index_put_((numbers[:-1], numbers[1:]), torch.ones((), dtype=torch.float64), accumulate=True)
    joint = pairs / pairs.sum()
    single = joint.sum(0)
    entropy = -(single * single.clamp_min(1e-30).log()).sum()
    given = -(joint * (joint / joint.sum(1, keepdim=True).clamp_min(1e-30)).clamp_min(1e-30).log()).sum()
    assert 2.9 < entropy < 3.2
    assert given < entropy - 0.6


@pytest.mark.parametrize("token", [-1, 3, 1.5, torch.tensor(-2)])
def test_tokens_without_a_character(token):
    """Python's own indices would count -1 from the end, and cut 1.5."""
    with pytest.raises(ValueError, match=r"a token is .*; they are whole numbers from 0 to 2"):
        Characters("abc").decode([0, token])
    assert Characters("abc").decode(iter([0, 1.0, torch.tensor(2)])) == "abc"
