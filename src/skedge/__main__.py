"""``python -m skedge``: the command line."""

from .cli.main import app

if __name__ == "__main__":
    app()
