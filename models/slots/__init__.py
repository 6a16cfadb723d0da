"""A fixed batch of sessions on one device, stepped together once per frame."""
