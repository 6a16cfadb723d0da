"""Many servers and their sessions on a virtual clock: every session is the real core."""
