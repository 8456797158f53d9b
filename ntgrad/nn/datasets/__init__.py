"""What to train on, as numpy arrays, from local files and installed packages. Nothing is downloaded. Errors name the file, what
was expected and what was found."""
from ntgrad.compat.public import show

from .images import Digits, Images, cifar10, cifar100, fashion_mnist, load_idx, mnist
from .pictures import ImageFolder, image_folder
from .texts import Characters, Table, csv, shakespeare, text

__all__ = ["Characters", "Digits", "ImageFolder", "Images", "Table", "cifar10", "cifar100", "csv", "fashion_mnist",
           "image_folder", "load_idx", "mnist", "shakespeare", "text"]

show(__name__)
