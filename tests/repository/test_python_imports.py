"""Rules for imports between Python components, checked in the sources."""

import ast
from graphlib import TopologicalSorter

from tests.cases import cases
from tests.repository.sources import ROOT, Import, Module, imports_of, modules, own_files

# All components may import the leaves.
LEAVES = {"errors", "version", "formatting", "ids", "malloc_options", "memory_limit", "sections"}
# Each component may import the ones before it.
LIBRARY = [
    "package",
    "jagged",
    "kernels",
    "modules",
    "collectives",
    "optim",
    "sharding",
    "planner",
    "models",
]
# The other components that each component may import.
ALLOWED = {
    "errors": set(),
    "version": set(),
    "formatting": set(),
    "ids": set(),
    "malloc_options": set(),
    "memory_limit": set(),
    "sections": set(),
    **{component: set(LIBRARY[:place]) for place, component in enumerate(LIBRARY)},
    "data": set(LIBRARY),
    "tracking": set(),
    "training": {*LIBRARY, "data", "tracking"},
    "export": {*LIBRARY, "data", "training"},
    "console": {"export", "training"},
    "score": {*LIBRARY, "data", "serving", "bench"},
    "serving": {"_proto", "client", "package"},
    "client": {"_proto"},
    "bench": {"_proto", "client", "package"},
    "explain": {"_proto", "client", "package", "serving"},
    "fetch": {"package"},
}
TORCH_FREE = LEAVES | {"package", "serving", "client", "bench", "explain", "fetch"}
TORCH = {"torch", "torchmetrics", "fbgemm_gpu"}
COMMANDS = {"cli", "commands"}
DEFERRED = {("embershard.sharding.default_plan", "planner")}
"""Pairs of a module and a component above it that the module imports only when it is used."""
LAZY = {"", "__main__"} | COMMANDS


def faults(module: Module, result: list[Import]) -> list[str]:
    """The imports of a module that its component may not have."""
    shown = []
    for item in result:
        if item.top == "embershard" and not may_import(module, item):
            shown.append(f"{module.name}:{item.line} imports {item.target}")
        if module.component in TORCH_FREE and item.top in TORCH:
            shown.append(f"{module.name}:{item.line} imports {item.target}")
    return shown


def may_import(module: Module, item: Import) -> bool:
    if item.component in COMMANDS:
        return module.component in LAZY
    if module.component in LAZY:
        return item.deferred or item.component in LEAVES | COMMANDS
    if item.deferred and (module.name, item.component) in DEFERRED:
        return True
    return item.component in LEAVES | {module.component} | ALLOWED[module.component]


def test_every_component_has_a_rule():
    assert {module.component for module in modules()} <= set(ALLOWED) | LAZY


def test_imports_point_one_way():
    assert [fault for module in modules() for fault in faults(module, module.imports())] == []


def test_no_two_modules_import_each_other():
    names = {module.name for module in modules()}
    imported = {
        module.name: {
            item.target if item.target in names else item.target.rpartition(".")[0]
            for item in module.imports()
            if not item.deferred
        }
        for module in modules()
    }
    TopologicalSorter(imported).prepare()  # Raises CycleError, which names the modules.


@cases(
    ("name", "source"),
    {
        "upwards": ("package.schema", "from embershard.jagged import JaggedTensor"),
        "from-training": ("serving.server", "from embershard.models import DLRM"),
        "client": ("client.client", "from embershard.package import hash_string"),
        "torch-in-the-client": ("client.client", "import torch"),
        "explain": ("explain.features", "from embershard.kernels import f"),
        "torch-in-a-function": ("package.reader", "def f():\n    import torch"),
        "fbgemm-in-serving": ("serving.server", "from fbgemm_gpu import x"),
        "the-root-from-inside": ("modules.mlp", "import embershard"),
        "the-commands": ("training.trainer", "from embershard.cli import main"),
        "planner-when-loaded": (
            "sharding.default_plan",
            "from embershard.planner import Topology",
        ),
        "planner-elsewhere": (
            "sharding.plan_checks",
            "def f():\n    from embershard.planner import Topology",
        ),
        "eager-command": ("cli", "from embershard.training import train"),
        "component-as-a-name": ("package.plan", "from embershard import jagged"),
    },
)
def test_a_forbidden_import_is_noticed(name, source):
    module = Module(f"embershard.{name}", ROOT / "made_up.py")
    assert len(faults(module, list(imports_of(ast.parse(source))))) == 1


def test_only_kernels_touches_fbgemm():
    users = {m.component for m in modules() if any(i.top == "fbgemm_gpu" for i in m.imports())}
    assert users == {"kernels"}


def test_only_kernels_touches_torch_ops():
    users = {m.component for m in modules() if "torch.ops" in attributes(m.tree())}
    assert users == {"kernels"}


def test_torch_jit_is_called_in_one_module():
    """Apart from calls, `jagged` decorates with `@torch.jit.unused` for KeyedTensor in programs."""
    callers = {m.name for m in modules() if any(n.startswith("torch.jit.") for n in calls(m))}
    assert len(callers) == 1, callers
    users = {m.component for m in modules() if "torch.jit" in attributes(m.tree())}
    assert users == {"jagged", *(name.split(".")[1] for name in callers)}


@cases(
    ("extension", "module"),
    {
        "serving": ("embershard.serving._predictor", "embershard.serving._native"),
        "bench": ("embershard.bench._load", "embershard.bench.run"),
        "kernels": ("embershard.kernels._row_update", "embershard.kernels.row_update"),
    },
)
def test_one_module_loads_each_extension(extension, module):
    """A module loads an extension by an import, or by import_module with its name."""
    users = {
        module.name
        for module in modules()
        if extension in {i.target for i in module.imports()} | constants(module.tree())
    }
    assert users == {module}


def test_no_bare_import_of_a_folder_in_the_root():
    results = [
        f"{path.relative_to(ROOT)}:{item.line}"
        for path in own_files(".py")
        for item in imports_of(ast.parse(path.read_text()))
        if item.top in ("export", "serving", "proto") and not item.relative
    ]
    assert results == []


def test_imports_inside_the_distribution_are_absolute():
    assert [f"{m.name}:{i.line}" for m in modules() for i in m.imports() if i.relative] == []


def attributes(tree: ast.AST) -> set[str]:
    """Every dotted name in a tree. `torch.ops.fbgemm.f` also counts as `torch.ops.fbgemm` etc."""
    return {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def constants(tree: ast.AST) -> set[str]:
    """Every string constant in a tree."""
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def calls(module: Module) -> set[str]:
    """The dotted names that a module calls."""
    return {
        ast.unparse(node.func) for node in ast.walk(module.tree()) if isinstance(node, ast.Call)
    }
