"""Load for a Talkover server, from a process of its own."""
