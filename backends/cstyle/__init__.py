"""What renderers to languages in C's style share: ``kernel`` writes, ``language`` says what differs, ``helpers`` has what C lacks."""
from .kernel import CStyleRenderer as CStyleRenderer, uops_to_cstyle as uops_to_cstyle
from .language import Language as Language
