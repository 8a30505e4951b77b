"""The network side of the emulator: sockets, AMQP by proton's engine, links to the entities of the namespace."""
