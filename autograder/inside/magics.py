"""Convert a cell to plain Python: handle magics, prompts and indented cells like IPython, as far as an answer can
notice.

`%%time`, `%%capture` and others become their body, stacked to any depth; `%time x = 1` becomes its statement, `%pylab`
its imports, `%env` and `%%writefile` a call of the substitute for IPython's shell (`shell`); cells in other languages
become empty. All other magics become calls of `get_ipython()`.
"""

import ast
import re
from functools import cache

from .syntax import is_python

CELL_MAGIC = re.compile(r"^(\s*)%%(\w+)[ \t]*([^\n]*)(?:\n|$)")
TRANSPARENT = frozenset({"px", "time", "capture", "timeit", "prun"})
FILES = frozenset({"writefile", "file"})
LINE_MAGIC = re.compile(r"""get_ipython\(\)\.run_line_magic\('(\w+)', ('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\)""")
OPTIONS = re.compile(r"\s*(?:-[lsTD] *\S+\s+|-[rq]+\s+|--[\w-]+\s+)*")  # of %prun and %time, before the statement
PROMPT = re.compile(r"\s*In \[\d+\]: ")  # followed by a plain assignment it is also valid Python
PYLAB = (
    "import numpy, matplotlib; from matplotlib import pyplot; np = numpy; plt = pyplot; "
    "from pylab import *; from numpy import *"
)
ALWAYS = ("get_ipython().setenv(", "get_ipython().writefile(")  # calls that every answer may need
RUNS = (  # calls that may bind any name
    *("get_ipython().run_cell", "get_ipython().push(", "get_ipython().ex("),
    *("get_ipython().run_line_magic('run', ", "get_ipython().run_line_magic('time', "),
)


def plain_python(source: str) -> str:
    """Return a cell without its magics, on the same lines."""
    before = ""
    while found := CELL_MAGIC.match(source):
        blank, name, line = found.groups()
        rest = source[found.end() :]
        if name in FILES:
            path = line.split()[-1] if line.split() else ""
            return before + f"get_ipython().writefile({path!r}, {rest!r}, {'-a' in line.split()})\n"
        if name not in TRANSPARENT:
            return ""  # another language
        before += blank + (_captured(line) if name == "capture" else "") + "\n"
        source = rest
    if is_python(source) and not PROMPT.match(source):
        return before + source if before.strip() else before * bool(source.strip()) + source
    try:
        return before + LINE_MAGIC.sub(_line, transformer().transform_cell(source))
    except Exception:  # the transformer rejects invalid code, which the parser will report
        return before + source


def _captured(line: str) -> str:
    """Return a line that binds the NAME of `%%capture NAME` to an empty output."""
    names = [word for word in line.split() if word.isidentifier()]
    return f"{names[0]} = get_ipython().captured()" if names else ""


def _line(found: re.Match) -> str:
    """Return Python for a line magic that binds names or has a value; otherwise the call itself."""
    name, line = found[1], ast.literal_eval(found[2])
    alone = found.string[found.string.rfind("\n", 0, found.start()) + 1 : found.start()].strip() == ""
    if name in ("time", "prun") and line.strip():
        code = plain_python(OPTIONS.sub("", line, count=1)).strip("\n")
        return code if alone else f"({code})"
    if name == "pylab" and alone:
        return PYLAB
    if name in ("env", "set_env") and re.match(r"\s*\w+[= ]", line):
        variable, value = re.split(r"\s*=\s*|\s+", line.strip(), maxsplit=1)
        return f"get_ipython().setenv({variable!r}, {value!r})"
    return found[0]


@cache
def transformer():
    """Return IPython's transformer, which turns magics into calls; imported on first use."""
    from IPython.core.inputtransformer2 import TransformerManager

    return TransformerManager()
