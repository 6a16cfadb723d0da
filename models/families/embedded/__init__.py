"""The embedded cascade: a thinker (language model) and a talker (speech synthesis), clause by clause, on a CPU."""
