"""How runs are shown to people: at the command line and to clients of the servers."""
