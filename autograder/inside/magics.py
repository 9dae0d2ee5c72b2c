"""Convert a cell to plain Python: handle magics, prompts and indented cells like IPython, as far as an answer can
notice.

`%%time`, `%%capture` and others become their body, stacked to any depth; `%time x = 1` becomes its statement, `%pylab`
its imports, `%env`, `%cd`, `!mkdir` and `%%writefile` a call of the substitute for IPython's shell (`shell`). Cells in
other languages become empty; a name that a magic would have bound gets a value that says so (`absent`). All other
magics become calls of `get_ipython()`.
"""

import ast
import re
import shlex
import textwrap
import zlib
from functools import cache

from . import known_magics as known
from .syntax import PARSE_ERRORS, is_python, parse, walked

CELL_MAGIC = re.compile(r"^(\s*)%%(\w+|!)[ \t]*([^\n]*)(?:\n|$)")
TIMEIT = re.compile(r"(?:-[nrp] *\d+\s*|-[tcqov]+(?:\s+|$))*")  # options, before the set-up
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
REMOVES = (
    *(f"get_ipython().run_line_magic('{name}'" for name in known.REMOVES),
    *(f"get_ipython().{name}(" for name in ("del_var", "drop_by_id", "reset", "reset_selective")),
)
BY_NAME = re.compile(r"\.(?:run_line_)?magic\((?:magic_name=)?['\"]%?(\w+)")
METHOD = re.compile(r"get_ipython\(\)\.(\w+)")
QUIET = known.QUIET_METHODS | known.QUIET_OBJECTS | {"captured", "left_out", "run_line_magic", "stored"}
SCRIPT_NAMES = re.compile(r"--(?:out|err|proc)[ =]+([^\W\d]\w*)")  # of `%%bash --out NAME`
DEFINITION = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def is_quiet(call: ast.AST) -> bool:
    """Whether a call changes no name, file or setting of IPython's shell."""
    text = ast.unparse(call)
    if by_name := BY_NAME.search(text):
        return by_name[1] not in known.EFFECTS
    method = METHOD.match(text)
    return not method or method[1] in QUIET or text.startswith(REMOVES)


def plain_python(source: str) -> str:
    """Return a cell without its magics, on the same lines."""
    before = ""
    while found := CELL_MAGIC.match(source):
        blank, name, line = found.groups()
        rest = source[found.end() :]
        if name in known.FILES:
            words = split(line)
            path = words[-1] if words else ""
            return before + f"get_ipython().writefile({path!r}, {rest!r}, {'-a' in words})\n"
        if name not in known.TRANSPARENT:
            return before + _not_run(name, line, rest)
        if name == "timeit":
            return before + blank + _timed(plain_python(rest), TIMEIT.sub("", line, count=1))
        before += blank + (_captured(line) if name == "capture" else "") + "\n"
        source = rest
    if is_python(source) and not PROMPT.match(source):
        return before + source if before.strip() else before * bool(source.strip()) + source
    if source.split(maxsplit=1)[0] in known.LINE_MAGICS and "\n" not in source.strip():  # `cd data` is `%cd data`
        source = f"%{source.strip()}"
    try:
        python = MKDIR.sub(r"get_ipython().mkdir('\1')", transformer().transform_cell(source))
        return before + LINE_MAGIC.sub(_line, python)
    except Exception:  # the transformer rejects invalid code, which the parser will report
        return before + source


def hides(source: str) -> str:
    """Return the magic for which a cell's definitions bind no names, as "%%mine" or "%%timeit"; or an empty text."""
    while found := CELL_MAGIC.match(source):
        if (name := found[2]) not in known.TRANSPARENT or name == "timeit":
            return "" if name in known.FILES else f"%%{name}"
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


def _not_run(name: str, line: str, body: str) -> str:
    """Return a line that binds the names of a cell that does not run: of its results, or of its statements."""
    if name in known.SCRIPTS:
        return "; ".join(f"{each} = get_ipython().no_program('%%{name}')" for each in SCRIPT_NAMES.findall(line))
    names = [] if name in known.TEXTS else _bound(plain_python(body))
    return "; ".join(f"{each} = get_ipython().left_out('%%{name}', {each!r})" for each in names)


def _bound(code: str) -> list[str]:
    """Return the names that code binds at top level, except functions and classes."""
    try:
        nodes = [node for node in parse(code).body if not isinstance(node, DEFINITION)]
    except PARSE_ERRORS:
        return []
    parts = [part for node in nodes for part in walked(node)]
    names = [part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)]
    names += [(part.asname or part.name).partition(".")[0] for part in parts if isinstance(part, ast.alias)]
    return [*dict.fromkeys(name for name in names if name != "*")]


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
    if name in known.BINDS and alone and (bound := re.search(r"(?<![-\w])[^\W\d]\w*", line)):
        return f"{bound[0]} = get_ipython().no_program('%{name}')"
    if name not in known.LINE_MAGICS and alone and (names := _bound(line.strip())):
        return "; ".join(f"{each} = get_ipython().left_out('%{name}', {each!r})" for each in names)
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
