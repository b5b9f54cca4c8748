"""Fast checks of what contains tools and the workers that call them: no plugins, no fixtures."""
