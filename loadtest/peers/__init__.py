"""Other voice servers under the same load: Pipecat and FastRTC, each in a virtual environment of its own."""
