"""The Spark side: schemas and the data source. The only layer that knows Spark."""
