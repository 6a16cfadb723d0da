"""Moshi: a full-duplex speech-text model on codec frames (Défossez et al., 2024, arXiv:2410.00037)."""
