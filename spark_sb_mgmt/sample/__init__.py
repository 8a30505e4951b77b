"""A small shop on the emulator, for the demo, the notebooks and the README: its entities, its traffic, and what must be found there."""
