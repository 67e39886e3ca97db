"""torch.save files: a zip of a pickle and storages. Nothing is unpickled."""
