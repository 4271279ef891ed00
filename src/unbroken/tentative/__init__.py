"""Tentative results: when to go on without an input, and how what was said is corrected.

This folder only decides.  It does no I/O and reads no clock.
"""
