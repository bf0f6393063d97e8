#include <ATen/Parallel.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "dense/programs.h"
#include "dense/torchscript_passes.h"
#include "dense/vector_products.h"

namespace embershard {
namespace {

torch::jit::Module Replaced() {
  torch::jit::Module module = Program("products");
  ReplaceProducts(module.get_method("forward").graph());
  return module;
}

c10::Dict<c10::IValue, c10::IValue> Forward(torch::jit::Module& module, const at::Tensor& vectors,
                                            const at::Tensor& of_requests, const at::Tensor& rows) {
  return module
      .forward({c10::List<at::Tensor>({of_requests}), c10::List<at::Tensor>({vectors}), rows})
      .toGenericDict();
}

at::Tensor Waves(int64_t rows, int64_t columns) {
  return at::linspace(-3, 30, rows * columns).sin().reshape({rows, columns});
}

class ReplaceProductsTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (UsableVectorProducts().empty()) GTEST_SKIP() << "no such processor";
    at::set_num_threads(GetParam());
  }
  void TearDown() override { at::set_num_threads(1); }
};

TEST_P(ReplaceProductsTest, ReplacesProductsOfAllPairsInOrderAndWithTheRequests) {
  EXPECT_EQ(Count(Program("products"), "aten::bmm"), 4);
  const torch::jit::Module module = Replaced();
  EXPECT_EQ(Count(module, "embershard::pair_products"), 2);
  EXPECT_EQ(Count(module, "embershard::cross_products"), 1);
  EXPECT_EQ(Count(module, "aten::bmm"), 1);  // Its pairs are in another order.
  EXPECT_EQ(Count(Program("products"), "aten::cat"), 1);
  EXPECT_EQ(Count(module, "aten::cat"), 0);
}

TEST_P(ReplaceProductsTest, KeepsWhatTheProgramComputes) {
  torch::jit::Module before = Program("products");
  torch::jit::Module after = Replaced();
  for (const int64_t examples : {0, 1, 5, 100}) {
    const at::Tensor vectors = Waves(examples, 180);
    const at::Tensor of_requests = Waves(2, 60);
    const at::Tensor rows = at::linspace(0, 1.9, examples).to(at::kLong);
    const auto expected = Forward(before, vectors, of_requests, rows);
    const auto got = Forward(after, vectors, of_requests, rows);
    for (const char* name : {"pairs", "cross", "others", "of_parts"}) {
      EXPECT_TRUE(at::allclose(got.at(name).toTensor(), expected.at(name).toTensor(), 1e-5, 1e-5))
          << name << " of " << examples;
    }
  }
}

TEST_P(ReplaceProductsTest, WhatIsWrittenMeanwhileIsComputedAsBefore) {
  for (const char* write : {"x.mul_(2)", "a.mul_(2)", "parts.append(a)"}) {
    torch::jit::Module module("written");
    module.register_buffer("pairs", at::tensor({1, 2, 5}, at::kLong));
    module.define(
        std::string("def forward(self, a, b):\n  parts = [a, b]\n  x = torch.cat(parts, 1)\n  ") +
        write +
        "\n  products = torch.flatten(torch.bmm(x, torch.transpose(x, 1, 2)), 1)\n"
        "  return torch.index_select(products, 1, self.pairs)\n");
    module.eval();
    torch::jit::Module before = torch::jit::freeze(module);
    torch::jit::Module after = torch::jit::freeze(module);
    ReplaceProducts(after.get_method("forward").graph());
    const at::Tensor a = Waves(5, 16).reshape({5, 2, 8});
    const at::Tensor b = Waves(5, 8).reshape({5, 1, 8});
    const at::Tensor expected = before.forward({a.clone(), b}).toTensor();
    EXPECT_TRUE(at::allclose(after.forward({a.clone(), b}).toTensor(), expected, 1e-5, 1e-5))
        << write;
  }
}

TEST_P(ReplaceProductsTest, OfRowsThatAreWrittenMeanwhileIsComputedAsBefore) {
  for (const char* write : {"y.add_(1)", "x.add_(1)", "rows.zero_()"}) {
    torch::jit::Module module("written");
    module.define(std::string("def forward(self, x, y, rows):\n"
                              "  others = torch.transpose(torch.index_select(y, 0, rows), 1, 2)\n"
                              "  products = torch.bmm(x, others)\n  ") +
                  write + "\n  return torch.flatten(products, 1)\n");
    module.eval();
    torch::jit::Module before = torch::jit::freeze(module);
    torch::jit::Module after = torch::jit::freeze(module);
    ReplaceProducts(after.get_method("forward").graph());
    const at::Tensor x = Waves(3, 16).reshape({3, 2, 8});
    const at::Tensor y = Waves(2, 24).reshape({2, 3, 8});
    const at::Tensor rows = at::tensor({1, 0, 1}, at::kLong);
    const at::Tensor expected = before.forward({x.clone(), y.clone(), rows.clone()}).toTensor();
    const at::Tensor got = after.forward({x.clone(), y.clone(), rows.clone()}).toTensor();
    EXPECT_TRUE(at::allclose(got, expected, 1e-5, 1e-5)) << write;
  }
}

TEST_P(ReplaceProductsTest, AnotherTypeIsComputedAsBefore) {
  torch::jit::Module before = Program("products");
  torch::jit::Module after = Replaced();
  const at::Tensor vectors = Waves(4, 180).to(at::kDouble);
  const at::Tensor of_requests = Waves(2, 60).to(at::kDouble);
  const at::Tensor rows = at::tensor({0, 1, 1, 0}, at::kLong);
  const auto expected = Forward(before, vectors, of_requests, rows);
  const auto got = Forward(after, vectors, of_requests, rows);
  EXPECT_TRUE(got.at("pairs").toTensor().equal(expected.at("pairs").toTensor()));
  EXPECT_TRUE(got.at("cross").toTensor().equal(expected.at("cross").toTensor()));
  EXPECT_TRUE(got.at("of_parts").toTensor().equal(expected.at("of_parts").toTensor()));
}

TEST_P(ReplaceProductsTest, ARowThatNoRequestHasIsAnErrorAsBefore) {
  torch::jit::Module after = Replaced();
  const at::Tensor rows = at::tensor({0, 2}, at::kLong);
  EXPECT_THROW(Forward(after, Waves(2, 180), Waves(2, 60), rows), std::exception);
}

TEST_P(ReplaceProductsTest, NaNStaysInItsExample) {
  torch::jit::Module after = Replaced();
  const at::Tensor vectors = Waves(3, 180);
  const at::Tensor rows = at::tensor({0, 0, 1}, at::kLong);
  const at::Tensor expected = Forward(after, vectors, Waves(2, 60), rows).at("pairs").toTensor();
  const at::Tensor spoiled = vectors.clone();
  spoiled[1].fill_(std::nan(""));
  const at::Tensor got = Forward(after, spoiled, Waves(2, 60), rows).at("pairs").toTensor();
  EXPECT_TRUE(got[0].equal(expected[0]));
  EXPECT_TRUE(got[1].isnan().all().item<bool>());
  EXPECT_TRUE(got[2].equal(expected[2]));
}

INSTANTIATE_TEST_SUITE_P(Threads, ReplaceProductsTest, ::testing::Values(1, 2),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace embershard
