"""The live world: the same policies run real PyTorch training on Ray. Needs the extra ``live``."""
