"""Find the global objects that a statement may change: a definition needs more than the statement that binds a name.

The rules are conservative. A statement may change the object behind a name if it
- stores into it: `table[0] = 1`, `net.rate = 1`, `del table[0]`, anywhere (in loops, ifs, withs, classes);
- calls a method on it that is not known as read-only: `table.append(1)`, `W.zero_()`, but not `W.mean()`;
- passes it to a call that may change its arguments: `nn.init.zeros_(W)`, `fill(table)`;
- does so through another name: `row = table[0]; row.append(1)`, `for p in net.parameters(): p.zero_()`;
- calls an object, which may change itself and objects created with it: `put, get = store(); put(1)`;
- mentions a notebook function that does so with a global name, even as a decorator: `@register("x")`.

Modules, functions, and the arguments of plots, pictures, checks and engines do not count.
"""

import ast
import builtins
from collections.abc import Iterable

from .facts import FILES, Call, Definition, Facts, facts_of_body, root_of
from .known_calls import (
    ARRAYS,
    CHANGERS,
    CONTAINERS,
    HIDDEN,
    OS_READS,
    PURE,
    QUIET,
    READABLE,
    READS,
    SETS,
    SETTINGS,
    SLOW,
    STARTS,
    WRITERS,
    WRITES,
)
from .reading import attributes_set, binds_any, imports_of, is_shared, module_of, remembers

ALL = "*"  # not a valid Python name: anything that may concern everything


class NotebookNames:
    """The objects behind a notebook's names, and what its statements may change."""

    def __init__(self, nodes: list[ast.stmt], facts: list[Facts], asked: Iterable[str], bound: set[str]):
        """`facts` describe `nodes`, which bind the names `bound`.

        Functions that are `asked` for count as changing nothing: grading calls them anyway.
        """
        self.asked = set(asked)
        self.imports = {name: module for node in nodes for name, module in imports_of(node)}
        self._define([node for node in nodes if isinstance(node, Definition)])
        self.bound = bound.union(*(body.outside for body in self.definitions.values()))
        self._know_classes([node for node in nodes if isinstance(node, ast.ClassDef)])
        self._know_effects([node for node in nodes if isinstance(node, Definition)])
        self.captures = any(ast.unparse(target) == "sys.stdout" for node in nodes for target in attributes_set(node))
        calls = (call.last for each in (*facts, *self.definitions.values()) for call in each.calls)
        self.starts = not STARTS.isdisjoint(calls)
        self._spread()
        self.behind: dict[str, set[str]] = {}  # name -> the objects that it may refer to
        for made in facts:
            for new, old in made.aliases:
                self._alias(new, old, self._sets(made))

    def _define(self, nodes: list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]) -> None:
        """Learn what definitions do, and what their functions return."""
        self.definitions: dict[str, Facts] = {}
        for each in nodes:
            body, known = facts_of_body(each), self.definitions.get(each.name)  # a name may be defined more than once
            self.definitions[each.name] = known | body if known else body
        self.returned = {name: body.returns - body.own for name, body in self.definitions.items()}
        for _ in range(3):  # indirectly, through each other
            for name, roots in self.returned.items():
                self.returned[name] = roots.union(*(self.returned.get(root, ()) for root in roots))

    def _know_classes(self, classes: list[ast.ClassDef]) -> None:
        self.classes = {node.name for node in classes}
        shared = {node.name for node in classes if is_shared(node)}
        for each in classes:  # base classes come before subclasses
            shared |= {each.name} if shared & {root_of(base) for base in each.bases} else set()
        self.plain = self.classes - shared  # creating an object of these changes nothing else

    def _know_effects(self, nodes: list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]) -> None:
        """Learn what calling each function changes, itself or its arguments or settings."""
        self.setters: set[str] = set()  # functions that only change settings of libraries
        self.taking: set[str] = set()  # functions that may change their arguments
        for _ in range(3):  # indirectly, through each other
            self.taking = {name for name, body in self.definitions.items() if self._direct(body) & body.own}
        self.effects = {name: self._direct(body) - body.own for name, body in self.definitions.items()}
        for node in nodes:
            self.effects[node.name] |= self.definitions[node.name].outside | remembers(node)
            if binds_any(self.definitions[node.name]):
                self.effects[node.name].add(ALL)
        functions = self.definitions.keys() - self.classes
        self.setters = {n for n in functions if self._sets(self.definitions[n]) and not self.definitions[n].returns}

    def _alias(self, new: frozenset[str], old: frozenset[str], sets: bool) -> None:
        """Learn that the names `new` may refer to objects behind `old`, in a piece of code that `sets` settings."""
        returned = old.union(*(self.returned.get(name, ()) for name in old))
        written = {FILES} if old & self.classes or FILES in old else set()  # no result of a function that wrote
        objects = set(filter(self._is_object, returned)).union(*(self.effects.get(n, ()) for n in old - self.asked))
        objects -= {FILES, *HIDDEN} - written
        objects |= {ALL} if sets else set()
        together = new if len(new) > 1 and old & (self.definitions.keys() | self.imports.keys()) else set()
        for name in new:
            self.behind.setdefault(name, set()).update(objects, together - {name})

    def changes(self, facts: Facts) -> set[str]:
        """Return the global names whose objects a statement with these `facts` may change."""
        found = self._direct(facts)
        for name in (facts.loads & self.effects.keys()) - self.asked:
            found |= self.effects[name] - self.asked
        last = {call.last for call in facts.calls}
        sleeps = self.starts and last == {"sleep"} and not facts.own  # others work meanwhile
        anything = binds_any(facts) or last & READABLE or self._sets(facts) or sleeps
        return (
            self._by_other_names(found) - (self.asked - facts.stores - facts.told)
            | ({ALL} if anything else set())
            | ({"sys"} if self.captures and "print" in last else set())
        )

    def _writes(self, call: Call) -> bool:
        """Whether a call may write a file."""
        module = self.imports.get(call.root, "")
        function = (f"{module}.{call.last}" if call.of else module).split(".")
        of_os = function[0] == "os" and len(function) == 2 and function[1] not in OS_READS
        return call.last in WRITES or call.is_opened_to_write or of_os or function[0] in WRITERS

    def _sets(self, facts: Facts) -> bool:
        """Whether a piece of code changes settings of libraries, and does nothing that could be slow."""
        if facts.loops or facts.loads & self.asked:
            return False
        modules = {call.root: self.imports.get(call.root, "") for call in facts.calls}
        others = ((facts.loads - facts.own) & self.definitions.keys()) - self.setters
        if others or any(module.startswith(SLOW) for module in modules.values()):
            return False
        return any(
            call.last in SETTINGS or call.root in self.setters or (modules[call.root] and SETS.fullmatch(call.last))
            for call in facts.calls
        )

    def mentions(self, facts: Facts) -> set[str]:
        """Return the result of `changes` and all mentioned objects, unless the statement draws or runs engines."""
        used = {self.imports.get(call.root, "") for call in facts.calls}
        if any(module.startswith(SLOW) for module in used):
            return self.changes(facts)
        loads = facts.loads.union(*(self.definitions[name].loads for name in facts.loads & self.definitions.keys()))
        mentioned = {name for name in loads & self.bound if self._is_object(name)}
        own = {module_of(self.imports[name]) for name in facts.loads & self.imports.keys()} - {""}
        return self.changes(facts) | mentioned | {n for n, whole in self.imports.items() if module_of(whole) in own}

    def _spread(self) -> None:
        """Give each function the effects of the functions that it mentions, except the ones asked for."""
        callers: dict[str, list[str]] = {}
        for name, body in self.definitions.items():
            for other in (body.loads & self.effects.keys()) - self.asked:
                callers.setdefault(other, []).append(name)
        todo = [name for name, found in self.effects.items() if found]
        while todo:
            name = todo.pop()
            for caller in callers.get(name, ()):
                if not self.effects[name] <= self.effects[caller]:
                    self.effects[caller] |= self.effects[name]
                    todo.append(caller)

    def _direct(self, facts: Facts) -> set[str]:
        """Return the names that a piece of code changes directly; inside functions also local ones."""
        found: set[str] = set()
        own: set[str] = set()  # functions and a student's own modules, such as `f.register(...)`
        for call in facts.calls:
            found |= call.handed
            is_made = call.root in self.bound and call.root not in self.plain
            if call.last not in READS if call.is_method else is_made:
                found.add(call.root)
            if call.root == call.last in ("setattr", "delattr"):  # `setattr(math, "e", 3)`
                own |= call.args & self.imports.keys()
            if (call.of in self.definitions and call.of not in self.asked) or self._is_own_module(call.of):
                own.add(call.of)
            if not self._is_harmless(call):
                found |= call.args
                own |= set(filter(self._is_own_module, call.args))  # `importlib.reload(tools)`
        # `os.environ.update(...)` is a store
        inside = {c.root for c in facts.calls if self.imports.get(c.root) in ("os", "sys") and c.last in CONTAINERS}
        files = {FILES} if any(map(self._writes, facts.calls)) else set()
        called = [f"{self.imports.get(call.root, '')}.{call.last}" for call in facts.calls]
        hidden = {state for state, those in HIDDEN.items() if any(map(those.fullmatch, called))}
        told = facts.told & self.asked
        return facts.stores | told | own | inside | files | hidden | set(filter(self._is_object, found))

    def _is_object(self, name: str) -> bool:
        """Whether calls can change the object behind a name: not a builtin, a module, a function, or one asked for."""
        if name in self.imports or name in self.asked or (name in self.definitions and name not in self.classes):
            return False
        return name in self.bound or not hasattr(builtins, name)

    def _is_own_module(self, name: str) -> bool:
        return bool(module_of(self.imports.get(name, "sys")))

    def _is_harmless(self, call: Call) -> bool:
        """Whether a call does not change its arguments."""
        if module := self.imports.get(call.root):
            if call.last in CHANGERS:
                return False
            if module.split(".")[0] in ARRAYS:
                return not (call.last.endswith("_") or call.out)
            return any(module == quiet or module.startswith(f"{quiet}.") for quiet in QUIET)
        if call.is_method and call.last in CONTAINERS and not self._is_object(call.root):
            return False  # `list.append(table, 1)`
        if call.is_method and call.last in READS | CONTAINERS:
            return not call.out
        if call.is_method:
            return False
        if call.root in self.definitions:
            return call.root in self.asked or call.root not in self.taking
        return call.root in PURE

    def _by_other_names(self, found: set[str]) -> set[str]:
        """Add the objects that the changed names may refer to."""
        todo, seen = set(found), set(found)
        while todo:
            fresh = self.behind.get(todo.pop(), set()) - seen
            seen |= fresh
            todo |= fresh
        return seen & (self.bound | {ALL, FILES, *HIDDEN})
