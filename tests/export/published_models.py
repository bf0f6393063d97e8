"""Small versions of published recommenders, as people write them in plain PyTorch."""

import itertools
import math

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  the usual alias

from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    EmbeddingCollection,
    EmbeddingConfig,
    to_examples,
)
from embershard.package import DenseInput, Schema, SparseInput

FIELDS = ["user", "item", "category"]
DIM = 8
STEPS = 5

DENSE = [DenseInput("age", scope="request"), DenseInput("price"), DenseInput("likes")]
SPARSE = [
    SparseInput("user", scope="request"),
    SparseInput("item"),
    SparseInput("category"),
    SparseInput("history", scope="request", max_ids=STEPS, keep="last"),
]


def schema_of(model):
    return Schema(dense=DENSE, sparse=[item for item in SPARSE if item.name in model.inputs])


def pooled_tables():
    return EmbeddingBagCollection(
        [
            EmbeddingBagConfig(
                name=f"{field}_table", num_embeddings=9, embedding_dim=DIM, feature_names=[field]
            )
            for field in FIELDS
        ]
    )


def item_tables():
    return EmbeddingCollection(
        [
            EmbeddingConfig(
                name="item_rows",
                num_embeddings=9,
                embedding_dim=DIM,
                feature_names=["item", "history"],
            )
        ]
    )


def mlp(*sizes):
    layers = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU(inplace=True)]
        layers.append(nn.Dropout(0.2))
    return nn.Sequential(*layers)


class OfFields(nn.Module):
    """Base of models that read one pooled vector for each field."""

    inputs = FIELDS

    def __init__(self):
        super().__init__()
        self.embedding = pooled_tables()

    def fields(self, sparse):
        pooled = self.embedding(sparse)
        return torch.stack([pooled[field] for field in FIELDS], dim=1)


class OfHistory(nn.Module):
    """Base of models that read the vectors of the history and the vector of the candidate."""

    inputs = ("item", "history")

    def __init__(self):
        super().__init__()
        self.items = item_tables()

    def history(self, sparse):
        """Vectors of the history [B, L, D], the mask of its entries [B, L], and the item [B, D]."""
        sequences = self.items(sparse)
        history = sequences["history"].to_padded_dense(STEPS)
        lengths = sparse["history"].lengths()
        mask = torch.arange(history.size(1), device=history.device)[None, :] < lengths[:, None]
        return history, mask, sequences["item"].to_padded_dense(1).squeeze(1)


class WideAndDeep(OfFields):
    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(3 + len(FIELDS) * DIM, 1)
        self.deep = mlp(3 + len(FIELDS) * DIM, 16, 8)
        self.out = nn.Linear(8, 1)

    def forward(self, dense, sparse):
        x = torch.cat([dense, self.embedding(sparse).values()], dim=-1)
        logit = self.wide(x)
        logit += self.out(self.deep(x))
        return logit.sigmoid().view(-1)


class DeepFM(OfFields):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 1, bias=False)
        self.bias = nn.Parameter(torch.zeros(1))
        self.deep = mlp(len(FIELDS) * DIM, 16)
        self.out = nn.Linear(16, 1)

    def forward(self, dense, sparse):
        fields = self.fields(sparse)
        assert fields.dim() == 3 and fields.shape[2] == DIM  # noqa: PT018
        square_of_sum = torch.sum(fields, dim=1) ** 2
        sum_of_square = torch.sum(fields**2, dim=1)
        fm = 0.5 * (square_of_sum - sum_of_square).sum(dim=1, keepdim=True)
        deep = self.out(self.deep(fields.flatten(start_dim=1)))
        return torch.sigmoid(self.linear(dense) + fm + deep + self.bias).squeeze(-1)


class CrossNet(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.weights = nn.ParameterList(
            nn.Parameter(torch.randn(width, width)) for _ in range(layers)
        )
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(width)) for _ in range(layers))

    def forward(self, x):
        first = x
        for weight, bias in zip(self.weights, self.biases, strict=True):
            x = first * (x @ weight + bias) + x
        return x


class DCNv2(OfFields):
    def __init__(self):
        super().__init__()
        width = 3 + len(FIELDS) * DIM
        self.cross, self.deep = CrossNet(width, 2), mlp(width, 16)
        self.out = nn.Linear(width + 16, 1)

    def forward(self, dense, sparse):
        x = torch.hstack((dense, self.fields(sparse).view(dense.size(0), -1)))
        return torch.sigmoid(self.out(torch.concat((self.cross(x), self.deep(x)), -1)))[:, 0]


class XDeepFM(OfFields):
    """The compressed interaction network of xDeepFM."""

    def __init__(self, sizes=(4, 3)):
        super().__init__()
        self.sizes = (len(FIELDS), *sizes)
        self.convs = nn.ModuleList(
            nn.Conv1d(before * len(FIELDS), after, 1)
            for before, after in zip(self.sizes, self.sizes[1:], strict=False)
        )
        self.out = nn.Linear(sum(sizes), 1)

    def forward(self, dense, sparse):
        x0 = hidden = self.fields(sparse)
        batch, _, dim = x0.shape
        results = []
        for i, conv in enumerate(self.convs):
            z = torch.einsum("bhd,bmd->bhmd", hidden, x0)
            z = z.reshape(batch, self.sizes[i] * x0.shape[1], dim)
            hidden = F.relu(conv(z))
            results.append(hidden.sum(dim=2))
        return torch.sigmoid(self.out(torch.cat(results, dim=1)).squeeze(1) + dense.mean(1))


class AutoInt(OfFields):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.MultiheadAttention(DIM, 2, batch_first=True) for _ in range(2)
        )
        self.residual = nn.Linear(DIM, DIM)
        self.out = nn.Linear(len(FIELDS) * DIM, 1)

    def forward(self, dense, sparse):
        x = fields = self.fields(sparse)
        for layer in self.layers:
            x, _ = layer(x, x, x)
        x = F.relu(x + self.residual(fields))
        return torch.sigmoid(self.out(x.reshape(x.shape[0], -1))).squeeze(1)


class DIN(OfHistory):
    """Deep interest network, with a softmax over the history."""

    def __init__(self):
        super().__init__()
        self.attention = nn.Sequential(nn.Linear(4 * DIM, 8), nn.PReLU(), nn.Linear(8, 1))
        self.out = mlp(2 * DIM + 3, 8)
        self.score = nn.Linear(8, 1)

    def forward(self, dense, sparse):
        keys, mask, item = self.history(sparse)
        query = item.unsqueeze(1).expand_as(keys)
        scores = self.attention(torch.cat([query, keys, query - keys, query * keys], -1))
        scores = scores.squeeze(-1) / math.sqrt(keys.shape[-1])
        scores = scores.masked_fill(~mask, -(2**31))
        interest = (scores.softmax(dim=-1).unsqueeze(-1) * keys).sum(dim=1)
        x = self.out(torch.cat([interest, item, dense], dim=1))
        return self.score(x).sigmoid().squeeze(-1)


class BST(OfHistory):
    """A transformer over the history and the candidate."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            DIM, 2, 16, dropout=0.1, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers=1)
        self.position = nn.Embedding(STEPS + 1, DIM)
        self.out = nn.Linear((STEPS + 1) * DIM, 1)

    def forward(self, dense, sparse):
        history, mask, item = self.history(sparse)
        x = torch.cat([history, item[:, None]], dim=1)
        x = x + self.position(torch.arange(x.size(1), device=x.device))
        padded = torch.cat([~mask, torch.zeros(x.size(0), 1, dtype=torch.bool)], dim=1)
        x = self.encoder(x, src_key_padding_mask=padded)
        return self.out(x.flatten(1)).squeeze(1).sigmoid()


class TwoTowers(OfFields):
    def __init__(self):
        super().__init__()
        self.user = nn.Sequential(
            nn.Linear(1 + DIM, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4)
        )
        self.item = nn.Sequential(nn.Linear(2 + 2 * DIM, 16), nn.SiLU(), nn.Linear(16, 4))
        self.temperature = nn.Parameter(torch.tensor(0.07))

    def forward(self, dense, sparse):
        pooled = self.embedding(sparse)
        user = F.normalize(self.user(torch.cat([dense[:, :1], pooled["user"]], 1)), p=2, dim=1)
        item = torch.cat([dense[:, 1:], pooled["item"], pooled["category"]], 1)
        item = self.item(item)
        item = item / item.norm(dim=1, keepdim=True).clamp(min=1e-6)
        score = (to_examples(user) * item).sum(dim=-1) / self.temperature.exp()
        return {"score": score, "user": user, "item": item}


class MMoE(OfFields):
    """Two tasks over shared experts."""

    def __init__(self, experts=3, tasks=("click", "buy")):
        super().__init__()
        width = 3 + len(FIELDS) * DIM
        self.experts = nn.ModuleList(mlp(width, 8) for _ in range(experts))
        self.gates = nn.ModuleDict({task: nn.Linear(width, experts) for task in tasks})
        self.towers = nn.ModuleDict({task: nn.Linear(8, 1) for task in tasks})

    def forward(self, dense, sparse):
        x = torch.cat([dense, self.embedding(sparse).values()], dim=1)
        experts = torch.stack([expert(x) for expert in self.experts], dim=1)
        outputs = {}
        for task, tower in self.towers.items():
            gate = F.softmax(self.gates[task](x), dim=1).unsqueeze(1)
            outputs[task] = torch.sigmoid(tower(torch.bmm(gate, experts).squeeze(1))).squeeze(1)
        return outputs


class PLE(OfFields):
    """Progressive layers: experts of each task, and shared ones."""

    def __init__(self, levels=2):
        super().__init__()
        width = len(FIELDS) * DIM
        names = ("click", "buy", "shared")
        self.experts = nn.ModuleList(
            nn.ModuleDict({name: nn.Linear(8 if level else width, 8) for name in names})
            for level in range(levels)
        )
        self.gates = nn.ModuleList(
            nn.ModuleDict(
                {
                    name: nn.Linear(8 if level else width, 3 if name == "shared" else 2)
                    for name in names
                }
            )
            for level in range(levels)
        )
        self.towers = nn.ModuleDict({name: nn.Linear(8, 1) for name in names[:2]})

    def forward(self, dense, sparse):
        inputs = dict.fromkeys(("click", "buy", "shared"), self.fields(sparse).flatten(1))
        for experts, gates in zip(self.experts, self.gates, strict=True):
            settings = {name: F.relu(expert(inputs[name])) for name, expert in experts.items()}
            chosen = {
                "click": [settings["click"], settings["shared"]],
                "buy": [settings["buy"], settings["shared"]],
                "shared": list(settings.values()),
            }
            inputs = {
                name: (
                    torch.stack(chosen[name], 1) * gates[name](inputs[name]).softmax(1)[..., None]
                ).sum(1)
                for name in inputs
            }
        click = self.towers["click"](inputs["click"]).sigmoid().flatten()
        return {
            "click": click,
            "both": click * self.towers["buy"](inputs["buy"]).sigmoid().flatten(),
        }


class GRU4Rec(OfHistory):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(DIM, DIM, num_layers=2, batch_first=True, dropout=0.1)

    def forward(self, dense, sparse):
        history, mask, item = self.history(sparse)
        output, _ = self.gru(history)
        last = (mask.sum(dim=1) - 1).clamp(min=0)
        session = output[torch.arange(output.shape[0]), last]
        session = torch.where(mask.any(dim=1, keepdim=True), session, torch.zeros_like(session))
        return (session * item).sum(-1) + dense.sum(1) * 0.1


class SASRec(OfHistory):
    """Causal attention over the history, written out."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(DIM, DIM) for _ in range(3))
        self.norm = nn.LayerNorm(DIM)
        self.register_buffer("causal", torch.tril(torch.ones(STEPS, STEPS)).bool())

    def forward(self, dense, sparse):
        x, mask, item = self.history(sparse)
        b, n, d = x.size()
        q, k, v = (
            layer(x).view(b, n, 2, d // 2).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=self.causal[:n, :n])
        x = self.norm(x + attended.transpose(1, 2).contiguous().view(b, n, d))
        x = x * mask.unsqueeze(-1)
        index = (mask.sum(1) - 1).clamp_min(0).view(-1, 1, 1).expand(-1, 1, d)
        return torch.einsum("bd,bd->b", x.gather(1, index).squeeze(1), item)


class FiBiNET(OfFields):
    """Squeeze and excitation, then products of pairs."""

    def __init__(self):
        super().__init__()
        fields = len(FIELDS)
        self.excite = nn.Sequential(
            nn.Linear(fields, 2), nn.ReLU(), nn.Linear(2, fields), nn.ReLU()
        )
        self.bilinear = nn.Linear(DIM, DIM, bias=False)
        self.pairs = [(i, j) for i in range(fields) for j in range(i + 1, fields)]
        self.out = nn.Linear(len(self.pairs), 1)

    def forward(self, dense, sparse):
        fields = self.fields(sparse)
        fields = fields * self.excite(fields.mean(dim=-1)).unsqueeze(-1)
        left = self.bilinear(fields)
        products = torch.zeros(fields.size(0), len(self.pairs), device=fields.device)
        for place, (i, j) in enumerate(self.pairs):
            products[:, place] = (left[:, i] * fields[:, j]).sum(-1)
        return torch.sigmoid(self.out(products)).squeeze(-1)


MODELS = (
    WideAndDeep,
    DeepFM,
    DCNv2,
    XDeepFM,
    AutoInt,
    DIN,
    BST,
    TwoTowers,
    MMoE,
    PLE,
    GRU4Rec,
    SASRec,
    FiBiNET,
)
