"""What tests of backends need, the project's own and other people's."""
