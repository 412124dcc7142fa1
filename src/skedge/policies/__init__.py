"""The schedulers, each in the file of its name; they know no world."""
