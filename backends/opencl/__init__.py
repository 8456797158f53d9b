"""OpenCL: PoCL on the CPU is the default device of a machine without a GPU. ``renderer`` turns linear UOps into OpenCL C
(``prelude`` has its helper functions), ``compiler`` builds many kernels at once and keeps their binaries on disk, ``device`` is
the runtime."""
