"""OASiS (Bao et al., INFOCOM'18)."""
