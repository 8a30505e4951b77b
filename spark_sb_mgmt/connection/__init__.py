"""The way to the service: byte streams, the AMQP engine, authentication, link pairs, pipelining, retry, and what to ask for next."""
