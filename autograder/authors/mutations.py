"""Mutation operators by name: functions from a node of a solution to its replacements."""

import ast
import copy
from collections.abc import Callable, Iterator
from typing import Any

Variants = Iterator[ast.AST | list[ast.stmt]]
OPERATORS: dict[str, Callable[[Any], Variants]] = {}

COMPARED = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
ARITHMETIC = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div, ast.Add),
    ast.Div: (ast.Mult, ast.FloorDiv),
    ast.FloorDiv: (ast.Div, ast.Mod),
    ast.Mod: (ast.FloorDiv,),
    ast.Pow: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.LShift: (ast.RShift,),
    ast.RShift: (ast.LShift,),
}
OTHERS = {"min": "max", "any": "all", "zeros": "ones", "zeros_like": "ones_like", "argmin": "argmax", "floor": "ceil"}
OTHERS |= {"maximum": "minimum", "amax": "amin", "sin": "cos", "exp": "expm1", "sqrt": "square"}
OTHERS |= {"send": "recv", "isend": "irecv"}
OTHERS |= {other: name for name, other in OTHERS.items()}
ORDER_FREE = {"sum", "max", "min", "any", "all", "set", "frozenset", "sorted"}
IN_PLACE_TOO = {"add", "sub", "mul", "div", "masked_fill", "clamp", "sqrt", "exp", "requires_grad"}
FRESH = {"zeros", "ones", "empty", "full", "zeros_like", "ones_like", "empty_like", "full_like", "clone"}
FRESH |= {"new_zeros", "new_empty", "dict", "list", "set", "deque"}
SAME_TWICE = {"zero_", "copy_", "wait", "fill_", "clear", "set_rng_state"}


def operator(*kinds: type) -> Callable:
    """Register a function that yields replacements for a node of these kinds."""

    def register(function):
        OPERATORS[function.__name__] = lambda node: function(node) if isinstance(node, kinds) else iter(())
        return function

    return register


def name_of(function: ast.AST) -> str:
    """Return the last part of a called name."""
    return getattr(function, "attr", "") or getattr(function, "id", "")


def with_(node: Any, **fields: Any) -> Any:
    """Return a copy of the node with some fields changed."""
    new = copy.deepcopy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


@operator(ast.Constant)
def constant(node: Any):
    if type(node.value) in (int, float):
        yield ast.Constant(node.value + 1)
        yield ast.Constant(node.value - 1)
    elif type(node.value) is bool and not getattr(node, "only_guards", False):
        yield ast.Constant(not node.value)


@operator(ast.Compare)
def comparison(node: Any):
    for i, op in enumerate(node.ops):
        for other in COMPARED.get(type(op), ()):
            yield with_(node, ops=[*node.ops[:i], other(), *node.ops[i + 1 :]])


@operator(ast.BinOp, ast.AugAssign)
def arithmetic(node: Any):
    for other in ARITHMETIC.get(type(node.op), ()):
        yield with_(node, op=other())


@operator(ast.BinOp)
def one_side_alone(node: Any):
    if isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.Div)):
        yield node.left
        yield node.right


@operator(ast.AugAssign)
def plain_assignment(node: Any):
    yield ast.Assign([node.target], node.value, lineno=node.lineno)


@operator(ast.Assign)
def in_place(node: Any):
    """Replace x = x + y by x += y, which also changes other references to x."""
    (target, *more), value = node.targets, node.value
    if not more and isinstance(value, ast.BinOp) and ast.unparse(value.left) == ast.unparse(target):
        yield ast.AugAssign(target, value.op, value.right)


@operator(ast.AugAssign)
def new_value(node: Any):
    """Replace x += y by x = x + y, where the caller or a list holds x (`mutants.mark_what_others_hold`)."""
    if getattr(node, "held", False):
        yield ast.Assign([node.target], ast.BinOp(node.target, node.op, node.value), lineno=node.lineno)


@operator(ast.Call)
def in_place_or_copy(node: Any):
    """Replace x.add_(y) by x.add(y), or the other way round."""
    name = name_of(node.func)
    if isinstance(node.func, ast.Attribute) and name.rstrip("_") in IN_PLACE_TOO:
        yield with_(node, func=with_(node.func, attr=name.rstrip("_") + "_" * (not name.endswith("_"))))


@operator(ast.Call)
def shared_memory(node: Any):
    """Replace empty_like(x) by x."""
    if name_of(node.func).endswith("_like"):
        yield node.args[0]


@operator(ast.Assign)
def kept_between_calls(node: Any):
    """Keep a list or a tensor, which each call would make for itself, until the next call."""
    parts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
    for i, part in enumerate(parts):
        if isinstance(part, (ast.List, ast.Dict)) or (isinstance(part, ast.Call) and name_of(part.func) in FRESH):
            key = ast.Constant(f"{ast.unparse(node.targets[0])} {i}")
            kept = ast.Call(ast.Attribute(ast.Call(ast.Name("globals"), [], []), "setdefault"), [key, part], [])
            yield with_(node, value=ast.Tuple([*parts[:i], kept, *parts[i + 1 :]]) if len(parts) > 1 else kept)


@operator(ast.Attribute)
def ranks_reversed(node: Any):
    """Replace comm.rank by comm.size - 1 - comm.rank."""
    if node.attr == "rank" and isinstance(node.ctx, ast.Load):
        last = ast.BinOp(with_(node, attr="size"), ast.Sub(), ast.Constant(1))
        yield ast.BinOp(last, ast.Sub(), node)


@operator(ast.UnaryOp)
def sign_or_not(node: Any):
    yield node.operand


@operator(ast.BoolOp)
def condition_of_several(node: Any):
    yield with_(node, op=ast.And() if isinstance(node.op, ast.Or) else ast.Or())
    yield from node.values


@operator(ast.If, ast.While)
def condition(node: Any):
    if isinstance(node, ast.If):
        yield with_(node, test=ast.Constant(True))
        yield with_(node, test=ast.Constant(False))
    yield with_(node, test=ast.UnaryOp(ast.Not(), node.test))


@operator(ast.IfExp)
def choice(node: Any):
    yield node.body
    yield node.orelse


@operator(ast.Slice)
def bounds(node: Any):
    for name in ("lower", "upper", "step"):
        if (value := getattr(node, name)) is not None:
            yield with_(node, **{name: None})
            if name != "step":
                yield with_(node, **{name: ast.BinOp(value, ast.Add(), ast.Constant(1))})


@operator(ast.Call)
def arguments(node: Any):
    """Swap two arguments, or the two ranks of sendrecv, or drop a keyword argument."""
    if name_of(node.func) == "sendrecv":
        yield with_(node, args=[node.args[0], node.args[3], node.args[2], node.args[1]])
    for i in range(0 if name_of(node.func) in ORDER_FREE | {"maximum", "minimum"} else len(node.args) - 1):
        if not any(isinstance(arg, ast.Starred) for arg in node.args[i : i + 2]):
            yield with_(node, args=[*node.args[:i], node.args[i + 1], node.args[i], *node.args[i + 2 :]])
    for i in (i for i, keyword in enumerate(node.keywords) if keyword.arg != "strict"):
        yield with_(node, keywords=[*node.keywords[:i], *node.keywords[i + 1 :]])


@operator(ast.Call)
def one_more_or_less(node: Any):
    if isinstance(node.func, ast.Name) and node.func.id == "range":
        last = len(node.args) > 1
        for op in (ast.Add(), ast.Sub()):
            yield with_(
                node, args=[*node.args[:last], ast.BinOp(node.args[last], op, ast.Constant(1)), *node.args[last + 1 :]]
            )


@operator(ast.Call)
def call_left_out(node: Any):
    """Replace x.clone() by x."""
    if isinstance(node.func, ast.Attribute) and not node.args and not isinstance(node.func.value, ast.Constant):
        yield node.func.value
    elif isinstance(node.func, ast.Name) and len(node.args) == 1 and not isinstance(node.args[0], ast.Starred):
        yield node.args[0]


@operator(ast.Call)
def another_function(node: Any):
    if isinstance(node.func, ast.Name) and node.func.id in OTHERS:
        yield with_(node, func=ast.Name(OTHERS[node.func.id]))
    elif isinstance(node.func, ast.Attribute) and node.func.attr in OTHERS:
        yield with_(node, func=with_(node.func, attr=OTHERS[node.func.attr]))


@operator(ast.Expr, ast.AugAssign, ast.Assign, ast.Continue, ast.Break, ast.Raise)
def statement_left_out(node: Any):
    """Leave out a statement, but no assignment to a name: the next line would raise an error."""
    if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Name, ast.Tuple))):
        yield ast.Pass()


@operator(ast.Expr, ast.AugAssign)
def statement_twice(node: Any):
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and name_of(node.value.func) in SAME_TWICE):
        yield [node, node]


@operator(ast.For, ast.comprehension)
def reversed_loop(node: Any):
    if ast.unparse(node.target) == "_" or getattr(node, "order_free", False):
        return
    every = ast.Call(ast.Name("list"), [node.iter], [])
    yield with_(node, iter=ast.Call(ast.Name("reversed"), [every], []))


@operator(ast.For)
def first_or_last_turn_left_out(node: Any):
    every = ast.Call(ast.Name("list"), [node.iter], [])
    for cut in (ast.Slice(ast.Constant(1)), ast.Slice(None, ast.UnaryOp(ast.USub(), ast.Constant(1)))):
        yield with_(node, iter=ast.Subscript(every, cut))


@operator(ast.Return)
def returned(node: Any):
    if node.value is not None:
        yield ast.Return(None)
    if isinstance(node.value, ast.Tuple) and len(node.value.elts) == 2:
        yield ast.Return(ast.Tuple(node.value.elts[::-1]))


@operator(ast.comprehension)
def filter_left_out(node: Any):
    if node.ifs:
        yield with_(node, ifs=[])
