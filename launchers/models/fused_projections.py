"""Projections of one input as one product: queries, keys and values of attention, gate and up of an MLP.

Their matrices are the rows of one parameter. transformers' own forward asks for each projection, and gets its columns
of the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial

from torch import Tensor, nn

from llmexp.errors import ConfigError
from llmexp.record.what_ran import WhatRan

# Each product by the name that it gets, with its projections in the order in which they are asked for.
PRODUCTS = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
# The attribute of a module that has some; other layers may take the place of their linear ones.
_PRODUCTS = "fused_products"


class Product:
    """A linear layer of `owner`, and what is left of its last result."""

    def __init__(self, owner: nn.Module, name: str) -> None:
        self._owner, self._name = owner, name
        self.rows: dict[str, int] = {leaf: getattr(owner, leaf).out_features for leaf in PRODUCTS[name]}
        self._input: Tensor | None = None
        self._left: list[Tensor | None] = []

    def take(self, place: int, inputs: Tensor) -> Tensor:
        """Return a projection of `inputs`; the first that is asked for multiplies for all."""
        found = self._left[place] if self._input is inputs else None
        if found is None:
            # One split, as each slice alone would get a gradient of the whole result's size.
            self._left = list(getattr(self._owner, self._name)(inputs).split(list(self.rows.values()), -1))
            self._input, found = inputs, self._left[place]
            assert found is not None
        self._left[place] = None
        if all(each is None for each in self._left):
            self._input = None
        return found


def fuse_projections(model: nn.Module) -> None:
    """Give the model one linear layer for each of PRODUCTS, with values that the caller sets.

    Raises ConfigError for a model without such projections.
    """
    for owner in list(model.modules()):
        for name, leaves in PRODUCTS.items():
            if all(type(getattr(owner, leaf, None)) is nn.Linear for leaf in leaves):
                _fuse(owner, name)
    if not products_of(model):
        raise ConfigError(
            f"kernels.fused_projections=true: {type(model).__name__} has no linear layers q_proj, k_proj and v_proj"
        )


def _fuse(owner: nn.Module, name: str) -> None:
    product, first = Product(owner, name), getattr(owner, PRODUCTS[name][0])
    device, dtype, bias = first.weight.device, first.weight.dtype, first.bias is not None
    made = nn.Linear(first.in_features, sum(product.rows.values()), bias, device, dtype)
    for place, leaf in enumerate(product.rows):
        delattr(owner, leaf)
        # No modules: ZeRO-3 gives each module a view of its input, and the input would not be the same one.
        setattr(owner, leaf, partial(product.take, place))
    owner.add_module(name, made)
    vars(owner).setdefault(_PRODUCTS, {})[name] = product


def products_of(model: nn.Module) -> dict[str, Product]:
    """Return the products by the names of their linear layers in the model."""
    held = ((path, vars(module).get(_PRODUCTS, {})) for path, module in model.named_modules())
    return {f"{path}.{name}": product for path, products in held for name, product in products.items()}


def rows_of(model: nn.Module) -> dict[str, dict[str, int]]:
    """Return, for each parameter of several projections, the names and the rows of these without a product."""
    return {
        f"{path}.{leaf}": {f"{path.rpartition('.')[0]}.{name}.{leaf}": rows for name, rows in product.rows.items()}
        for path, product in products_of(model).items()
        for leaf, _ in model.get_submodule(path).named_parameters(recurse=False)
    }


def by_projection(name: str, values: Tensor, rows: Mapping[str, Mapping[str, int]]) -> dict[str, Tensor]:
    """Return a parameter's values by its name, or by those of its projections where `rows` knows it."""
    parts = rows.get(name)
    return dict(zip(parts, values.split(list(parts.values())), strict=True)) if parts else {name: values}


def products_that_ran(module: nn.Module) -> WhatRan:
    """Say, for what_ran, how many products of several projections the model has, where any were asked for."""
    counted = Counter(path.rpartition(".")[2] for path in products_of(module))
    return {"fused_projections": dict(counted)} if counted else {}
