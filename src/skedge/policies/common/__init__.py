"""What policies of several papers share."""
