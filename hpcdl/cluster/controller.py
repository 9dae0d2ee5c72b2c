"""The controller process: ipyparallel's, which ends with the kernel."""

from hpcdl.cluster import lifeline

if __name__ == "__main__":
    lifeline.hold()
    from ipyparallel.controller.app import main

    main()
