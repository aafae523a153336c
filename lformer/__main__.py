"""`python -m lformer`: the command line, for when its script is not on the path."""

from lformer.cli import app

if __name__ == "__main__":
    app(prog_name="lformer")
