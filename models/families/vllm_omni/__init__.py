"""vLLM-Omni's realtime endpoint as an engine: the model runs where it runs best, the session stays here."""
