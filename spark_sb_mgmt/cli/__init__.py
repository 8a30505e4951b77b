"""The command line, for the times when no Spark is at hand: built on the client, as anybody could."""
