"""Control: who runs what, who is gone, how a lost replica is restored, and the records of it."""
