"""`python -m algoformer` is the command `algoformer`."""

from algoformer.cli import main

if __name__ == "__main__":
    main()
