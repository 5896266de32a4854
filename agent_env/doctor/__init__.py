"""`agent-env doctor`: what would go wrong in training, found before it starts; each line says how to mend it."""
