"""Servers that others publish the protocols of, as processes: what our remote models are clients of."""
