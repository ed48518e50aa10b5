ranks = 1


def get_tensor_model_parallel_world_size():
    return ranks
