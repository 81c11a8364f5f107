# The CPU table of operations.
