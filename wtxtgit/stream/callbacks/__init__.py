"""Callbacks of training frameworks, each a module that imports the framework it is for."""
