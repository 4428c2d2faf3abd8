"""What is asked: frozen nouns, no algorithms."""
