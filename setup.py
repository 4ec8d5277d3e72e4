"""A shim for tools that look for setup.py; everything is declared in setup.cfg."""

from setuptools import setup

setup()
