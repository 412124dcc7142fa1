"""A_online, batch, and BatchSche (She et al.)."""
