"""Convert a cell to plain Python: handle magics, prompts and indented cells like IPython, as far as an answer can
notice.

`%%time`, `%%capture` and others become their body, stacked to any depth; `%time x = 1` becomes its statement, `%pylab`
its imports, `%env`, `%cd`, `!mkdir` and `%%writefile` a call of the substitute for IPython's shell (`shell`); cells in
other languages become empty. All other magics become calls of `get_ipython()`.
"""

import ast
import re
import shlex
import textwrap
import zlib
from functools import cache

from .syntax import is_python

CELL_MAGIC = re.compile(r"^(\s*)%%(\w+)[ \t]*([^\n]*)(?:\n|$)")
TRANSPARENT = frozenset({"px", "time", "capture", "timeit", "prun"})
TIMEIT = re.compile(r"(?:-[nrp] *\d+\s*|-[tcqov]+(?:\s+|$))*")  # options, before the set-up
FILES = frozenset({"writefile", "file"})
LINE_MAGIC = re.compile(r"""get_ipython\(\)\.run_line_magic\('(\w+)', ('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\)""")
MKDIR = re.compile(r"get_ipython\(\)\.(?:system\('mkdir |run_line_magic\('mkdir', ')((?:-p +)?[\w./ $\{}-]+)'\)")
OPTIONS = re.compile(r"\s*(?:-[lsTD] *\S+\s+|-[rq]+\s+|--[\w-]+\s+)*")  # of %prun and %time, before the statement
PROMPT = re.compile(r"\s*In \[\d+\]: ")  # followed by a plain assignment it is also valid Python
PYLAB = (
    "import numpy, matplotlib; from matplotlib import pyplot; np = numpy; plt = pyplot; "
    "from pylab import *; from numpy import *"
)
# Calls that every answer may need; their first arguments may name variables: `$x` or `{x}`.
ALWAYS = (
    *(f"get_ipython().{name}(" for name in ("setenv", "writefile", "chdir", "mkdir")),
    "get_ipython().run_line_magic('autoreload', ",
)
# Calls that remove names: only an exercise that failed without them is checked with them.
REMOVES = tuple(f"get_ipython().run_line_magic('{name}'" for name in ("reset", "reset_selective", "xdel"))
RUNS = (  # calls that may bind any name
    *("get_ipython().run_cell", "get_ipython().push(", "get_ipython().ex(", "get_ipython().user_ns"),
    *("get_ipython().run_line_magic('run', ", "get_ipython().run_line_magic('time', "),
)


def plain_python(source: str) -> str:
    """Return a cell without its magics, on the same lines."""
    before = ""
    while found := CELL_MAGIC.match(source):
        blank, name, line = found.groups()
        rest = source[found.end() :]
        if name in FILES:
            words = split(line)
            path = words[-1] if words else ""
            return before + f"get_ipython().writefile({path!r}, {rest!r}, {'-a' in words})\n"
        if name not in TRANSPARENT:
            return ""  # another language
        if name == "timeit":
            return before + blank + _timed(plain_python(rest), TIMEIT.sub("", line, count=1))
        before += blank + (_captured(line) if name == "capture" else "") + "\n"
        source = rest
    if is_python(source) and not PROMPT.match(source):
        return before + source if before.strip() else before * bool(source.strip()) + source
    try:
        python = MKDIR.sub(r"get_ipython().mkdir('\1')", transformer().transform_cell(source))
        return before + LINE_MAGIC.sub(_line, python)
    except Exception:  # the transformer rejects invalid code, which the parser will report
        return before + source


def unknown(source: str) -> str:
    """Return the magic that makes `plain_python` leave a cell out, as "%%mine"; or an empty text."""
    while found := CELL_MAGIC.match(source):
        if (name := found[2]) not in TRANSPARENT:
            return "" if name in FILES else f"%%{name}"
        source = source[found.end() :]
    return ""


def split(line: str) -> list[str]:
    """Return the words of a magic's line, without quotes."""
    try:
        return shlex.split(line)
    except ValueError:  # a quote without its end
        return line.split()


def _timed(body: str, setup: str) -> str:
    """Return a function with the body of `%%timeit`, which binds no name outside, and its call."""
    lines = "\n".join(filter(None, [setup.strip(), body]))
    if not is_python(lines) or not body.strip():
        return "\n" + body
    name = f"_timeit_{zlib.crc32(lines.encode())}"
    return f"def {name}():\n{textwrap.indent(lines.rstrip(), '    ')}\n{name}()\n"


def _captured(line: str) -> str:
    """Return a line that binds the NAME of `%%capture NAME` to an empty output."""
    names = [word for word in line.split() if word.isidentifier()]
    return f"{names[0]} = get_ipython().captured({names[0]!r})" if names else ""


def _line(found: re.Match) -> str:
    """Return Python for a line magic that binds names or has a value; otherwise the call itself."""
    name, line = found[1], ast.literal_eval(found[2])
    alone = found.string[found.string.rfind("\n", 0, found.start()) + 1 : found.start()].strip() == ""
    if name in ("time", "prun") and line.strip():
        code = plain_python(OPTIONS.sub("", line, count=1)).strip("\n")
        return code if alone else f"({code})"
    if name == "pylab" and alone:
        return PYLAB
    if name == "cd" and alone:
        return f"get_ipython().chdir({line!r})"
    if name == "store" and alone and "-r" in (words := split(line)):
        return (
            "; ".join(f"{word} = get_ipython().stored({word!r})" for word in words if word.isidentifier()) or found[0]
        )
    if name in ("env", "set_env") and re.match(r"\s*\w+[= ]", line):
        variable, value = re.split(r"\s*=\s*|\s+", line.strip(), maxsplit=1)
        return f"get_ipython().setenv({variable!r}, {value!r})"
    return found[0]


@cache
def transformer():
    """Return IPython's transformer, which turns magics into calls; imported on first use."""
    from IPython.core.inputtransformer2 import TransformerManager

    return TransformerManager()
