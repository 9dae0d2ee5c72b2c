"""Start an engine: `python -m hpcdl.cluster.engine`.

It is a separate file because a module run as a program is called __main__: runs would find a second `engine` without
its state.
"""

from hpcdl.cluster.engine import main

if __name__ == "__main__":
    main()
