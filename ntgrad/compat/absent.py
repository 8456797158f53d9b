"""Names of PyTorch and tinygrad that are not here, by the reason. Written by docs/names/tables.py."""
# ruff: noqa: E501
WHY = {
  "use `Tensor.T`; numbers are real":
    "Tensor.H ",
  "use `Tensor.mT`; numbers are real":
    "Tensor.adjoint Tensor.mH ",
  "there are no complex numbers":
    "Tensor.angle Tensor.cdouble Tensor.cfloat Tensor.chalf Tensor.conj_physical_ Tensor.imag Tensor.isreal Tensor.sgn_ "
    "torch.angle torch.cdouble torch.cfloat torch.complex torch.complex128 torch.complex64 torch.conj_physical_ torch.imag "
    "torch.polar torch.view_as_complex torch.view_as_complex_copy torch.view_as_real torch.view_as_real_copy "
    "Tensor.image_conv2d Tensor.image_dot dtypes.imagef dtypes.imageh ",
  "use `x.assign(..)`; a function of Python for each element is no kernel; write it with operations":
    "Tensor.apply_ ",
  "tensors have no strides that one can set; views come from indexing, `permute`, `expand`, `unfold`, and no storage of their own":
    "Tensor.as_strided Tensor.as_strided_ Tensor.as_strided_scatter Tensor.as_subclass Tensor.dim_order Tensor.grad_dtype "
    "Tensor.is_set_to Tensor.layout Tensor.module_load Tensor.new_empty_strided Tensor.output_nr Tensor.record_stream "
    "Tensor.reinforce Tensor.resize Tensor.resize_ Tensor.resize_as Tensor.resize_as_ Tensor.set_ Tensor.storage "
    "Tensor.storage_offset Tensor.storage_type Tensor.stride Tensor.untyped_storage Tensor.volatile torch.as_strided "
    "torch.as_strided_ torch.as_strided_scatter torch.empty_permuted torch.empty_strided torch.resize_as_ ",
  "use `x.cast(\"uint8\")`":
    "Tensor.byte Tensor.uchar ",
  "a special function that has not been asked for; build it of what there is, or ask":
    "Tensor.cauchy_ Tensor.frexp Tensor.gcd Tensor.gcd_ Tensor.i0 Tensor.i0_ Tensor.igamma Tensor.igamma_ Tensor.igammac "
    "Tensor.igammac_ Tensor.index_reduce Tensor.index_reduce_ Tensor.lcm Tensor.lcm_ Tensor.mvlgamma Tensor.mvlgamma_ "
    "Tensor.polygamma Tensor.polygamma_ torch.binomial torch.embedding_renorm_ torch.frexp torch.from_file torch.gcd "
    "torch.gcd_ torch.histogramdd torch.i0 torch.i0_ torch.igamma torch.igammac torch.index_reduce torch.lcm torch.lcm_ "
    "torch.mvlgamma torch.polygamma torch.set_default_tensor_type torch.while_loop special.airy_ai special.bessel_j0 "
    "special.bessel_j1 special.bessel_y0 special.bessel_y1 special.chebyshev_polynomial_t special.chebyshev_polynomial_u "
    "special.chebyshev_polynomial_v special.chebyshev_polynomial_w special.erfcx special.gammainc special.gammaincc "
    "special.hermite_polynomial_h special.hermite_polynomial_he special.i0 special.i0e special.i1 special.i1e "
    "special.laguerre_polynomial_l special.legendre_polynomial_p special.modified_bessel_i0 special.modified_bessel_i1 "
    "special.modified_bessel_k0 special.modified_bessel_k1 special.polygamma special.scaled_modified_bessel_k0 "
    "special.scaled_modified_bessel_k1 special.shifted_chebyshev_polynomial_t special.shifted_chebyshev_polynomial_u "
    "special.shifted_chebyshev_polynomial_v special.shifted_chebyshev_polynomial_w special.spherical_bessel_j0 special.zeta ",
  "tensors are dense":
    "Tensor.ccol_indices Tensor.coalesce Tensor.col_indices Tensor.crow_indices Tensor.dense_dim Tensor.indices "
    "Tensor.is_coalesced Tensor.is_nested Tensor.is_sparse_csr Tensor.resize_as_sparse_ Tensor.row_indices Tensor.smm "
    "Tensor.sparse_dim Tensor.sparse_mask Tensor.sparse_resize_ Tensor.sparse_resize_and_clear_ Tensor.sspaddmm "
    "Tensor.to_padded_tensor Tensor.to_sparse Tensor.to_sparse_bsc Tensor.to_sparse_bsr Tensor.to_sparse_coo "
    "Tensor.to_sparse_csc Tensor.to_sparse_csr torch.ccol_indices_copy torch.col_indices_copy torch.crow_indices_copy "
    "torch.dsmm torch.hsmm torch.hspmm torch.indices_copy torch.resize_as_sparse_ torch.row_indices_copy torch.saddmm "
    "torch.smm torch.sparse_bsc_tensor torch.sparse_bsr_tensor torch.sparse_compressed_tensor torch.sparse_coo "
    "torch.sparse_coo_tensor torch.sparse_csc_tensor torch.sparse_csr_tensor torch.spmm torch.sspaddmm torch.values_copy "
    "torch.sparse ",
  "use `x.cast(\"int8\")`":
    "Tensor.char ",
  "use `x`; numbers are real":
    "Tensor.conj Tensor.conj_physical Tensor.real Tensor.resolve_conj torch.conj_physical ",
  "use `x.__dlpack__()`; as `data_ptr`":
    "Tensor.const_data_ptr ",
  "use `x.__dlpack__()`; memory is given to others by DLPack, or `__cuda_array_interface__`":
    "Tensor.data_ptr ",
  "quantised weights are bytes with lazy expressions of them (`nn.state.gguf_load`)":
    "Tensor.dequantize Tensor.hash_tensor Tensor.int_repr Tensor.q_per_channel_axis Tensor.q_per_channel_scales "
    "Tensor.q_per_channel_zero_points Tensor.q_scale Tensor.q_zero_point Tensor.qscheme torch.choose_qparams_optimized "
    "torch.dequantize torch.empty_quantized torch.fake_quantize_per_channel_affine torch.fake_quantize_per_tensor_affine "
    "torch.fbgemm_linear_fp16_weight torch.fbgemm_linear_fp16_weight_fp32_activation torch.fbgemm_linear_int8_weight "
    "torch.fbgemm_linear_int8_weight_fp32_activation torch.fbgemm_linear_quantize_weight torch.fbgemm_pack_gemm_matrix_fp16 "
    "torch.fbgemm_pack_quantized_matrix torch.hash_tensor torch.int_repr torch.q_per_channel_axis torch.q_per_channel_scales "
    "torch.q_per_channel_zero_points torch.q_scale torch.q_zero_point torch.quantize_per_channel torch.quantize_per_tensor "
    "torch.quantize_per_tensor_dynamic torch.quantized_batch_norm torch.quantized_gru torch.quantized_gru_cell "
    "torch.quantized_lstm torch.quantized_lstm_cell torch.quantized_max_pool1d torch.quantized_max_pool2d "
    "torch.quantized_max_pool3d torch.quantized_rnn_relu_cell torch.quantized_rnn_tanh_cell nn.functional.scaled_grouped_mm "
    "nn.functional.scaled_mm torch.quantization torch.ao nn.quantized nn.functional.ScalingType nn.functional.SwizzleType ",
  "there are no complex numbers: what gives them is not here":
    "Tensor.eig Tensor.istft Tensor.stft torch.eig torch.istft torch.stft linalg.eig linalg.eigvals fft.fft fft.fft2 "
    "fft.fftfreq fft.fftn fft.fftshift fft.hfft fft.hfft2 fft.hfftn fft.ifft fft.ifft2 fft.ifftn fft.ifftshift fft.ihfft "
    "fft.ihfft2 fft.ihfftn fft.irfft fft.irfft2 fft.irfftn fft.rfft fft.rfft2 fft.rfftfreq fft.rfftn ",
  "of the factorisations `qr`, `svd`, `cholesky`, `eigh` are here, and `solve`, `inverse`, `det`":
    "Tensor.geqrf Tensor.lu Tensor.lu_solve Tensor.matrix_exp Tensor.orgqr Tensor.ormqr torch.geqrf torch.lobpcg torch.lu "
    "torch.lu_solve torch.lu_unpack torch.matrix_exp torch.orgqr torch.ormqr torch.pca_lowrank torch.svd_lowrank "
    "linalg.householder_product linalg.ldl_factor linalg.ldl_factor_ex linalg.ldl_solve linalg.lu linalg.lu_factor "
    "linalg.lu_factor_ex linalg.lu_solve linalg.matrix_exp ",
  "use `Tensor.device`":
    "Tensor.get_device torch.get_device ",
  "write the part (`x[..] = v`), or compare":
    "Tensor.index ",
  "PyTorch's own machinery":
    "Tensor.ipu Tensor.is_ipu Tensor.is_maia Tensor.is_mkldnn Tensor.is_mps Tensor.is_mtia Tensor.is_vulkan Tensor.is_xla "
    "Tensor.is_xpu Tensor.mtia Tensor.slice_inverse Tensor.to_mkldnn Tensor.xpu torch.alias_copy torch.as_strided_copy "
    "torch.batch_norm_backward_elemt torch.batch_norm_backward_reduce torch.batch_norm_elemt torch.batch_norm_gather_stats "
    "torch.batch_norm_gather_stats_with_counts torch.batch_norm_stats torch.batch_norm_update_stats torch.channels_last "
    "torch.classproperty torch.compiled_with_cxx11_abi torch.contiguous_format torch.cudnn_affine_grid_generator "
    "torch.cudnn_batch_norm torch.cudnn_convolution torch.cudnn_convolution_add_relu torch.cudnn_convolution_relu "
    "torch.cudnn_convolution_transpose torch.cudnn_grid_sampler torch.cudnn_is_acceptable torch.detach_copy "
    "torch.diagonal_copy torch.expand_copy torch.export torch.fused_moving_avg_obs_fake_quant "
    "torch.get_deterministic_debug_mode torch.get_device_module torch.get_file_path torch.get_num_interop_threads "
    "torch.import_ir_module torch.import_ir_module_from_buffer torch.init_num_threads torch.is_anomaly_check_nan_enabled "
    "torch.is_anomaly_enabled torch.is_deterministic_algorithms_warn_only_enabled torch.is_vulkan_available "
    "torch.is_warn_always_enabled torch.memory_format torch.merge_type_from_type_comment torch.miopen_batch_norm "
    "torch.miopen_convolution torch.miopen_convolution_add_relu torch.miopen_convolution_relu "
    "torch.miopen_convolution_transpose torch.miopen_ctc_loss torch.miopen_depthwise_convolution torch.miopen_rnn "
    "torch.mkldnn_adaptive_avg_pool2d torch.mkldnn_convolution torch.mkldnn_linear_backward_weights torch.mkldnn_max_pool2d "
    "torch.mkldnn_max_pool3d torch.mkldnn_rnn_layer torch.native_batch_norm torch.native_channel_shuffle torch.native_dropout "
    "torch.native_group_norm torch.native_layer_norm torch.native_norm torch.norm_except_dim torch.parse_ir "
    "torch.parse_schema torch.parse_type_comment torch.permute_copy torch.profiler_allow_cudagraph_cupti_lazy_reinit_cuda12 "
    "torch.segment_reduce torch.select_copy torch.set_anomaly_enabled torch.set_deterministic_debug_mode "
    "torch.set_flush_denormal torch.set_num_interop_threads torch.set_warn_always torch.slice_copy torch.slice_inverse "
    "torch.split_copy torch.split_with_sizes_copy torch.squeeze_copy torch.strided torch.sym_constrain_range "
    "torch.sym_constrain_range_for_size torch.sym_float torch.sym_fresh_size torch.sym_int torch.sym_ite torch.sym_max "
    "torch.sym_min torch.sym_not torch.sym_sqrt torch.sym_sum torch.t_copy torch.thread_safe_generator torch.transpose_copy "
    "torch.unbind_copy torch.unfold_copy torch.unify_type_list torch.unsqueeze_copy torch.view_copy nn.Container "
    "nn.LinearCrossEntropyLoss nn.LinearCrossEntropyOptions nn.functional.Optional utils.data.non_deterministic "
    "autograd.detect_anomaly autograd.set_detect_anomaly profiler.record_function profiler.schedule nn.attention.SDPBackend "
    "nn.attention.sdpa_kernel hub.load onnx.export torch.fx torch.package torch.library torch.overrides ",
  "use `False`; there are no complex numbers":
    "Tensor.is_complex ",
  "use `False`; numbers are real":
    "Tensor.is_conj ",
  "use `True`; what is realised lies in order":
    "Tensor.is_contiguous ",
  "use `x.device == \"CPU\"`":
    "Tensor.is_cpu ",
  "one process, one device a tensor":
    "Tensor.is_distributed Tensor.is_shared Tensor.share_memory_ torch.fork torch.is_distributed "
    "torch.prepare_multiprocessing_environment torch.wait nn.DataParallel nn.Module.share_memory "
    "utils.data.DistributedSampler Tensor.shard Tensor.shard_ Tensor.shard_like helpers.wait_cond torch.distributed "
    "nn.parallel ",
  "use `bool(Tensor.no_grad)`":
    "Tensor.is_inference torch.is_inference ",
  "use `False`":
    "Tensor.is_meta Tensor.is_neg Tensor.is_quantized ",
  "use `bool(x)`":
    "Tensor.is_nonzero ",
  "use `False`; the loader of `nn.data` pins what it copies":
    "Tensor.is_pinned ",
  "use `x.shape == y.shape`":
    "Tensor.is_same_size ",
  "use `x.dtype.kind in \"if\"`":
    "Tensor.is_signed ",
  "use `False`; tensors are dense":
    "Tensor.is_sparse ",
  "use `Tensor.element_size`":
    "Tensor.itemsize ",
  "use `x.assign(..)`; as `apply_`":
    "Tensor.map2_ Tensor.map_ ",
  "use `x.sort(0)[0]`":
    "Tensor.msort ",
  "use `Tensor.names`; of dimensions":
    "Tensor.name ",
  "use `x.narrow(..).clone()`":
    "Tensor.narrow_copy torch.narrow_copy ",
  "use `Tensor.ndim`":
    "Tensor.ndimension ",
  "use `Tensor.new_empty`":
    "Tensor.new ",
  "use `nn.data.DataLoader(pin=True)`; the loader pins what it copies":
    "Tensor.pin_memory ",
  "use `x.assign(x.randint_like(low, high))`":
    "Tensor.random_ ",
  "use `ntgrad.Function`; a gradient of one's own":
    "Tensor.register_hook ",
  "write it behind `backward`":
    "Tensor.register_post_accumulate_grad_hook ",
  "use `Tensor.view_as`":
    "Tensor.reshape_as ",
  "use `x`":
    "Tensor.resolve_neg ",
  "use `loss.gradient(x)`; of any tensor":
    "Tensor.retain_grad Tensor.retains_grad ",
  "use `Tensor.sign`; numbers are real":
    "Tensor.sgn torch.sgn ",
  "use `x.cast(\"int16\")`":
    "Tensor.short ",
  "use `Tensor.split`":
    "Tensor.split_with_sizes Tensor.unsafe_split Tensor.unsafe_split_with_sizes ",
  "use `x.sum(axes, keepdim=True)`":
    "Tensor.sum_to_size ",
  "use `Tensor.eigh`":
    "Tensor.symeig torch.symeig ",
  "use `x`; tensors are dense":
    "Tensor.to_dense Tensor.values ",
  "use `Tensor.solve_triangular`":
    "Tensor.triangular_solve torch.triangular_solve ",
  "use `x.cast(y.dtype)`":
    "Tensor.type_as ",
  "use `Tensor.chunk`":
    "Tensor.unsafe_chunk ",
  "one process, one stream; 16-bit weights and activations are dtypes of tensors, products sum in float32 anyhow":
    "torch.GradScaler cuda.Event cuda.Stream cuda.amp cuda.current_stream cuda.device cuda.get_device_properties cuda.stream "
    "cuda.utilization amp.GradScaler ",
  "use `Tensor.affine_grid`":
    "torch.affine_grid_generator ",
  "16-bit weights and activations are dtypes of tensors; products sum in float32 anyhow":
    "torch.autocast torch.autocast_decrement_nesting torch.autocast_increment_nesting torch.clear_autocast_cache "
    "torch.get_autocast_cpu_dtype torch.get_autocast_dtype torch.get_autocast_gpu_dtype torch.get_autocast_ipu_dtype "
    "torch.get_autocast_xla_dtype torch.is_autocast_cache_enabled torch.is_autocast_cpu_enabled torch.is_autocast_enabled "
    "torch.is_autocast_ipu_enabled torch.is_autocast_xla_enabled torch.set_autocast_cache_enabled "
    "torch.set_autocast_cpu_dtype torch.set_autocast_cpu_enabled torch.set_autocast_dtype torch.set_autocast_enabled "
    "torch.set_autocast_gpu_dtype torch.set_autocast_ipu_dtype torch.set_autocast_ipu_enabled torch.set_autocast_xla_dtype "
    "torch.set_autocast_xla_enabled amp.autocast ",
  "use `Tensor.where`":
    "torch.cond ",
  "use `Tensor.pad`":
    "torch.constant_pad_nd Tensor.pad_to ",
  "use `Tensor.conv2d`":
    "torch.convolution ",
  "use `weight[index]`":
    "torch.embedding ",
  "use `nn.EmbeddingBag`":
    "torch.embedding_bag ",
  "use `Tensor.dropout2d`":
    "torch.feature_dropout ",
  "write it with what there is: its parts are here":
    "torch.feature_dropout_ ",
  "numbers of that kind are not here":
    "torch.float8_e4m3fnuz torch.float8_e5m2fnuz torch.qint32 torch.qint8 torch.quint8 ",
  "use `Tensor.matrix_norm`":
    "torch.frobenius_norm ",
  "use `Tensor.grid_sample`":
    "torch.grid_sampler torch.grid_sampler_2d torch.grid_sampler_3d ",
  "use `nn.GRU`":
    "torch.gru ",
  "use `nn.GRUCell`":
    "torch.gru_cell ",
  "use `nn.LSTM`":
    "torch.lstm ",
  "use `nn.LSTMCell`":
    "torch.lstm_cell ",
  "use `Tensor.matrix_norm`; `ord=\"nuc\"`":
    "torch.nuclear_norm ",
  "use `ntgrad.random`":
    "torch.random ",
  "use `nn.RNN`":
    "torch.rnn_relu torch.rnn_tanh nn.RNNBase ",
  "use `nn.RNNCell`":
    "torch.rnn_relu_cell torch.rnn_tanh_cell nn.RNNCellBase ",
  "use `config.cores`":
    "torch.set_num_threads ",
  "use `ntgrad.tensor(..)`; lists of floats are float32, of ints int32 (torch: int64)":
    "torch.tensor ",
  "use `x.__dlpack__()`":
    "torch.to_dlpack utils.dlpack.to_dlpack ",
  "use `Tensor.cholesky`; NaN where there is none":
    "linalg.cholesky_ex ",
  "use `Tensor.inverse`; NaN or infinities where there is none":
    "linalg.inv_ex ",
  "use `Tensor.solve`; NaN or infinities where there is none":
    "linalg.solve_ex ",
  "use `Tensor(.., requires_grad=False)`; an attribute":
    "nn.Buffer ",
  "sizes are given when a layer is made":
    "nn.LazyBatchNorm1d nn.LazyBatchNorm2d nn.LazyBatchNorm3d nn.LazyConv1d nn.LazyConv2d nn.LazyConv3d "
    "nn.LazyConvTranspose1d nn.LazyConvTranspose2d nn.LazyConvTranspose3d nn.LazyInstanceNorm1d nn.LazyInstanceNorm2d "
    "nn.LazyInstanceNorm3d nn.LazyLinear nn.UninitializedBuffer nn.UninitializedParameter ",
  "use `nn.NLLLoss`":
    "nn.NLLLoss2d ",
  "use a dict; dicts of tensors are found":
    "nn.ParameterDict ",
  "use a list; lists of tensors are found":
    "nn.ParameterList ",
  "use `nn.BatchNorm`; one process":
    "nn.SyncBatchNorm ",
  "a Module is a plain object: set its attributes, wrap what it calls":
    "nn.Module.T_destination nn.Module.call_super_init nn.Module.dump_patches nn.Module.get_extra_state nn.Module.ipu "
    "nn.Module.mtia nn.Module.register_backward_hook nn.Module.register_forward_pre_hook "
    "nn.Module.register_full_backward_hook nn.Module.register_full_backward_pre_hook "
    "nn.Module.register_load_state_dict_post_hook nn.Module.register_load_state_dict_pre_hook "
    "nn.Module.register_state_dict_post_hook nn.Module.register_state_dict_pre_hook nn.Module.set_extra_state "
    "nn.Module.set_submodule nn.Module.xpu ",
  "use `ntgrad.jit`":
    "nn.Module.compile jit.script jit.trace engine.realize.capturing ",
  "use `forward`, or `__call__`":
    "nn.Module.forward ",
  "wrap the layer, or write it in `forward`":
    "nn.Module.register_forward_hook ",
  "use `nn.Module.to`":
    "nn.Module.to_empty ",
  "groups of rows have sizes that are known only when it runs":
    "nn.functional.grouped_mm ",
  "use `nn.init.constant_`":
    "nn.init.constant ",
  "use `nn.init.dirac_`":
    "nn.init.dirac ",
  "use `nn.init.eye_`":
    "nn.init.eye ",
  "use `nn.init.kaiming_normal_`":
    "nn.init.kaiming_normal ",
  "use `nn.init.kaiming_uniform_`":
    "nn.init.kaiming_uniform ",
  "use `nn.init.normal_`":
    "nn.init.normal ",
  "use `nn.init.orthogonal_`":
    "nn.init.orthogonal ",
  "use `nn.init.sparse_`":
    "nn.init.sparse ",
  "use `nn.init.uniform_`":
    "nn.init.uniform ",
  "use `nn.init.xavier_normal_`":
    "nn.init.xavier_normal ",
  "use `nn.init.xavier_uniform_`":
    "nn.init.xavier_uniform ",
  "use `nn.utils.clip_grad_norm_`":
    "nn.utils.clip_grad_norm ",
  "write it on the tensor: `x.assign(..)`":
    "nn.utils.clip_grads_with_norm_ nn.utils.convert_conv2d_weight_memory_format nn.utils.convert_conv3d_weight_memory_format "
    "nn.utils.skip_init ",
  "weights are plain tensors: compute in `forward` what is used there; `func.functional_call` takes others for one call":
    "nn.utils.fuse_conv_bn_eval nn.utils.fuse_conv_bn_weights nn.utils.fuse_linear_bn_eval nn.utils.fuse_linear_bn_weights "
    "nn.utils.remove_spectral_norm nn.utils.remove_weight_norm nn.utils.spectral_norm nn.utils.weight_norm "
    "nn.utils.parametrizations.orthogonal nn.utils.parametrizations.spectral_norm nn.utils.parametrizations.weight_norm ",
  "an optimizer of one's own subclasses `nn.optim.Optimizer`":
    "optim.Adafactor optim.LBFGS ",
  "use `nn.optim.Adam`; gradients are dense":
    "optim.SparseAdam ",
  "a dataset is anything with `len` and an index; `nn.data.DataLoader` does the rest":
    "utils.data.ChainDataset utils.data.DFIterDataPipe utils.data.DataChunk utils.data.IterDataPipe utils.data.MapDataPipe "
    "utils.data.StackDataset utils.data.argument_validation utils.data.default_convert utils.data.functional_datapipe "
    "utils.data.get_worker_info utils.data.guaranteed_datapipes_determinism utils.data.runtime_validation "
    "utils.data.runtime_validation_disabled ",
  "what is between functions is not here; derivatives are: `autograd.grad`, `autograd.functional`, `func`":
    "autograd.gradcheck func.functionalize func.linearize func.stack_module_state ",
  "use `ntgrad.jit`; replays CUDA graphs":
    "cuda.CUDAGraph cuda.graph cuda.make_graphed_callables ",
  "use `Device.memory`":
    "cuda.memory_stats cuda.memory_summary ",
  "use `Tensor.manual_seed`":
    "cuda.seed ",
  "use `nn.state.torch_load`; the weights of an archive":
    "jit.load ",
  "use `nn.state.safe_save`":
    "jit.save ",
  "use `ntgrad.profile`":
    "profiler.profile helpers.Profiling ",
  "use `config.allow_tf32`":
    "backends.cudnn.allow_tf32 backends.cuda.matmul helpers.ALLOW_TF32 ",
  "use `config.beam`; kernels are measured where that is asked for":
    "backends.cudnn.benchmark ",
  "use `True`; everything is deterministic, always":
    "backends.cudnn.deterministic ",
  "use `False`; all kernels are ntgrad's":
    "backends.cudnn.enabled ",
  "use `nn.checkpoint`; a part at a time":
    "utils.checkpoint.checkpoint_sequential ",
  "use `Tensor.from_dlpack`":
    "utils.dlpack.from_dlpack Tensor.from_blob ",
  "a learning rate is set, `optimizer.lr = ..`; running statistics are those of a loop over the data in training":
    "optim.swa_utils.SWALR optim.swa_utils.update_bn ",
  "sequences are padded tensors, with masks":
    "nn.utils.rnn.PackedSequence nn.utils.rnn.pack_padded_sequence nn.utils.rnn.pack_sequence "
    "nn.utils.rnn.pad_packed_sequence nn.utils.rnn.unpack_sequence nn.utils.rnn.unpad_sequence ",
  "use `x.pad(..)`, `Tensor.stack`":
    "nn.utils.rnn.pad_sequence ",
  "use `func.functional_call`":
    "nn.utils.stateless.functional_call ",
  "tinygrad's own machinery":
    "Tensor.alu Tensor.decode_hevc_frame Tensor.from_uop Tensor.fs_load Tensor.fs_store Tensor.simplify dtypes.void "
    "dtypes.weakint nn.onnx.OnnxRunner nn.torch ",
  "use `Tensor.full_like`":
    "Tensor.const_like ",
  "use `tile.function`; kernels of one's own are written in the tile language":
    "Tensor.custom_kernel ",
  "files and small helpers of Python are the script's own; nothing is fetched from a network":
    "Tensor.from_url Tensor.keccak fetch helpers.CACHEDB helpers.CACHELEVEL helpers.CI helpers.DISABLE_COMPILER_CACHE "
    "helpers.FUSE_ARANGE helpers.FUSE_OPTIM helpers.GRAPH helpers.IMAGE helpers.LRU helpers.Metadata helpers.NO_COLOR "
    "helpers.OSX helpers.PROFILE helpers.SPLIT_REDUCEOP helpers.T helpers.TC helpers.TRACEMETA helpers.TRANSCENDENTAL "
    "helpers.USE_TC helpers.VIZ helpers.WINO helpers.argfix helpers.cmod helpers.cpu_profile helpers.data64 "
    "helpers.db_connection helpers.diskcache helpers.diskcache_clear helpers.diskcache_get helpers.diskcache_put "
    "helpers.fetch helpers.flat_mv helpers.from_mv helpers.fromimport helpers.get_child helpers.get_contraction "
    "helpers.get_shape helpers.getbits helpers.hi32 helpers.i2u helpers.is_numpy_ndarray helpers.lo32 helpers.memsize_to_str "
    "helpers.mv_address helpers.normalize_shape helpers.pluralize helpers.polyN helpers.printable helpers.strip_parens "
    "helpers.suppress_finalizing helpers.temp helpers.time_to_str helpers.to_function_name helpers.to_mv helpers.tuplize "
    "helpers.unwrap_class_type helpers.word_wrap ",
  "fusion is the scheduler's":
    "Tensor.fuse ",
  "of the standard library: `hashlib`":
    "Tensor.hash ",
  "use `Tensor.realize`; kernels are made when values are asked for":
    "Tensor.kernelize ",
  "use `ntgrad.schedule.create_schedule([x])`":
    "Tensor.schedule Tensor.schedule_linear ",
  "use `ntgrad.schedule.create_schedule([x])`; Variables are sizes of kernels":
    "Tensor.schedule_with_vars ",
  "use `x[:n, :m]`":
    "Tensor.shrink_to ",
  "use `Tensor.rand`; Philox or Threefry is not a choice":
    "Tensor.threefry ",
  "use `Tensor(..)`; numbers take part as they are":
    "Tensor.ufix ",
  "use `x.cast(\"uint32\")`":
    "Tensor.uint ",
  "use `x.cast(\"uint64\")`":
    "Tensor.ulong ",
  "use `Tensor.lazydata`; the node of the graph":
    "Tensor.uop ",
  "use `helpers.prod(tensors)`":
    "Tensor.uprod ",
  "use `x.cast(\"uint16\")`":
    "Tensor.ushort ",
  "use `sum(tensors)`":
    "Tensor.usum ",
  "use `TinyJit.reset`":
    "TinyJit.reset ",
  "use `ntgrad.codegen.uop.UOp`; ntgrad's own":
    "UOp ",
  "use `ntgrad.engine.buffer`; the engine's own":
    "device.Buffer ",
  "use `True`":
    "device.is_dtype_supported ",
  "use `ntgrad.codegen.ir.dtype.DType`":
    "dtype.DType ",
  "use `ntgrad.dtypes`":
    "dtype.dtypes nn.state.inverse_safe_dtypes nn.state.safe_dtypes ",
  "use `dtypes.of`":
    "dtype.to_dtype ",
  "use `float(x)`, `int(x)`":
    "dtypes.as_const ",
  "use `dtypes.all`":
    "dtypes.fields ",
  "use `np.finfo(d.np)`":
    "dtypes.finfo ",
  "use `dtypes.float8_e4m3`":
    "dtypes.fp8e4m3 ",
  "use `dtypes.float8_e5m2`":
    "dtypes.fp8e5m2 ",
  "use `dtypes.float8_e4m3, dtypes.float8_e5m2`":
    "dtypes.fp8s ",
  "use `Tensor(x).dtype`":
    "dtypes.from_py ",
  "use `d.kind == \"b\"`":
    "dtypes.is_bool ",
  "use `d.kind == \"i\"`":
    "dtypes.sints ",
  "use `d.kind == \"u\"`":
    "dtypes.uints ",
  "use `ntgrad.errors.CaptureError`":
    "engine.jit.JitError ",
  "use `ntgrad.TinyJit`":
    "engine.jit.TinyJit ",
  "use `Tensor.realize`":
    "engine.realize.run_schedule ",
  "use `ntgrad.Function`; gradients of one's own":
    "function ",
  "use `config.beam`":
    "helpers.BEAM ",
  "use `helpers.Context`; settings are `ntgrad.config`":
    "helpers.ContextVar ",
  "use `config.debug`":
    "helpers.DEBUG ",
  "use `config.jit`":
    "helpers.JIT ",
  "use `config.noopt`":
    "helpers.NOOPT ",
  "use `Tensor.div(rounding_mode=\"trunc\")`":
    "helpers.cdiv ",
  "use `nn.datasets.cifar10`; from files":
    "nn.datasets.cifar ",
  "use `x.data()`":
    "nn.state.TensorIO ",
  "use `nn.state.safe_load`; takes paths, bytes and tensors":
    "nn.state.accept_filename ",
  "use `nn.state.gguf_load`":
    "nn.state.ggml_data_to_tensor ",
  "use `ntgrad.Function`":
    "tensor.Function ",
  "use `ntgrad.Tensor`":
    "tensor.Tensor ",
  "one process, one device a tensor; `utils.data.DataLoader` has workers":
    "torch.multiprocessing ",
  "tensors are dense; kernels of the tile language take `tile.Jagged`":
    "torch.nested ",
  "a mask is a tensor of bools: `x.where(..)`, `x.masked_fill(..)`":
    "torch.masked ",
  "draw with `Tensor.randn`, `x.bernoulli()`, `x.multinomial(..)`; a log probability is a line":
    "torch.distributions ",
  "`ntgrad.jit` records the kernels of a function":
    "torch.compiler ",
  "`np.testing.assert_allclose(x.numpy(), ..)`":
    "torch.testing ",
  "devices are `CPU`, `CL`, `CUDA`, `NUMPY`":
    "torch.mps torch.xpu ",
  "windows are `ntgrad.hann_window` and its like":
    "torch.signal ",
  "one process, one stream; kernels are launched without waiting for them":
    "torch.futures ",
  "layers are names of `nn`: `nn.Linear`":
    "nn.modules ",
  "`nn.Parameter`":
    "nn.parameter ",
  "the script's own: tensorboard's `SummaryWriter` takes `x.item()` and `x.numpy()`":
    "utils.tensorboard ",
  "kernels of one's own are written in the tile language":
    "utils.cpp_extension ",
  "nothing is fetched from a network":
    "utils.model_zoo ",
}
