"""Reproduction of the papers' figures: one TOML per figure (setting, claim), and code to run, judge and draw it."""
