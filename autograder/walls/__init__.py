"""The walls around a student's code: what its process may read, write, reach and consume.

`sandbox` chooses this system's strongest tier and enters it; `namespaces`, `landlock` and `syscalls` are the parts of
tiers, `aliases` finds other names of secret files, `scratch` provides folders during grading. `zygote` starts a process
that forks workers in milliseconds, and `forks` is that process's code.

May import: this room, `inside`, `boundary`, `hpcdl`, other people's packages. `namespaces` is entered before anything
else is imported, so it uses only the standard library.
"""
