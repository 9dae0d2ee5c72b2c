"""IPython's line magics that change names, files or the process, as a mixin of the substitute for its shell."""

import builtins
import contextlib
import importlib
import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

from . import known_magics as known
from .absent import NO_EFFECT, NO_PROGRAMS, NO_STORE, NO_VALUE, Absent, NoOutputsError
from .magics import OPTIONS, PYLAB, plain_python, split


class LineMagics:
    """What `run_line_magic` does; each `magic_name` gets the expanded line."""

    user_ns: dict

    def __init__(self) -> None:
        self.times: dict[str, float] | None = None  # of own modules, while `%autoreload` is on
        self.left: list[str] = []  # folders that `%cd` left, for `%cd -`
        self.pushed: list[str] = []  # folders to which `%popd` returns

    def run_line_magic(self, name: str = "", line: str = "", *args: Any, **options: Any) -> Any:
        """Do what a magic does to names, files and the process; others do nothing, and have no value."""
        name = options.get("magic_name", name)
        line = line if name in ("time", "prun") else self.expanded(line)
        does = getattr(type(self), f"magic_{name}", None)
        if does:
            return does(self, line)
        if name in known.REFUSED:
            raise NoOutputsError(NO_EFFECT.format(name))
        programs = name in ("sx", "system")
        return Absent(NO_PROGRAMS.format(line) if programs else NO_VALUE.format(f"%{name}"))

    def magic(self, line: str) -> Any:
        """Do what `%line` does; older IPythons have it."""
        name, _, rest = line.lstrip("%").partition(" ")
        return self.run_line_magic(name, rest)

    def run_cell(self, source: str, *args: Any, **options: Any) -> None:
        """Run `source` as a cell."""
        exec(plain_python(source), self.user_ns)

    ex = run_cell

    def setenv(self, name: str, value: str) -> None:
        """Do what `%env NAME=value` does."""
        os.environ[name] = self.expanded(value)

    def magic_env(self, line: str) -> Any:
        """Do what `%env` does with a line: set a variable, return one, or return all."""
        if found := re.match(r"\s*(\w+)\s*[=\s]\s*(.*)", line, re.DOTALL):
            return self.setenv(found[1], found[2])
        return os.environ[line.strip()] if line.strip() else dict(os.environ)

    def chdir(self, line: str) -> None:
        """Do what `%cd FOLDER` does, if the folder exists below the notebook's."""
        word = next((word for word in split(self.expanded(line)) if word != "-q"), "~")
        if word != "-" and word.startswith("-") and not os.path.isdir(word):
            raise NoOutputsError(NO_EFFECT.format(f"cd {word}"))
        home, path = Path.home().resolve(), self.left[-1] if word == "-" and self.left else word
        folder = Path(path).expanduser().resolve()
        if folder.is_relative_to(home) and folder.is_dir():
            self.left.append(os.getcwd())
            os.chdir(folder)

    def magic_pushd(self, line: str) -> None:
        """Do what `%pushd FOLDER` does."""
        self.pushed.append(os.getcwd())
        self.chdir(line)

    def magic_popd(self, line: str) -> None:
        """Do what `%popd` does."""
        if self.pushed:
            self.chdir(shlex.quote(self.pushed.pop()))

    def mkdir(self, line: str) -> None:
        """Do what `!mkdir -p FOLDER` does."""
        for word in split(self.expanded(line)):
            with contextlib.suppress(OSError):
                if not word.startswith("-"):
                    Path(word).expanduser().mkdir(parents=True, exist_ok=True)

    def expanded(self, line: str) -> str:
        """Return a magic's line with the values of `$name` and `{expression}`, as far as they have any."""
        if "$" not in line and "{" not in line:
            return line
        from IPython.utils.text import DollarFormatter  # on first use: hardly any notebook needs it

        try:
            return DollarFormatter().vformat(line, args=[], kwargs=self.user_ns)
        except Exception:  # whatever an expression raises
            return line

    def stored(self, name: str) -> Any:
        """Return the value for `%store -r NAME` if this notebook has one."""
        if name not in self.user_ns:
            raise NoOutputsError(NO_STORE.format(name))
        return self.user_ns[name]

    def run_file(self, words: list[str]) -> None:
        """Run a script or notebook with its arguments; only `-i` shows it the notebook's names. It keeps its names."""
        options = []
        while words and words[0].startswith("-"):
            options.append(words.pop(0))
        if not words:  # an error in IPython, too
            raise ValueError("%run names no file; give it one, as in %run helper.py")
        path = Path(words[0].replace(".", "/") if "-m" in options else words[0]).expanduser()
        path = path if path.exists() else path.with_name(f"{path.name}.py")
        text = path.read_text(encoding="utf-8")
        cells = [text]
        if path.suffix == ".ipynb":
            cells = ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        name = path.stem if "-n" in options else "__main__"
        own = {"__name__": name, "__file__": str(path), "__builtins__": builtins}
        namespace, before = self.user_ns if "-i" in options else own, sys.argv
        sys.argv = [str(path), *words[1:]]
        try:
            with contextlib.suppress(SystemExit):
                for cell in cells:
                    exec(compile(plain_python(cell), str(path), "exec"), namespace)
        finally:
            sys.argv = before
            self.user_ns.update({key: value for key, value in namespace.items() if not key.startswith("__")})

    def reload_changed(self) -> None:
        """Load own modules again whose files have changed, as `%autoreload` does before each cell."""
        if self.times is None:
            return
        home = str(Path.home().resolve())
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if type(file) is not str or not os.path.realpath(file).startswith(home) or not os.path.exists(file):
                continue
            time = os.stat(file).st_mtime
            if self.times.setdefault(name, time) != time:
                self.times[name], before = time, dict(vars(module))
                with contextlib.suppress(Exception):  # IPython keeps the old module, too
                    importlib.reload(module)
                for mine, value in list(self.user_ns.items()):  # what was imported from it
                    if mine in before and before[mine] is value and mine in vars(module):
                        self.user_ns[mine] = vars(module)[mine]

    def magic_autoreload(self, line: str) -> None:
        """Do what `%autoreload` does."""
        self.times = None if split(line)[:1] in (["0"], ["off"]) else {}
        self.reload_changed()

    def magic_precision(self, line: str) -> None:
        """Do what `%precision 3` does to arrays of NumPy."""
        if "numpy" in sys.modules and (digits := re.search(r"\d+", line or "8")):
            sys.modules["numpy"].set_printoptions(precision=int(digits[0]))

    def magic_store(self, line: str) -> None:
        """Do what `%store -r NAME` does."""
        for word in split(line) if "-r" in split(line) else []:
            if word != "-r":
                self.user_ns[word] = self.stored(word)

    def reset(self, *args: Any, **options: Any) -> None:
        """Remove the notebook's names."""
        self.reset_selective("[^_]")

    def reset_selective(self, pattern: str = "", *args: Any, **options: Any) -> None:
        """Remove the names in which `pattern` is found."""
        for name in [each for each in self.user_ns if re.search(pattern, each) and not each.startswith("_")]:
            del self.user_ns[name]

    def magic_reset(self, line: str) -> None:
        """Do what `%reset` does."""
        self.reset()

    def magic_reset_selective(self, line: str) -> None:
        """Do what `%reset_selective -f PATTERN` does."""
        self.reset_selective(" ".join(word for word in split(line) if not word.startswith("-")))

    def magic_xdel(self, line: str) -> None:
        """Do what `%xdel NAME` does."""
        self.user_ns.pop(split(line)[-1], None)

    def magic_run(self, line: str) -> None:
        """Do what `%run FILE` does."""
        self.run_file(split(line))

    def magic_time(self, line: str) -> None:
        """Run what `%time` and `%prun` are given."""
        self.run_cell(OPTIONS.sub("", line, count=1))

    def magic_pylab(self, *args: Any, **options: Any) -> None:
        """Do what `%pylab` does."""
        exec(PYLAB, self.user_ns)

    def magic_pwd(self, line: str) -> str:
        """Return what `%pwd` returns."""
        return os.getcwd()

    magic_prun, magic_set_env, magic_cd, magic_mkdir = magic_time, magic_env, chdir, mkdir
    enable_pylab = magic_pylab
