"""The perceptron's history against the plainest loop there is, and what theory says of it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcdl.data import digits
from hpcdl.nn.perceptron import margin, novikoff_bound, predict, separable, train, with_bias

XOR = with_bias(torch.tensor([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]]))
XOR_LABELS = torch.tensor([-1.0, 1.0, 1.0, -1.0])
eighths = st.integers(-24, 24).map(lambda k: k / 8)


@st.composite
def problems(draw):
    n, d = draw(st.integers(1, 12)), draw(st.integers(1, 3))
    X = torch.tensor(draw(st.lists(st.lists(eighths, min_size=d, max_size=d), min_size=n, max_size=n)))
    y = torch.tensor(draw(st.lists(st.sampled_from([-1.0, 1.0]), min_size=n, max_size=n)))
    return with_bias(X), y


def plain(X, y, lr, max_epochs):
    """The rule as the lecture writes it, one weight at a time, in Python's own numbers."""
    w, mistakes = [0.0] * X.shape[1], []
    for _ in range(max_epochs):
        count = 0
        for x, label in zip(X.tolist(), y.tolist(), strict=True):
            yhat = 1.0 if sum(a * b for a, b in zip(w, x, strict=True)) >= 0 else -1.0
            if yhat != label:
                w = [wj + lr * (label - yhat) * xj for wj, xj in zip(w, x, strict=True)]
                count += 1
        mistakes.append(count)
        if count == 0:
            break
    return w, mistakes


@settings(max_examples=60, deadline=None)
@given(problems())
def test_the_history_is_that_of_the_plain_loop(problem):
    X, y = problem
    history = train(X, y, lr=0.5, max_epochs=8)
    w, mistakes = plain(X, y, 0.5, 8)
    assert history.weights[-1].tolist() == w
    assert history.mistakes == mistakes
    assert history.settled == (mistakes[-1] == 0)


@settings(max_examples=60, deadline=None)
@given(problems())
def test_each_recorded_update_was_caused_by_its_sample(problem):
    X, y = problem
    history = train(X, y, lr=0.25, max_epochs=6)
    assert len(history.weights) - 1 == len(history.samples) == len(history.epochs) == sum(history.mistakes)
    for k, i in enumerate(history.samples):
        before, after = history.weights[k], history.weights[k + 1]
        assert predict(before, X[i]) != y[i]
        assert torch.equal(after, before + 0.5 * y[i] * X[i])


@pytest.mark.labs  # many examples
@settings(max_examples=60, deadline=None)
@given(problems())
def test_what_the_perceptron_separates_is_separable_and_the_bound_holds(problem):
    X, y = problem
    history = train(X, y, max_epochs=100)
    w = history.weights[-1]
    if history.settled and margin(w, X, y) > 0:  # a sample on the line itself settles too, and proves nothing
        assert separable(X, y)
        assert len(history.samples) <= novikoff_bound(X, y, w) * (1 + 1e-5)


def test_xor_is_not_separable_and_never_settles():
    history = train(XOR, XOR_LABELS, max_epochs=50)
    assert not history.settled
    assert min(history.mistakes) > 0
    assert len(history.mistakes) == 50
    assert not separable(XOR, XOR_LABELS)
    assert novikoff_bound(XOR, XOR_LABELS, history.weights[-1]) == float("inf")


def test_the_rate_changes_nothing_but_the_scale_when_the_start_is_zero():
    X = with_bias(torch.randint(-16, 17, (30, 2), generator=torch.Generator().manual_seed(0)) / 8)
    y = predict(torch.tensor([0.3, 1.0, -0.7]), X)
    slow, fast = train(X, y, lr=0.125), train(X, y, lr=4.0)
    assert slow.samples == fast.samples
    assert torch.equal(32 * slow.weights, fast.weights)


def test_another_start_is_kept_as_it_was():
    w0 = torch.tensor([1.0, 2.0, 3.0])
    history = train(XOR, XOR_LABELS, max_epochs=2, w0=w0)
    assert torch.equal(history.weights[0], w0)
    assert w0.tolist() == [1.0, 2.0, 3.0]


def test_without_samples_it_settles_at_once():
    history = train(torch.empty(0, 3), torch.empty(0))
    assert history.mistakes == [0]
    assert history.settled
    assert history.weights.shape == (1, 3)


def test_the_margin_is_negative_where_a_sample_is_wrong():
    X, y = torch.tensor([[1.0, 3.0], [1.0, -1.0]]), torch.tensor([1.0, 1.0])
    assert margin(torch.tensor([0.0, 2.0]), X, y) == pytest.approx(-1.0)


# What lab 03 says of the digits


@pytest.fixture(scope="module")
def pixels():
    data = digits()
    return with_bias(data.x.flatten(1)), data.y


@pytest.mark.long
def test_every_pair_of_digits_is_separable(pixels):
    X, labels = pixels
    updates = {}
    for a in range(10):
        for b in range(a):
            chosen = (labels == a) | (labels == b)
            history = train(X[chosen], torch.where(labels[chosen] == a, 1.0, -1.0), lr=0.5)
            assert history.settled
            updates[a, b] = len(history.samples)
    assert max(updates, key=updates.get) == (8, 1)


def test_8_alone_cannot_be_told_from_the_other_nine_by_any_weights(pixels):
    X, labels = pixels
    assert [d for d in range(10) if not separable(X, torch.where(labels == d, 1.0, -1.0))] == [8]


@pytest.mark.long
def test_1_and_9_are_separable_from_the_rest_but_not_within_1000_epochs(pixels):
    X, labels = pixels
    assert not any(train(X, torch.where(labels == d, 1.0, -1.0), 0.5, max_epochs=1000).settled for d in (1, 9))
