"""Stands in for the build tool of safetensors: pip asks it for metadata before it
keeps the sources, and the real one would compile them."""

import os


def get_requires_for_build_wheel(config_settings=None):
    return []


def prepare_metadata_for_build_wheel(directory, config_settings=None):
    name = "safetensors.dist-info"
    os.mkdir(os.path.join(directory, name))
    with open(os.path.join(directory, name, "METADATA"), "w") as f:
        f.write(f"Metadata-Version: 2.1\nName: safetensors\nVersion: {os.environ['SAFETENSORS_VERSION']}\n")
    return name
