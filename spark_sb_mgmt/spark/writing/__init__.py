"""Writing: rows to requests, answers to receipts, and what a job does about what failed."""
