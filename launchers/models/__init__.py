"""A plan's model of transformers, from the class by way of its weights to what the atoms change in it."""
