"""Data of the script that the documentation makes a job of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits


def digits(folder: Path, samples: int) -> None:
    """The first handwritten digits as FOLDER/{train/0,train/1,test/0}/CLASS/NAME.npy; every fifth is for the test."""
    found = load_digits()
    for number, (image, label) in enumerate(zip(found.images[:samples], found.target[:samples], strict=True)):
        site = "test/0" if number % 5 == 0 else f"train/{number % 2}"
        place = folder / site / str(label)
        place.mkdir(parents=True, exist_ok=True)
        np.save(place / f"{number:04d}.npy", (image / 16).astype(np.float32))
