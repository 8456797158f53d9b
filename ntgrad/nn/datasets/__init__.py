"""What to train on, as numpy arrays, from local files and installed packages. Nothing is downloaded.

``digits.py`` has MNIST and what is stored like it, ``cifar.py`` CIFAR, ``texts.py`` text, ``tables.py`` CSV files,
``pictures.py`` folders of pictures. Errors name the file, what was expected and what was found.
"""
from __future__ import annotations

from ntgrad.nn.datasets.cifar import cifar10, cifar100
from ntgrad.nn.datasets.digits import Digits, Images, fashion_mnist, load_idx, mnist
from ntgrad.nn.datasets.pictures import ImageFolder, image_folder
from ntgrad.nn.datasets.tables import Table, csv
from ntgrad.nn.datasets.texts import Characters, shakespeare, text
from ntgrad.public import show

__all__ = ["Characters", "Digits", "ImageFolder", "Images", "Table", "cifar10", "cifar100", "csv", "fashion_mnist",
           "image_folder", "load_idx", "mnist", "shakespeare", "text"]

show(__name__)
