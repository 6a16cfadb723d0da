"""The model graph: kinds of state, symbolic shapes, clocks, nodes and edges, and how they are printed."""
