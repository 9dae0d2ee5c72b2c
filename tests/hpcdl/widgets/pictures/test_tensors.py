"""The explorables of lab 00: what they say of shapes, cells, bits and names is what torch and Python do."""

import itertools

import numpy as np
import pytest
import torch

from hpcdl.widgets.pictures import (
    aliases,
    bits,
    broadcasting,
    grad_steps,
    handing_out,
    masks,
    row_sums,
    strides,
)

pytestmark = pytest.mark.labs

PICTURES = {
    strides: {"view": tuple(strides.VIEWS), "row": (0, 2), "column": (0, 3)},
    broadcasting: {"a": broadcasting.SHAPES[1::2], "b": broadcasting.SHAPES[::2]},
    masks: {"t": (-6, 0, 6), "what": tuple(masks.CHOICES)},
    row_sums: {"columns": (3, 4), "dim": (0, 1), "keepdim": (False, True)},
    aliases: {"step": tuple(range(1, len(aliases.LINES) + 1))},
    bits: {"x": bits.NUMBERS, "look": tuple(bits.LOOKS)},
    grad_steps: {"steps": (0, 3, 8), "lr": (0.05, 0.6), "forget": (False, True)},
    handing_out: {"program": tuple(handing_out.PROGRAMS), "asked": (0, 1, 4, 9)},
}
START = {handing_out: {"asked": 1}, strides: {"view": "x"}}
modules = pytest.mark.parametrize("module", PICTURES, ids=lambda module: module.__name__.rpartition(".")[2])


def shown(module, **changes):
    explorable = module.explorable()
    explorable.picture.render({**explorable.state, **changes})
    return explorable.picture


@modules
def test_every_corner_is_drawn_without_warning(module, draws_its_corners):
    draws_its_corners(module.explorable, PICTURES[module])


@modules
def test_every_control_changes_the_picture(module, answers_its_controls):
    answers_its_controls(module.explorable, PICTURES[module], **START.get(module, {}))


@modules
def test_axes_have_titles(module):
    axes = module.explorable().picture.axes
    for one in axes.values() if isinstance(axes, dict) else []:
        assert one.get_title(loc="left") or not one.get_visible()


@pytest.mark.parametrize("name", strides.VIEWS)
def test_every_element_is_in_the_cell_that_its_strides_say(name):
    x = torch.arange(strides.CELLS).view(3, 4)
    y = strides.VIEWS[name](x)
    memory = y.as_strided((y.untyped_storage().nbytes() // 8,), (1,), 0)
    for index in np.ndindex(*y.shape):
        assert memory[strides.cell(y, index)] == y[index]


def test_what_copies_is_called_a_copy_and_the_rest_a_view():
    copies = {name for name in strides.VIEWS if "A copy" in shown(strides, view=name).caption}
    assert copies == {"x[:, [0, 2]]", "x.T.reshape(3, 4)", "x[1].repeat(3, 1)"}


def test_the_framed_element_is_found_by_its_strides():
    assert "shape (4, 3), strides (1, 4). y[2, 1] is in cell 0 + 2·1 + 1·4 = 6" in shown(strides, row=2).caption
    assert "y[3] is in cell 4 + 3·1 = 7" in shown(strides, view="x[1]", column=3).caption


def test_shapes_clash_where_torch_says_so():
    for a, b in itertools.product(broadcasting.SHAPES, repeat=2):
        try:
            torch.broadcast_shapes(a, b)
        except RuntimeError:
            assert broadcasting.fits(a, b)
        else:
            assert broadcasting.fits(a, b) is None
    assert "3 meets 4, and neither is 1" in shown(broadcasting, a=(3,), b=(3, 4)).caption
    assert "(3, 1) and (4,) give (3, 4)" in shown(broadcasting, a=(3, 1), b=(4,)).caption


def test_a_square_without_keepdim_is_called_wrong_and_the_others_are_not():
    for columns, dim, keepdim in itertools.product((3, 4), (0, 1), (False, True)):
        caption = shown(row_sums, columns=columns, dim=dim, keepdim=keepdim).caption
        assert ("No error, and wrong" in caption) == ((columns, dim, keepdim) == (3, 1, False))
        assert ("RuntimeError" in caption) == ((columns, dim, keepdim) == (4, 1, False))


def test_the_program_moves_names_and_numbers_as_its_sentences_say():
    names = [[sorted(memory.names) for memory in aliases.after(line)] for line in range(1, 10)]
    assert names[1] == [["a", "b"]]
    assert names[3] == [["a", "b", "d"], ["c"]]
    assert names[6] == [["b", "d"], ["c"], ["a"]]
    assert names[8] == [["b", "d"], ["a", "c"]]
    assert aliases.after(5)[0].numbers == [1, 1, 1]
    assert aliases.after(5)[1].numbers == [0, 0, 0]
    assert aliases.after(9)[1].numbers == [2, 10, 2]


def test_bits_are_those_that_numpy_sees():
    for number in bits.NUMBERS:
        assert bits.stored(torch.tensor(number)).bits == f"{np.float32(number).view(np.uint32):032b}"
    assert "0.7 becomes 0" in shown(bits, x=0.7, look="x.to(torch.int32)").caption.replace("0.699999988", "0.7")
    assert "16777216" in shown(bits, x=16777217.0).figure.axes[0].texts[0].get_text()


def test_forgotten_gradients_swing_and_forgetting_ones_come_to_rest():
    assert abs(grad_steps.path(8, 0.2, True).w[-1]) < 0.05
    piled = grad_steps.path(8, 0.2, False)
    assert min(piled.w) < -1
    assert max(piled.w) > 1
    assert piled.grads == pytest.approx(np.cumsum(piled.slopes))


@pytest.mark.parametrize("program", handing_out.PROGRAMS)
def test_the_programs_draw_and_hand_out_what_python_makes_them(program):
    calls = []

    def order(n):
        calls.append(n)
        return torch.tensor(handing_out.ORDERS[len(calls) - 1])

    names: dict = {}
    exec("\n".join(handing_out.PROGRAMS[program]), names)
    items = names["epochs"](7, handing_out.SIZE, 3, order)
    for asked in range(10):
        now = handing_out.moment(program, asked)
        item = next(iter(items[asked - 1 : asked]), None) if isinstance(items, list) else asked and next(items, None)
        if item is None:
            break
        assert now.drawn == len(calls)
        if asked and program != "yield":
            epoch, start, stop = now.item
            assert item.tolist() == list(handing_out.ORDERS[epoch][start:stop])
