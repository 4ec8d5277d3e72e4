"""Settings that cure more than one cause: the line to paste and the TensorFlow version it works from.

What each does to one op is said in the entry; `Setting` is copied with another `effect` there where it matters.
"""

from dataclasses import replace

from tfbisect.knowledge.entry import Setting

OP_DETERMINISM = Setting(
    "op determinism",
    "python",
    "tf.config.experimental.enable_op_determinism()",
    "2.8",
    "picks deterministic kernels where they exist and raises for ops that have none",
    ("TF_DETERMINISTIC_OPS", "1"),
)
DETERMINISTIC_OPS_VARIABLE = Setting(
    "op determinism by environment variable",
    "environment",
    'os.environ["TF_DETERMINISTIC_OPS"] = "1"  # before TensorFlow runs its first op',
    "2.1",
    "the same switch for versions that lack the function",
    ("TF_DETERMINISTIC_OPS", "1"),
)
CUDNN_DETERMINISTIC = Setting(
    "deterministic cuDNN",
    "environment",
    'os.environ["TF_CUDNN_DETERMINISTIC"] = "1"  # before TensorFlow runs its first op',
    "1.14",
    "cuDNN ops only; keep TF_CUDNN_USE_AUTOTUNE unset with it",
    ("TF_CUDNN_DETERMINISTIC", "1"),
)
CUDNN_FRONTEND = Setting(
    "cuDNN frontend",
    "environment",
    'os.environ["TF_CUDNN_USE_FRONTEND"] = "1"  # with TF_DETERMINISTIC_OPS=1; 2.5 to 2.7 need both',
    "2.5 (gone by 2.21)",
    "gives back the deterministic choice of algorithm that 2.5 to 2.7 had lost",
    ("TF_CUDNN_USE_FRONTEND", "1"),
)
ONE_INTRA_OP_THREAD = Setting(
    "one intra-op thread",
    "python",
    "tf.config.threading.set_intra_op_parallelism_threads(1)",
    "2.0",
    "no two threads inside one kernel; slower",
    ("TF_NUM_INTRAOP_THREADS", "1"),
)
SAME_THREADS = Setting(
    "equal thread counts",
    "python",
    "tf.config.threading.set_intra_op_parallelism_threads(2)  # the same number in every run",
    "2.0",
    "the work is cut into the same pieces in both runs",
    ("TF_NUM_INTRAOP_THREADS", "2"),
)
ONEDNN_OFF = Setting(
    "oneDNN off",
    "environment",
    'os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # before importing tensorflow',
    "2.9 (default on from there on Linux x86)",
    "Eigen kernels instead of oneDNN's",
    ("TF_ENABLE_ONEDNN_OPTS", "0"),
)
ONEDNN_ISA = Setting(
    "oneDNN without AVX-512",
    "environment",
    'os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX2"  # before importing tensorflow',
    "oneDNN",
    "keeps oneDNN away from the instruction set of the faulty or differing kernel",
    ("ONEDNN_MAX_CPU_ISA", "AVX2"),
)
TF32_OFF = Setting(
    "TensorFloat-32 off",
    "python",
    "tf.config.experimental.enable_tensor_float_32_execution(False)",
    "2.4",
    "full float32 products on Ampere and later GPUs",
)
CUBLAS_WORKSPACE = Setting(
    "cuBLAS workspace",
    "environment",
    'os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # before importing tensorflow',
    "cuBLAS",
    "equal bits although several streams are active",
    ("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
)
XLA_DETERMINISTIC = Setting(
    "deterministic XLA:GPU",
    "environment",
    'os.environ["XLA_FLAGS"] = "--xla_gpu_deterministic_ops=true"  # before importing tensorflow',
    "2.5",
    "no nondeterministic instructions and no choice of kernels by timing; what has no such form fails",
    ("XLA_FLAGS", "--xla_gpu_deterministic_ops=true"),
)
XLA_AUTOTUNE_OFF = Setting(
    "XLA autotuning off",
    "environment",
    'os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0"  # before importing tensorflow',
    "2.21 (flag seen there)",
    "kernels are no longer chosen by timing",
    ("XLA_FLAGS", "--xla_gpu_autotune_level=0"),
)
NO_XLA = Setting(
    "no XLA",
    "code",
    "model.compile(..., jit_compile=False)  # and @tf.function(jit_compile=False)",
    "2.5",
    "both runs execute TensorFlow's own kernels",
)
SEED_ALL = Setting(
    "all seeds",
    "python",
    "tf.keras.utils.set_random_seed(1)  # before the model, the data set and the first random op",
    "2.7",
    "seeds Python's random, NumPy's global generator and TensorFlow (not numpy.random.default_rng)",
)
SEED_CALLBACK = Setting(
    "a seed inside the function",
    "code",
    "rng = np.random.default_rng(0)  # in that function: a seed of its own, an order that never changes, no clock",
    "2.0",
    "what the function returns depends on its arguments alone",
)
SEED_GLOBAL = Setting(
    "TensorFlow's global seed",
    "python",
    "tf.random.set_seed(1)  # before the first random op",
    "2.0",
    "the k-th random op the program creates gets a repeatable seed",
)
SEED_OP = Setting(
    "a seed for this op",
    "code",
    "seed=1  # as an argument of this op, with another number for each op",
    "1.0",
    "this op's stream no longer depends on how many random ops came before it",
)
SERIAL_LOOP = Setting(
    "one loop iteration at a time",
    "code",
    "tf.while_loop(cond, body, loop_vars, parallel_iterations=1)"
    "  # in a Python loop: tf.autograph.experimental.set_loop_options(parallel_iterations=1)",
    "2.0",
    "iterations no longer compete for the next number",
)
STATELESS_RANDOM = Setting(
    "stateless random numbers",
    "code",
    "tf.random.stateless_uniform(shape, seed=[7, i])  # i: the iteration, the element's index or the step",
    "2.0",
    "each number depends on its own seed alone, so order no longer matters",
)
GENERATOR = Setting(
    "a generator with its state in a variable",
    "code",
    "rng = tf.random.Generator.from_seed(1)  # once, outside; then rng.uniform(shape) inside the tf.function",
    "2.3 (tf.random.experimental.Generator before)",
    "draws are ordered in tf.function, also inside loops",
)
PROGRAM_ORDER = Setting(
    "program order",
    "code",
    "@tf.function  # reads and writes of a variable keep the order of the lines",
    "2.0",
    "automatic control dependencies order the side effects",
)
CONTROL_DEPENDENCIES = Setting(
    "an explicit order",
    "code",
    "with tf.control_dependencies([first]): second = ...  # the op that must see the other's effect goes inside",
    "1.0",
    "the two side effects can no longer swap",
)
ORDERED_DATA = Setting(
    "ordered tf.data",
    "code",
    "options = tf.data.Options(); options.deterministic = True; dataset = dataset.with_options(options)",
    "2.7 (experimental_deterministic before)",
    "elements leave parallel stages in the order they came in",
)
SERIAL_MAP = Setting(
    "a serial map",
    "code",
    "dataset.map(function)  # without num_parallel_calls, for the stage that draws numbers or keeps state",
    "2.0",
    "one call after another",
)
SEED_SHUFFLE = Setting(
    "a seeded shuffle",
    "code",
    "dataset.shuffle(buffer_size, seed=1)  # Keras: model.fit(..., shuffle=False), or all seeds set",
    "2.0",
    "the same order in every process, epoch by epoch",
)
SAME_SETTINGS = Setting(
    "equal settings",
    "code",
    "{exports}",
    "any",
    "both runs start alike",
)
HASH_SEED = Setting(
    "Python's hash seed",
    "environment",
    "PYTHONHASHSEED=0 python program.py  # it must be set before Python starts",
    "Python",
    "strings hash alike in every process, so sets keep one order",
    ("PYTHONHASHSEED", "0"),
)
SORTED = Setting(
    "sorted iteration",
    "code",
    "for name in sorted(names):  # wherever a set or a directory listing decides the order",
    "Python",
    "the order no longer depends on hashes or on the file system",
)
ON_CPU = Setting(
    "this op on the CPU",
    "code",
    'with tf.device("CPU:0"): ...  # around this op; for a gradient, around the forward op',
    "1.0",
    "the CPU kernel is deterministic",
)
UNIQUE_ROWS = Setting(
    "sum repeated rows first",
    "code",
    "ids, where = tf.unique(indices); rows = tf.math.unsorted_segment_sum(updates, where, tf.size(ids))",
    "1.0",
    "no row is touched twice, so no order is left to vary",
)
NVLS_OFF = Setting(
    "NCCL without in-switch sums",
    "environment",
    'os.environ["NCCL_NVLS_ENABLE"] = "0"  # before importing tensorflow',
    "NCCL",
    "no reduction inside the switch, whose result differs between calls",
    ("NCCL_NVLS_ENABLE", "0"),
)
NCCL_RING = Setting(
    "one NCCL algorithm",
    "environment",
    'os.environ["NCCL_ALGO"] = "Ring"  # before importing tensorflow',
    "NCCL",
    "the order of the sum is fixed for a given topology",
    ("NCCL_ALGO", "Ring"),
)


def doing(setting: Setting, effect: str, since: str | None = None) -> Setting:
    """The same setting with what it does to one op, and the version it does so from."""
    return replace(setting, effect=effect, since=since or setting.since)
