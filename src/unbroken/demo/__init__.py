"""Data to try Unbroken on: made up, and the same for the same seed.

* `intrusion_trace`: network connections with attackers planted in them (`queries/intrusion.py`).
* `words_text`: lines of text with common and rare words (`queries/wordcount.py`).

A generator keeps no state between the tables that it yields: each one follows from the seed and its
place in the sequence alone.  So a longer run begins with exactly the rows of a shorter one, and two
runs, one of them with failures, can be compared row by row.
"""
