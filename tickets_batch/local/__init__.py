"""The services that run on this machine by themselves: an embedded Valkey, the scheduler, the workers."""
