"""The papers' figures again: one TOML per figure (setting, claim), and what runs, judges and draws it."""
