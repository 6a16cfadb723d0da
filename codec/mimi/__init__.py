"""Mimi, the streaming codec of the Moshi family (Défossez et al., 2024, arXiv:2410.00037, section 3.3)."""
