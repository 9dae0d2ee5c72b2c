"""The walls around a student's code: what its process may read, write, reach and use up.

`sandbox` chooses the strongest tier of this system and enters it; `namespaces`, `landlock` and `syscalls` are what
tiers are made of, `aliases` finds what is secret under its other names, `scratch` has folders for as long as something
is graded. `zygote` starts a process that forks workers in milliseconds, `forks` is what that process does.

May import: this room, `inside`, `boundary`, `hpcdl`, other people's packages. `namespaces` is entered before anything
else is imported, so it takes the standard library alone.
"""
