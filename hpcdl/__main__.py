"""`hpcdl` and `python -m hpcdl` are the command line."""

from hpcdl.start import start


def main() -> None:
    """Run the command line."""
    start("hpcdl")


if __name__ == "__main__":
    main()
