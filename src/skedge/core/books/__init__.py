"""The books of the kernel: slots, resources, storage, gangs and work at sites."""
