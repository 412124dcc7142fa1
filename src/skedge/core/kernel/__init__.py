"""The cycle: events are absorbed, the policy decides, its orders are checked and applied."""
