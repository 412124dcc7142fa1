"""The papers' figures again: a reading per paper, one TOML per figure (its claim), and code to run, judge and draw."""
