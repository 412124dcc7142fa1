"""skedge schedules distributed machine-learning training over edge servers and a cloud."""
