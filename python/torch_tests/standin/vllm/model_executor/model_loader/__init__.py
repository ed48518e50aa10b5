formats = {}


def register_model_loader(load_format):
    def register(loader):
        formats[load_format] = loader
        return loader

    return register


def get_model_loader(load_config):
    return formats[load_config.load_format](load_config)
