"""A stand-in for vLLM 0.33.0, which needs a GPU: the parts that culvert.vllm uses, with
vLLM's names and parameters. test_vllm.py has them recorded."""
