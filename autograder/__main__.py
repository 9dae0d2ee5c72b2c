"""`autograder` and `python -m autograder` are the command line."""

from hpcdl.start import start


def main() -> None:
    """Run the command line."""
    start("autograder")


if __name__ == "__main__":
    main()
