"""Unbroken."""
