"""Commands that make training and evaluation audio with the embedded voices. The product never imports them."""
