"""Example queries, to be read, copied and changed: `unbroken demo` runs them as they are.

They are a user's files, not a part of Unbroken: here `pyspark` may be imported.
"""
