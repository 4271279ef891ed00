"""Streams: logs of epochs, what may be trimmed from them, and how they travel."""
