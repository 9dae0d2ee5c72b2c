"""The exchangeable training: what is lent steps aside for what is there, and the witness tells whose lines ran."""

import ast
import json
import textwrap

import pytest
import torch
from torch import Tensor

from hpcdl.comm import simulate
from hpcdl.identity import code_of
from hpcdl.points import Checked, PointsRecord
from hpcdl.training.own_stack import BRICKS, Function, bring, lending, lines, mine, serial, tally, witnessed
from hpcdl.training.own_stack.lines import code_lines, unit_of

STEPS, IMAGES, LR = 3, 12, 0.05


def first_weights() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {(8, 1, 3, 3): 0.4, (16, 8, 3, 3): 0.15, (256, 10): 0.08, (10,): 0.1}
    return [(torch.randn(shape, generator=generator) * size).bfloat16().float() for shape, size in shapes.items()]


def batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.rand(IMAGES, 1, 8, 8, generator=generator), torch.randint(10, (IMAGES,), generator=generator))
        for _ in range(STEPS)
    ]


def learn(comm):
    """Three steps by whatever `train_step` is in this file at the moment."""
    weights = first_weights()
    velocities = [torch.zeros_like(w) for w in weights]
    for t, (x, y) in enumerate(batches()):
        own = slice(comm.rank, None, comm.size)
        globals()["train_step"](weights, velocities, x[own], y[own], LR, 4 * t, comm)
    return weights


def ring_all_reduce(x, comm):
    """The sum, by the machine."""
    # not a ring at all

    comm.all_reduce(x)


def conv2d(x, w):
    return torch.nn.functional.conv2d(x, w)


def trained(own: list[str], p: int = 2):
    with lending(globals(), own):
        results = simulate(witnessed, p, learn).results
    return [weights for weights, _ in results], tally(
        [ran for _, ran in results], globals(), own, ["learn", "first_weights", "batches"]
    )


@pytest.mark.parametrize("p", [1, 2, 4])
def test_lent_bricks_train_like_one_machine(p):
    ranks, _ = trained([], p)
    for weights in ranks:
        for own, first, right in zip(weights, ranks[0], serial(first_weights(), batches(), LR), strict=True):
            assert torch.equal(own, first)
            assert (own.double() != right).sum() <= 3, "float32 may fall on the other side of the noise"
            assert torch.allclose(own.double(), right, rtol=2**-6, atol=1e-3)


def test_bricks_have_the_lines_that_the_picture_shows_when_all_are_lent():
    _, lines = trained([])
    assert lines.lent == {name: brick.lines for name, brick in BRICKS.items()}
    assert lines.yours == {}
    assert not lines.is_all_yours
    assert str(lines).startswith(
        f"0 of {sum(brick.lines for brick in BRICKS.values())} lines are yours; lent: momentum"
    )
    assert lines.calls["train_step"] == STEPS
    assert lines.ready_made["convolution"]


def test_notebooks_brick_replaces_the_librarys():
    _, lines = trained(["ring"])
    assert lines.yours == {"ring": 2}
    assert "ring" not in lines.lent
    assert lines.calls["ring_all_reduce"] == STEPS * lines.calls["make_buckets"]


def test_names_are_restored_afterwards():
    before = ring_all_reduce
    with lending(globals(), []) as whose:
        assert globals()["ring_all_reduce"] is not before
        assert set(whose.values()) == {"lent"}
    assert globals()["ring_all_reduce"] is before
    assert "train_step" not in globals()
    with pytest.raises(ValueError, match="own has 'rign'; the bricks are momentum"), lending(globals(), ["rign"]):
        pass


def test_ready_made_convolutions_are_told():
    namespace = {**globals(), "conv2d_input_grad": conv2d, "conv2d_weight_grad": conv2d}
    _, ran = simulate(witnessed, 1, lambda comm: conv2d(torch.ones(1, 1, 3, 3), torch.ones(1, 1, 2, 2))).results[0]
    lines = tally([ran], namespace, ["convolution"], [])
    assert not lines.is_all_yours
    assert "ready-made code ran in convolution (aten::conv" in str(lines)


def a_ring(x, comm):
    left, right, incoming = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size, torch.empty_like(x)
    comm.sendrecv(x, right, incoming, left)
    x += incoming


def test_all_yours_is_said_where_nothing_is_lent():
    _, ran = simulate(witnessed, 2, lambda comm: a_ring(torch.ones(2), comm)).results[0]
    lines = tally([ran], {**globals(), "ring_all_reduce": a_ring}, ["ring"], [])
    own = sum(lines.yours.values())
    assert lines.is_all_yours
    assert str(lines) == f"{own} lines, all yours."


@pytest.mark.parametrize("name", ["all_reduce", "_all_reduce"])
def test_machines_own_sum_is_not_yours(name):
    _, ran = simulate(witnessed, 2, lambda comm: getattr(comm, name)(torch.ones(2))).results[0]
    lines = tally([ran], globals(), ["ring"], [])
    assert lines.ready_made["ring"] == ["comm.all_reduce"]
    _, ran = simulate(witnessed, 2, lambda comm: ring_all_reduce(torch.ones(2), comm)).results[0]
    lines = tally([ran], globals(), ["ring"], [])
    assert not lines.is_all_yours
    assert str(lines).endswith("are yours; ready-made code ran in ring (comm.all_reduce).")


def test_torchs_autograd_is_off():
    def asks(comm):
        x = torch.ones(2, requires_grad=True)
        return (x * x).requires_grad

    assert simulate(witnessed, 1, asks).results[0][0] is False


def test_brick_is_yours_with_all_points():
    record, namespace = PointsRecord(), {"random16": len, "bf16_round_bits": conv2d, "make_buckets": code_lines}
    rounding, buckets = (code_of(namespace, BRICKS[brick].functions) for brick in ("rounding", "buckets"))
    assert mine(namespace, record) == []
    record.add(Checked("own_stack.rounding", 13.0, 14.0, code=rounding))
    record.add(Checked("own_stack.buckets", 10.0, 10.0, code=buckets))
    assert mine(namespace, record) == ["buckets"]
    record.add(Checked("own_stack.rounding", 14.0, 14.0, code=rounding))
    assert mine(namespace, record) == ["buckets", "rounding"]
    assert mine({"make_buckets": code_lines, "random16": len}, record) == ["buckets"]
    assert mine({**namespace, "bf16_round_bits": a_ring}, record) == ["buckets"]  # another code than the one checked
    record.add(Checked("own_stack.buckets", None))
    assert mine(namespace, record) == ["rounding"]


def test_code_is_known_by_what_it_does_and_what_it_calls():
    def hash_of(text: str) -> str:
        namespace = {"__name__": "__main__"}
        exec(text, namespace)
        return code_of(namespace, ("f",))

    first = hash_of("def g(x): return x\ndef f(x): return g(x)")
    assert hash_of("# moved\n\ndef f(x):\n    return g(x)  # the same\ndef g(x): return x") == first
    assert hash_of("def g(x): return x + 1\ndef f(x): return g(x)") != first
    assert hash_of("def g(x): return x\ndef f(x): return g(x) or 1") != first


CODE = '''
def f(x):
    """Two
    lines of docstring."""

    # a comment
    y = [x,
         """not
         a docstring"""]  # three lines
    return y
'''


def test_blank_lines_comments_and_docstrings_do_not_count():
    assert code_lines(CODE) == {2, 7, 8, 9, 10}


def test_functions_of_python_and_torch_do_not_count():
    for function in (json.dumps, torch.nn.functional.conv_transpose2d, textwrap.dedent):
        code = getattr(function, "__code__", None)
        if code:
            assert unit_of(Function(code.co_filename, code.co_firstlineno, code.co_qualname)) is None
    assert unit_of(Function("<string>", 1, "f")) is None


def notebook(folder, *cells: str) -> None:
    content = {"cells": [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]}
    (folder / "07_ddp.ipynb").write_text(json.dumps(content))


def test_a_function_of_an_earlier_lab_is_printed_with_what_it_calls(tmp_path, capsys):
    cells = (
        "def helper():\n    return 1",
        "%time 1\ndef ring(x):\n    return helper()",
        "def half(:",
        "def open_one():\n    raise NotImplementedError",
    )
    notebook(tmp_path, *cells)
    for name, said in {
        "ddp.ring": 'def ring(x):\n    return helper()\n# it calls helper: bring("ddp.helper")',
        "ddp.open_one": "open_one is still open in 07_ddp.ipynb",
        "ddp.other": "07_ddp.ipynb has no function 'other'",
        "backprop.backward": "There is no notebook of lab 'backprop' beside this one",
        "ddp": "Name a lab and a function",
    }.items():
        bring(name, tmp_path)
        assert said in capsys.readouterr().out


def test_machine_uses_nothing_but_the_machine():
    """What lies below the bricks is not lent: a helper of its own would be counted as a line of others."""
    for path in sorted(lines.LIBRARY.rglob("*.py")):
        module = path.relative_to(lines.LIBRARY).with_suffix("").as_posix().replace("/", ".")
        if not below(module) or module.startswith("kernels."):  # which run as a brick
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            used = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            used += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in used:
                assert not name.startswith("hpcdl.") or below(name.removeprefix("hpcdl.")), (module, name)


def below(module: str) -> bool:
    return any(f"{module}.".startswith(f"{name}.") for name in lines.MACHINE)
