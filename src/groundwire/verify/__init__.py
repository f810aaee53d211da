"""What asks the outside whether a citation exists: URLs, git, the ADR folder, the issue tracker."""
