"""What skedge asks of the machine: compilation, signals, memory, files."""
