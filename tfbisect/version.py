"""The version of the package. Nothing else, so that packaging and the recorder can read it without the package root."""

__version__ = "0.1.0"
