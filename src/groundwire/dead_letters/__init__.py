"""Lists dead letters, and redrives them to their topics once the cause is fixed."""
