"""Options: what there is, what a value may be, and the frozen objects that they become."""
