"""What the models that run elsewhere share: a loop of their own, errors, waiting between attempts."""
