"""Checkpoints: sets of immutable layers, and forks that share them."""
