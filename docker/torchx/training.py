"""TorchX: the command of docker/kubernetes/training.yaml for any of TorchX's schedulers.

torchx run --scheduler local_cwd docker/torchx/training.py:train --config run.toml
"""

import torchx.specs as specs

PORT = 29400


def train(
    config: str,
    nnodes: int = 1,
    nproc_per_node: int = 2,
    max_restarts: int = 3,
    image: str = "embershard-training:0.1.0",
    cpu: int = 2,
    mem_mb: int = 8192,
) -> specs.AppDef:
    """Train with embershard on several processes.

    Args:
        config: the run's TOML file, as the processes see it
        nnodes: number of nodes
        nproc_per_node: ranks of each node
        max_restarts: how often torchrun restarts the ranks; they go on from the last checkpoint
        image: of docker/training.Dockerfile
        cpu: cores of each node
        mem_mb: memory of each node, in MiB
    """
    first = f"$${{{specs.macros.rank0_env}:=localhost}}:{PORT}" if nnodes > 1 else "localhost:0"
    launch = [
        "torchrun",
        f"--nnodes={nnodes}",
        f"--nproc-per-node={nproc_per_node}",
        f"--max-restarts={max_restarts}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={first}",
        f"--rdzv-id={specs.macros.app_id}",
        "-m embershard train --resume",
        f"'{config}'",
    ]
    return specs.AppDef(
        name="embershard-training",
        roles=[
            specs.Role(
                name="node",
                image=image,
                entrypoint="bash",
                args=["-c", " ".join(launch)],
                num_replicas=nnodes,
                port_map={"rendezvous": PORT},
                resource=specs.Resource(cpu=cpu, gpu=0, memMB=mem_mb),
            )
        ],
    )
