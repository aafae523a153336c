"""Experiments: recipes, the demo, speed, and the figures they are compared with."""
