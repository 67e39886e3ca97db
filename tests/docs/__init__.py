"""What the documents say, held against what the program does."""
