"""The browser of these tests."""

from builders.browsers import browser  # noqa: F401
