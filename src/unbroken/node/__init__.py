"""The processes of a cluster: the keeper of the sources, and nodes that run fragments on Spark."""
