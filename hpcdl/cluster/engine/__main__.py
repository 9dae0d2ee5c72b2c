"""Start an engine: `python -m hpcdl.cluster.engine`.

A file of its own, since a module that is run is called __main__: runs would find another `engine`, without its state.
"""

from hpcdl.cluster.engine import main

if __name__ == "__main__":
    main()
