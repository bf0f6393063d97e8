"""The mark between computations once per request and once per example."""

from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_unary


def to_examples(x: Tensor) -> Tensor:
    """The row of each example's request in ``x``.

    In training each example is a request of its own, and the result is ``x`` itself. Export finds
    the mark in the traced model and puts a gather there, so that everything before it runs once per
    request::

        class Ranker(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.embeddings = es.FusedEmbeddingBagCollection(tables, learning_rate=0.1)
                self.user_tower = torch.nn.Linear(1 + 8, 8)
                self.over = torch.nn.Linear(1 + 8 + 8, 1)

            def forward(self, dense, sparse):
                pooled = self.embeddings(sparse)
                user = self.user_tower(torch.cat([dense[:, :1], pooled["user"]], dim=1))
                user = es.to_examples(user)  # [R, 8] -> [B, 8] when served
                x = torch.cat([dense[:, 1:], user, pooled["item"]], dim=1)
                return self.over(x).squeeze(1).sigmoid()

        model = Ranker()

    Args:
        x: ``(R, ...)``, computed only from inputs of the request scope. If the schema has such
            inputs, export refuses a mark on anything else and names its line.

    Returns:
        ``(B, ...)``; ``x`` itself outside of an exported program.
    """
    # In a torch.fx trace this records a call of to_examples, however it was imported.
    if has_torch_function_unary(x):
        marked: Tensor = handle_torch_function(to_examples, (x,), x)
        return marked
    return x
