"""`python -m surecast` is `surecast`."""

from surecast.cli import main

if __name__ == "__main__":
    main()
