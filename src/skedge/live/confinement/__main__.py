"""``python -m skedge.live.confinement``: whether this machine lets jobs be confined, in a line and by the status."""

import sys

from .check import refusal

if __name__ == "__main__":
    sentence = refusal()
    sys.stdout.write(f"{sentence or 'jobs can be confined here'}\n")
    sys.exit(bool(sentence))
