"""Fuzzing of everything that strangers can send: `python -m tests.fuzz --help`."""
