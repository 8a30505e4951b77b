"""Reading: plans made by the driver, and what its tasks do; batch and stream."""
