"""What ``tables.py`` cannot find by looking: names that are called otherwise here, and why others are not here."""
from __future__ import annotations

NOTES: dict[str, tuple[str, str]] = {
  # ---- PyTorch: under another name
  "Tensor.apply_": ("`x.assign(..)`", "a function of Python for each element is no kernel; write it with operations"),
  "Tensor.byte": ("`x.cast(\"uint8\")`", ""), "Tensor.char": ("`x.cast(\"int8\")`", ""), "Tensor.short": ("`x.cast(\"int16\")`", ""),
  "Tensor.uchar": ("`x.cast(\"uint8\")`", ""),
  "Tensor.data_ptr": ("`x.__dlpack__()`", "memory is given to others by DLPack, or `__cuda_array_interface__`"),
  "Tensor.const_data_ptr": ("`x.__dlpack__()`", "as `data_ptr`"),
  "Tensor.get_device": ("`Tensor.device`", ""), "Tensor.is_cpu": ("`x.device == \"CPU\"`", ""),
  "Tensor.itemsize": ("`Tensor.element_size`", ""), "Tensor.ndimension": ("`Tensor.ndim`", ""),
  "Tensor.grad_fn": ("`Tensor.lazydata`", "the graph itself; `print(x)` names the operation"),
  "Tensor.is_complex": ("`False`", "there are no complex numbers"), "torch.is_complex": ("`False`", "there are no complex numbers"),
  "Tensor.is_signed": ("`x.dtype.kind in \"if\"`", ""), "torch.is_signed": ("`x.dtype.kind in \"if\"`", ""),
  "Tensor.is_nonzero": ("`bool(x)`", ""), "torch.is_nonzero": ("`bool(x)`", ""),
  "Tensor.is_same_size": ("`x.shape == y.shape`", ""), "torch.is_same_size": ("`x.shape == y.shape`", ""),
  "Tensor.mH": ("`Tensor.mT`", "numbers are real"), "Tensor.H": ("`Tensor.T`", "numbers are real"),
  "Tensor.adjoint": ("`Tensor.mT`", "numbers are real"), "torch.adjoint": ("`Tensor.mT`", "numbers are real"),
  "Tensor.name": ("`Tensor.names`", "of dimensions"), "Tensor.nonzero_static": ("`Tensor.nonzero`", ""),
  "Tensor.type_as": ("`x.cast(y.dtype)`", ""), "Tensor.reshape_as": ("`Tensor.view_as`", ""),
  "Tensor.split_with_sizes": ("`Tensor.split`", ""), "torch.split_with_sizes": ("`Tensor.split`", ""),
  "Tensor.sum_to_size": ("`x.sum(axes, keepdim=True)`", ""), "Tensor.values": ("`x`", "tensors are dense"),
  "Tensor.to_dense": ("`x`", "tensors are dense"), "Tensor.resolve_conj": ("`x`", "numbers are real"),
  "Tensor.resolve_neg": ("`x`", ""), "torch.resolve_conj": ("`x`", "numbers are real"), "torch.resolve_neg": ("`x`", ""),
  "Tensor.register_hook": ("`ntgrad.Function`", "a gradient of one's own"), "Tensor.retain_grad": ("`loss.gradient(x)`", "of any tensor"),
  "Tensor.retains_grad": ("`loss.gradient(x)`", "of any tensor"),
  "Tensor.pin_memory": ("`nn.data.DataLoader(pin=True)`", "the loader pins what it copies"),
  "Tensor.narrow_copy": ("`x.narrow(..).clone()`", ""), "torch.narrow_copy": ("`x.narrow(..).clone()`", ""),
  "Tensor.msort": ("`x.sort(0)[0]`", ""), "torch.msort": ("`x.sort(0)[0]`", ""),
  "torch.as_tensor": ("`Tensor(..)`", "`Tensor.from_dlpack` shares memory"), "torch.asarray": ("`Tensor(..)`", "`Tensor.from_dlpack` shares memory"),
  "torch.tensor": ("`Tensor(..)`", ""), "torch.frombuffer": ("`Tensor(bytes)`", ""), "torch.scalar_tensor": ("`Tensor(number)`", ""),
  "torch.broadcast_tensors": ("`ntgrad.array_api.broadcast_arrays`", ""), "torch.broadcast_shapes": ("`ntgrad.array_api.broadcast_shapes`", ""),
  "torch.can_cast": ("`ntgrad.array_api.can_cast`", ""), "torch.result_type": ("`ntgrad.array_api.result_type`", ""),
  "torch.promote_types": ("`ntgrad.array_api.result_type`", ""),
  "torch.compile": ("`ntgrad.jit`", "all code is compiled; jit takes Python away as well"),
  "torch.concat": ("`Tensor.cat`", ""), "torch.concatenate": ("`Tensor.cat`", ""), "torch.row_stack": ("`Tensor.vstack`", ""),
  "torch.column_stack": ("`Tensor.hstack`", "of columns `(n, 1)`"),
  "torch.constant_pad_nd": ("`Tensor.pad`", ""), "torch.convolution": ("`Tensor.conv2d`", ""), "torch.cond": ("`Tensor.where`", ""),
  "torch.fill": ("`Tensor.full_like`", ""), "torch.rsub": ("`y - x`", ""), "torch.range": ("`Tensor.arange`", "without its end"),
  "torch.embedding": ("`weight[index]`", ""), "nn.functional.embedding": ("`weight[index]`", ""),
  "torch.load": ("`nn.state.torch_load`", "no code of the file runs"), "torch.save": ("`nn.state.safe_save`", "safetensors"),
  "torch.manual_seed": ("`Tensor.manual_seed`", ""), "torch.seed": ("`Tensor.manual_seed`", ""),
  "torch.is_tensor": ("`isinstance(x, Tensor)`", ""), "torch.is_storage": ("`False`", ""),
  "torch.is_grad_enabled": ("`not Tensor.no_grad`", ""), "torch.is_inference_mode_enabled": ("`bool(Tensor.no_grad)`", ""),
  "torch.is_inference": ("`bool(Tensor.no_grad)`", ""), "Tensor.is_inference": ("`bool(Tensor.no_grad)`", ""),
  "torch.get_default_device": ("`Device.DEFAULT`", ""), "torch.set_default_device": ("`Device.DEFAULT = ..`", ""),
  "torch.get_default_dtype": ("`dtypes.default_float`", ""), "torch.set_default_dtype": ("`dtypes.default_float = ..`", ""),
  "torch.get_device": ("`Tensor.device`", ""), "torch.set_float32_matmul_precision": ("`config.allow_tf32`", ""),
  "torch.get_float32_matmul_precision": ("`config.allow_tf32`", ""),
  "torch.get_num_threads": ("`config.cores`", ""), "torch.set_num_threads": ("`config.cores`", ""),
  "torch.typename": ("`x.dtype.name`", ""), "torch.lstm": ("`nn.LSTM`", ""), "torch.gru": ("`nn.GRU`", ""),
  "torch.lstm_cell": ("`nn.LSTMCell`", ""), "torch.gru_cell": ("`nn.GRUCell`", ""), "torch.rnn_tanh": ("`nn.RNN`", ""),
  "torch.rnn_relu": ("`nn.RNN`", ""), "torch.rnn_tanh_cell": ("`nn.RNNCell`", ""), "torch.rnn_relu_cell": ("`nn.RNNCell`", ""),
  "torch.bilinear": ("`nn.Bilinear`", ""), "nn.functional.bilinear": ("`nn.Bilinear`", ""),
  "torch.use_deterministic_algorithms": ("–", "everything is deterministic, always"),
  "torch.are_deterministic_algorithms_enabled": ("`True`", "everything is deterministic, always"),
  "nn.Parameter": ("`Tensor(.., requires_grad=True)`", ""), "nn.Buffer": ("`Tensor(.., requires_grad=False)`", "an attribute"),
  "nn.ParameterList": ("a list", "lists of tensors are found"), "nn.ParameterDict": ("a dict", "dicts of tensors are found"),
  "nn.SyncBatchNorm": ("`nn.BatchNorm`", "one process"), "nn.Softmax2d": ("`nn.Softmax(1)`", ""),
  "nn.functional.multi_head_attention_forward": ("`nn.MultiheadAttention`", ""),
  "nn.functional.upsample": ("`Tensor.interpolate`", ""), "nn.functional.upsample_nearest": ("`Tensor.interpolate`", ""),
  "nn.functional.upsample_bilinear": ("`Tensor.interpolate`", ""), "nn.UpsamplingNearest2d": ("`nn.Upsample`", ""),
  "nn.UpsamplingBilinear2d": ("`nn.Upsample`", ""), "nn.NLLLoss2d": ("`nn.NLLLoss`", ""),
  "optim.SparseAdam": ("`nn.optim.Adam`", "gradients are dense"), "torch.true_divide": ("`Tensor.div`", ""),
  "linalg.inv": ("`Tensor.inverse`", ""), "linalg.cross": ("`Tensor.cross`", ""), "linalg.vecdot": ("`(x * y).sum(dim)`", ""),
  "linalg.multi_dot": ("`Tensor.einsum`", "finds a good order"), "torch.chain_matmul": ("`Tensor.einsum`", "finds a good order"),
  "utils.data.default_collate": ("`nn.data.DataLoader(collate=..)`", ""),
  # ---- tinygrad
  "Tensor.uop": ("`Tensor.lazydata`", "the node of the graph"), "UOp": ("`ntgrad.codegen.uop.UOp`", "ntgrad's own"),
  "Tensor.schedule": ("`ntgrad.schedule.create_schedule([x])`", ""),
  "Tensor.schedule_with_vars": ("`ntgrad.schedule.create_schedule([x])`", "Variables are sizes of kernels"),
  "Tensor.from_blob": ("`Tensor.from_dlpack`", ""), "Tensor.pad_to": ("`Tensor.pad`", ""),
  "function": ("`ntgrad.Function`", "gradients of one's own"), "helpers.DEBUG": ("`config.debug`", ""), "helpers.BEAM": ("`config.beam`", ""),
  "helpers.JIT": ("`config.jit`", ""), "helpers.NOOPT": ("`config.noopt`", ""), "helpers.Profiling": ("`ntgrad.profile`", ""),
  "nn.optim.OptimizerGroup": ("a list of optimizers", "or one with groups of parameters"),
}

COMPLEX = "there are no complex numbers"
SPARSE = "tensors are dense"
QUANTISED = "quantised weights are bytes with lazy expressions of them (`nn.state.gguf_load`)"
PROCESS = "one process, one device a tensor"
INSIDE = "PyTorch's own machinery"
LIMITS = "a special function that has not been asked for; build it of what there is, or ask"
STRIDES = "tensors have no strides that one can set; views come from indexing, `permute`, `expand`, `unfold`"

PATTERNS: list[tuple[str, str]] = [
  (r".*(complex|conj|angle|cdouble|cfloat|chalf|polar|imag|isreal|view_as_real|view_as_complex).*|Tensor\.real|torch\.real|.*\.sgn_?", COMPLEX),
  (r".*(stft|istft)|linalg\.(eig|eigvals)|.*\.eig|.*symeig", COMPLEX + ": what gives them is not here"),
  (r".*(sparse|coalesce|crow_|ccol_|col_indices|row_indices|dense_dim|csr|csc|bsr|bsc|_nnz|smm|spmm|saddmm|sspaddmm|hspmm|dsmm|hsmm|indices_copy|values_copy).*"
   r"|Tensor\.indices|.*to_padded_tensor|.*is_nested", SPARSE),
  (r".*(quantize|quantized|qscheme|q_scale|q_zero|q_per|int_repr|fbgemm|qparams|scaled_mm|grouped_mm|empty_quantized|hash_tensor).*", QUANTISED),
  (r".*(distributed|Distributed|DataParallel|shard|share_memory|is_shared|fork|wait|multiprocessing).*", PROCESS),
  (r".*(autocast).*", "16-bit weights and activations are dtypes of tensors; products sum in float32 anyhow"),
  (r".*(cudnn|mkldnn|miopen|_vulkan|is_ipu|is_mps|is_xla|is_xpu|is_maia|is_mtia|is_vulkan|native_|_ir|import_ir|parse_|merge_type|unify_type|cxx11"
   r"|cudagraph|thread_safe|classproperty|interop|flush_denormal|warn_always|anomaly|sym_|get_file_path|device_module|deterministic).*"
   r"|Tensor\.(ipu|xpu|mtia|hpu|xla)|torch\.batch_norm_.*|.*_copy|.*norm_except_dim|.*segment_reduce|.*fused_moving.*|.*slice_inverse"
   r"|.*compiled_with.*|.*init_num_threads|nn\.functional\.(Optional|assert.*|boolean.*|linear_cross.*)|nn\.LinearCross.*|nn\.Container", INSIDE),
  (r"Tensor\.(as_subclass|grad_dtype|is_distributed|is_inference|is_meta|is_neg|is_pinned|is_set_to|layout|map_|map2_|module_load|new"
   r"|output_nr|record_stream|register_.*|reinforce|volatile|resize.*|set_|storage.*|untyped_storage|as_strided.*|dim_order|random_|is_quantized"
   r"|stride|is_contiguous|new_empty_strided|unsafe_.*)|torch\.(as_strided.*|empty_strided|empty_permuted|resize_as_|is_neg|unsafe_.*)", STRIDES + ", and no storage of their own"),
  (r".*\.(igamma|igammac|i0|mvlgamma|polygamma|digamma|lgamma|frexp|ldexp|nextafter|gcd|lcm|cauchy|geometric|log_normal|renorm|erfinv|hypot"
   r"|exponential|float_power|histogramdd|xlogy|sinc|logit|fmax|fmin|fix|addbmm|addr|addmv|index_reduce|nanquantile|nanmedian|mode)_?", LIMITS),
  (r".*\.(geqrf|orgqr|ormqr|lu|lu_solve|lu_unpack|lu_factor.*|ldl_.*|householder_product|lobpcg|svd_lowrank|pca_lowrank|cholesky_inverse|matrix_exp"
   r"|eigvalsh|svdvals|tensorinv|tensorsolve|cholesky_ex|inv_ex|solve_ex|cond|logdet|triangular_solve|pinverse|nuclear_norm|frobenius_norm)",
   "of the factorisations `qr`, `svd`, `cholesky`, `eigh` are here, and `solve`, `inverse`, `det`"),
  (r".*(_window)|torch\.(binomial|unravel_index|vmap|while_loop|pdist|trapz|to_dlpack|from_file|randint_like|set_printoptions|set_default_tensor_type"
   r"|initial_seed|get_rng_state|set_rng_state|select_scatter|slice_scatter|diagonal_scatter|embedding_bag|embedding_renorm_|ctc_loss)", LIMITS),
  (r"Tensor\.(diagonal_scatter|select_scatter|slice_scatter|fill_diagonal_|index|diagflat|dequantize|isneginf|isposinf|histogram|bernoulli_"
   r"|random_|where_|get_device)|torch\.(isneginf|isposinf|histogram|diagflat|dequantize)", "write the part (`x[..] = v`), or compare"),
  (r"nn\.Lazy.*|nn\.Uninitialized.*", "sizes are given when a layer is made"),
  (r".*(Fractional|fractional|AdaptiveLogSoftmax|CrossMapLRN|MultiLabel|multilabel|TripletMarginWithDistance|triplet_margin_with_distance|CTCLoss|ctc_loss"
   r"|EmbeddingBag|embedding_bag|Fold|fold|Unfold|ChannelShuffle|channel_shuffle|conv_tbc|gumbel_softmax|rrelu_|threshold_|alpha_dropout_|affine_grid"
   r"|grid_sample.*|LPPool.d|lp_pool.d|MultiMargin.*|multi_margin.*|PairwiseDistance|pairwise_distance|pdist|CosineSimilarity|SoftMargin.*"
   r"|soft_margin.*|feature_dropout_?|FeatureAlphaDropout|feature_alpha_dropout_?|max_pool.d_with_indices|adaptive_max_pool.d_with_indices"
   r"|local_response_norm|LocalResponseNorm|.*Pad[123]d|RNNBase|RNNCellBase)", "write it with what there is: its parts are here"),
  (r"nn\.utils\..*|nn\.init\..*", "write it on the tensor: `x.assign(..)`"),
  (r"optim\.(LBFGS|ASGD|Adafactor|Rprop|.*)|optim\.lr_scheduler\..*", "an optimizer of one's own subclasses `nn.optim.Optimizer`"),
  (r"utils\.data\..*", "a dataset is anything with `len` and an index; `nn.data.DataLoader` does the rest"),
  (r"helpers\..*|fetch|Tensor\.(from_url|keccak)|nn\.datasets\.cifar", "files and small helpers of Python are the script's own; nothing is fetched from a network"),
]
