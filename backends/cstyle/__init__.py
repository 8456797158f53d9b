"""What renderers to languages in C's style share: ``kernel`` writes, ``language`` says what differs, ``helpers`` has what C
lacks."""
