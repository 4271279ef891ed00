"""What a failure costs, measured: load that does not wait, contenders that are killed, a report."""
