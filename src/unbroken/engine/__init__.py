"""The door to Spark: nothing outside this folder imports pyspark."""
