"""What holds for all tests."""

from hypothesis import settings

# How long an example takes says more about the machine, and what is imported only then, than about
# what is tested.
settings.register_profile("memlite", deadline=None)
settings.load_profile("memlite")
