"""Reading, drawing and writing of scenario files."""
