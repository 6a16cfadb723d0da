"""Whose requests these are, what each tenant may use, what strangers may send, and what is kept of a tenant."""
