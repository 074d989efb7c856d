"""Load the user's program: the part that the target needs, without outside effects and without missing resources."""
