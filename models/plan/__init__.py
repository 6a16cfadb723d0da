"""What fits on a device and what limits first: computed before anything is loaded, and measured where it can be."""
