"""One file per model family: how its checkpoints are recognised and described, and its graph."""
