"""What is held: slots, resources, storage, gangs and work at sites."""
