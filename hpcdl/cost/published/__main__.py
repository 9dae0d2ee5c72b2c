"""`python -m hpcdl.cost.published` writes the page to standard output."""

from hpcdl.cost.published.page import page

if __name__ == "__main__":
    print(page(), end="")
