"""The AMQP 1.0 encoding: values, message sections, and both to and from Arrow columns. No sockets, no proton, no Spark."""
