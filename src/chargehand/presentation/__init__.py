"""Shows runs to people: on the command line, in notebooks and scripts, and to clients of the servers."""
