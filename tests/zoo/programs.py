"""Random training programs: a module of random blocks, an optimizer, and the steps of a loop, all drawn from a seed."""

import copy
import random

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint
from zoo.entries import L, Model, P, changed, mlp
from zoo.registry import Entry, Kit, rows

ENTRY = Entry("program", None, None, None, None, None, {}, False, 1e-9)  # type: ignore[arg-type]


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.seen = L(6, 6), nn.Buffer(torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.seen += 1
        return self.a(x) * (1 + self.seen / 10)


BLOCKS = (
    mlp,
    Counting,
    lambda: nn.Sequential(nn.LayerNorm(6), L(6, 6), nn.ReLU(inplace=True)),
    lambda: Model(lambda m, x: torch.tanh(m.a(torch.tanh(m.a(x)))), a=L(6, 6)),
    lambda: Model(lambda m, x: x + m.a(x) * m.s + m.e.sum(), a=L(6, 6), s=P(1)[0].clone(), e=P(0, 3), unused=L(6, 6)),
    lambda: Model(lambda m, x: m.b(m.a(x)), a=L(6, 6).requires_grad_(False), b=nn.PReLU()),
    lambda: Model(lambda m, x: functional.linear(torch.tanh(m.a(x)), m.b.weight), a=L(6, 6), b=L(6, 6)),
    lambda: Model(lambda m, x: functional.linear(torch.tanh(m.a(x)), m.a.weight.t()), a=L(6, 4)),
    lambda: Model(lambda m, x: checkpoint(m.a, x, use_reentrant=False), a=mlp()),
    lambda: Model(
        lambda m, x: torch.tanh(x @ m.w + m.l[0]), w=nn.Parameter(rows(6, 6).t()), l=nn.ParameterList([P(6)])
    ),
    lambda: Model(lambda m, x: torch.tanh(m.a(x)), a=parametrizations.weight_norm(L(6, 6))),
    lambda: Model(lambda m, x: x + m.e((x.detach().abs().sum(-1) * 7).long() % 5), e=nn.Embedding(5, 6)),
    lambda: changed(L(6, 6), lambda m: m.register_forward_hook(lambda m, x, y: 1.1 * y)),
)
OPTIMIZERS = (  # with an eps at which a rounding of gradients near 0 stays a rounding
    lambda params: torch.optim.SGD(params, 0.05, momentum=0.9, weight_decay=0.01),
    lambda params: torch.optim.AdamW(params, 0.01, eps=1e-3, fused=True),
    lambda params: torch.optim.RMSprop(params, 0.01, eps=1e-3, momentum=0.5),
)


class Program:
    """A model, its optimizer, and the steps to take; the same for every `kit`."""

    def __init__(self, seed: int, kit: Kit):
        self.random, self.kit, self.handles, self.last = random.Random(seed), kit, [], 0
        self.blocks = [self.random.choice(BLOCKS) for _ in range(self.random.randint(1, 3))]
        self.make, self.to_none = self.random.choice(OPTIMIZERS), self.random.random() < 0.7
        self.wrap(self.build())
        self.steps = [self.random.choice(STEPS) for _ in range(7)] + [train]

    def build(self) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return nn.Sequential(*[block() for block in self.blocks], L(6, 3))

    def wrap(self, module: nn.Module) -> None:
        self.model = self.kit.wrap(module)
        self.optimizer = self.kit.optimizer(self.model, self.make)

    def params(self) -> list[nn.Parameter]:
        return list(self.kit.inner(self.model).parameters())

    def batch(self, n: int) -> torch.Tensor:
        self.last += 1
        return self.kit.share((rows(n, 6, seed=self.last),))[0]

    def end_step(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=self.to_none)

    def run(self) -> dict[str, torch.Tensor]:
        for step in self.steps:
            step(self)
        return self.kit.weights(self.model)


def train(program):
    program.model(program.batch(program.random.choice((4, 6, 7)))).square().mean().backward()
    program.kit.synchronize(program.model)
    if program.random.random() < 0.3:
        program.kit.clip(program.model, 0.1)
    program.end_step()


def accumulate(program):
    x = program.batch(6)
    with getattr(program.optimizer, "adding", torch.enable_grad)():
        with program.kit.no_sync(program.model):
            (program.model(x).square().mean() / 2).backward()
        (program.model(x.flip(1)).abs().mean() / 2).backward()
    program.kit.synchronize(program.model)
    program.end_step()


def evaluate_before_backward(program):
    loss = program.model(program.batch(7)).square().mean()
    with torch.no_grad():
        program.model(program.batch(6))
    loss.backward()
    program.kit.synchronize(program.model)
    program.end_step()


def attack(program):
    """Train on inputs that are moved along their gradient, from a pass with frozen weights."""
    flags, x = [param.requires_grad for param in program.params()], program.batch(6).requires_grad_()
    program.kit.inner(program.model).requires_grad_(False)
    program.model(x).square().mean().backward()
    for param, flag in zip(program.params(), flags, strict=True):
        param.requires_grad_(flag)
    program.model(x.detach() + 0.1 * x.grad.sign()).square().mean().backward()
    program.kit.synchronize(program.model)
    program.end_step()


def freeze_or_thaw(program):
    on = program.random.random() < 0.5
    for param in program.random.sample(program.params(), 1):
        param.requires_grad_(on)


def change_rate(program):
    for group in program.optimizer.param_groups:
        group["lr"] *= 0.7


def clamp(program):
    for param in program.params():
        param.data.clamp_(-0.5, 0.5)


def hook(program):
    param = program.random.choice([param for param in program.params() if param.requires_grad])
    program.handles.append(param.register_hook(lambda grad: 2 * grad))


def remove_hooks(program):
    while program.handles:
        program.handles.pop().remove()


def resume(program):
    """The state of the model and the optimizer goes into new ones."""
    flags = [param.requires_grad for param in program.params()]
    weights, state = program.kit.weights(program.model), copy.deepcopy(program.optimizer.state_dict())
    module = program.build()
    module.load_state_dict(weights)
    program.wrap(module)
    program.optimizer.load_state_dict(state)
    for param, flag in zip(program.params(), flags, strict=True):
        param.requires_grad_(flag)


STEPS = (train, train, train, accumulate, evaluate_before_backward, attack, freeze_or_thaw, freeze_or_thaw)
STEPS += (change_rate, clamp, hook, remove_hooks, resume)
