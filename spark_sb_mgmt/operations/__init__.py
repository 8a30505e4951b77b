"""The management operations: what is said to `<entity>/$management` and what comes back. Pure: bytes and values, no sockets."""
