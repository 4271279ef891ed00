"""What runs beside a user, not in a node: reads files, and needs no Java."""
