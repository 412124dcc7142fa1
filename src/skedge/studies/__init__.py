"""Reproduction of the papers' figures: a reading per paper, one TOML per figure (claim), and code to run, judge and draw it."""
