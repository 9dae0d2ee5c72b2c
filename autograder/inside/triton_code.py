"""Say which instruction of a kernel's code Triton would not compile.

A value that a kernel can get is a number, a tensor of Triton's, or something of `triton.language`; so is all that it
computes from them, if it reads no other attributes.
"""

import builtins
import functools
import opcode
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from . import compilers

OPS = tuple(opcode.opname)
FORWARD = frozenset(op for op in opcode.hasjrel if "BACKWARD" not in OPS[op])  # a loop's turn begins no expression
TRITON = compilers.folders("triton")
LANGUAGE = (*compilers.folders("triton/language"), *(f"{folder}runtime/interpreter.py" for folder in TRITON))
del compilers  # an answer can reach this module
BUILTINS = range, min, max, len, float, isinstance, print, slice, NotImplementedError  # the last is a blank answer's
METHODS = frozenset(
    """
    T abs advance argmax argmin associative_scan atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or
    atomic_xchg atomic_xor broadcast_to cast cdiv ceil cos cumprod cumsum dtype element_ty erf exp exp2 expand_dims flip
    floor gather get_int_max_value get_int_min_value histogram is_bf16 is_block is_bool is_floating is_fp16 is_fp32
    is_fp64 is_fp8 is_int is_int_signed is_int_unsigned is_ptr item itemsize load log log2 logical_and logical_or max
    min ndim numel permute primitive_bitwidth ravel reduce reduce_or reshape rsqrt scalar shape sigmoid sin softmax sort
    split sqrt sqrt_rn store sum to to_tensor trans type value view xor_sum
    """.split()  # noqa: SIM905
)  # of tensors, types and constants; the interpreter itself writes `interpreter_semantic.to_tensor(...)`
PLAIN = (type(None), bool, int, float, str)
REFUSED = (
    "IMPORT_", "STORE_ATTR", "DELETE_ATTR", "DELETE_GLOBAL", "DELETE_NAME", "DELETE_SUBSCR", "STORE_GLOBAL",
    "STORE_NAME", "STORE_SUBSCR", "STORE_SLICE", "MATCH_", "LOAD_BUILD_CLASS", "LOAD_NAME", "LOAD_SUPER_",
    "LOAD_CLASSDEREF", "LOAD_FROM_DICT_", "LOAD_LOCALS",
)  # fmt: skip
ABSENT = object()


class CodeStep(NamedTuple):
    """An instruction: what it does, the name that it has, its line, and whether a jump leads to it."""

    does: str
    name: str
    line: int
    is_target: bool


def first_fault(code: CodeType, names: dict, kernel: type) -> tuple[str, str, int] | None:
    """Return (kind, what, line) of the first instruction that Triton would not compile; `names` are the globals, and
    `kernel` is the type of functions under @triton.jit."""
    written, module = "", None  # the name that is being read, with its attributes so far, and the module that it is
    for step in steps(code):
        if module is not None and (step.does != "attribute" or step.is_target):
            return "name", written, step.line
        if step.does == "refused":
            return "form", step.name, step.line
        if step.does == "attribute" and module is None:
            if step.name not in METHODS:
                return "attribute", step.name, step.line
        elif step.does != "other":
            value, written = looked_up(step, written, module, names)
            if (value is ABSENT and module is not None) or not (is_module(value) or is_safe(value, kernel)):
                return "name", written, step.line
            module = value if is_module(value) else None
    return None


def looked_up(step: CodeStep, written: str, module: Any, names: dict) -> tuple[Any, str]:
    """Return the value of a global name, or of a module's attribute, and how it is written; the value may be ABSENT."""
    if module is None:
        return names.get(step.name, vars(builtins).get(step.name, ABSENT)), step.name
    value = ABSENT if step.name.startswith("_") else vars(module).get(step.name, ABSENT)
    return value, f"{written}.{step.name}"


def steps(code: CodeType) -> Iterator[CodeStep]:
    """Return the instructions of a function, without the functions in it."""
    raw, lines = code.co_code, [line for line, *_ in code.co_positions()]
    targets, extended, found = set[int](), 0, list[tuple[int, int]]()
    for at in range(0, len(raw), 2):
        number = raw[at + 1] | extended
        extended = number << 8 if OPS[raw[at]] == "EXTENDED_ARG" else 0
        if raw[at] in FORWARD:
            targets |= {at + 2 * (number + more) for more in (1, 2, 3)}  # an instruction has a cache of 0 to 2
        if OPS[raw[at]] not in ("EXTENDED_ARG", "CACHE"):
            found.append((at, number))
    for at, number in found:
        does, name = meaning(OPS[raw[at]], number, code)
        yield CodeStep(does, name, lines[at // 2] or 0, at in targets)


def meaning(op: str, number: int, code: CodeType) -> tuple[str, str]:
    """Return what an instruction does, and with which name."""
    if op == "LOAD_GLOBAL":
        return "global", code.co_names[number >> 1]
    if op in ("LOAD_ATTR", "LOAD_METHOD"):
        return "attribute", code.co_names[number >> (op == "LOAD_ATTR" and sys.version_info >= (3, 12))]
    if op.startswith("IMPORT_"):
        return "refused", f"import {code.co_names[number]}"
    if op == "STORE_ATTR":
        return "refused", f"set {code.co_names[number]}"
    return ("refused" if op.startswith(REFUSED) else "other"), op


def is_module(value: Any) -> bool:
    """Whether it is a module of Triton's, or Python's `math`, where a kernel's names may be."""
    if type(value) is not ModuleType:
        return False
    name = str(vars(value).get("__name__"))
    return sys.modules.get(name) is value and f"{name}.".startswith(("triton.", "math."))


def is_safe(value: Any, kernel: type) -> bool:
    """Whether a kernel may have a value; a global name without one (ABSENT) is an error of Python's when it runs."""
    kind = type(value)
    if value is ABSENT or kind in PLAIN or kind is kernel or any(value is each for each in BUILTINS):
        return True
    if kind is tuple:
        return all(is_safe(each, kernel) for each in value)
    if kind is vars(sys.modules["triton.language.core"])["constexpr"]:
        return is_safe(vars(value).get("value"), kernel)
    if issubclass(kind, type):
        return is_of_language(value)
    is_interpreters = value is vars(sys.modules["triton.runtime.interpreter"])["interpreter_semantic"]
    return is_interpreters or is_function_of_language(value) or is_of_language(kind)


def is_of_language(kind: type) -> bool:
    """Whether a class is one of `triton.language`, and does not only say so."""
    module, name = type.__getattribute__(kind, "__module__"), type.__getattribute__(kind, "__qualname__")
    if not f"{module}.".startswith("triton.language."):
        return False
    places = sys.modules.get(module), sys.modules["triton.language"]  # the interpreter replaces some in one of them
    return any(place is not None and vars(place).get(name) is kind for place in places)


def is_function_of_language(value: Any) -> bool:
    """Whether a function is of `triton.language`, as written or as the interpreter replaces it, or one of Triton's for
    constants, such as `triton.cdiv`."""
    if type(value) is functools.partial:
        return is_function_of_language(value.func)
    if type(value).__name__ == "ConstexprFunction":
        return is_of_triton(vars(value).get("fn"))
    return type(value) is FunctionType and value.__code__.co_filename.startswith(LANGUAGE)


def is_of_triton(value: Any) -> bool:
    return type(value) is FunctionType and value.__code__.co_filename.startswith(TRITON)
