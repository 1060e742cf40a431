"""A core program at the buffer level -> addresses, slots and events."""
