#include "triton/config_validation.h"

#include <gtest/gtest.h>

#include <string>

#include "batching/fake_model.h"

namespace embershard::triton {
namespace {

struct Case {
  const char* name;
  const char* config;
  const char* message;  // The text after "config.pbtxt: ". Empty: no error.
};

void PrintTo(const Case& test_case, std::ostream* out) { *out << test_case.name; }

std::string Expected(const Case& test_case) {
  return *test_case.message == 0 ? "" : std::string("config.pbtxt: ") + test_case.message;
}

class TensorsTest : public ::testing::TestWithParam<Case> {};

// The schema of fake_model.h: age in request scope and price are required, discount has a default.
TEST_P(TensorsTest, AreThoseOfThePackage) {
  const auto config = nlohmann::json::parse(GetParam().config);
  EXPECT_EQ(CheckTensors(config, FakeManifest().schema).message(), Expected(GetParam()));
}

const Case kTensors[] = {
    {"none", R"({"max_batch_size": 8})", ""},
    {"another_input", R"({"input": [{"name": "prize", "data_type": "TYPE_FP32", "dims": [-1]}]})",
     "input 'prize': the package has no such input"},
    {"another_output",
     R"({"output": [{"name": "scores", "data_type": "TYPE_FP32", "dims": [-1]}]})",
     "output 'scores': the package has no such output"},
    {"another_type", R"({"input": [{"name": "age", "data_type": "TYPE_FP64", "dims": [1]}]})",
     "input 'age': data_type: expected TYPE_FP32, got TYPE_FP64"},
    {"another_size",
     R"({"max_batch_size": 8,
         "input": [{"name": "age", "data_type": "TYPE_FP32", "dims": [2]}]})",
     "input 'age': dims: expected [1], got [2]"},
    {"a_fixed_number_of_examples",
     R"({"max_batch_size": 8,
         "output": [{"name": "score", "data_type": "TYPE_FP32", "dims": [7]}]})",
     "output 'score': dims: expected [-1], got [7]"},
    {"another_width",
     R"({"max_batch_size": 8,
         "output": [{"name": "profile", "data_type": "TYPE_FP32", "dims": [1, 3]}]})",
     "output 'profile': dims: expected [1,2], got [1,3]"},
    {"more_dimensions",
     R"({"max_batch_size": 8,
         "input": [{"name": "price", "data_type": "TYPE_FP32", "dims": [1, -1]}]})",
     "input 'price': dims: expected [-1], got [1,-1]"},
    {"more_dimensions_beside_dynamic_batching",
     R"({"dynamic_batching": {},
         "input": [{"name": "price", "data_type": "TYPE_FP32", "dims": [1, -1]}]})",
     "input 'price': dims: expected [-1], got [1,-1]"},
    {"no_dimensions", R"({"input": [{"name": "price", "data_type": "TYPE_FP32"}]})",
     "input 'price': dims: expected [-1], got null"},
    {"packed_for_another_package",
     R"({"input": [{"name": "DENSE", "data_type": "TYPE_FP32", "dims": [-1, 1]}]})",
     "input 'DENSE': dims: expected [-1,2], got [-1,1]"},
    {"any_size_for_a_fixed_one",
     R"({"max_batch_size": 8,
         "input": [{"name": "age", "data_type": "TYPE_FP32", "dims": [-1]},
                   {"name": "DENSE", "data_type": "TYPE_FP32", "dims": [-1, -1]}]})",
     ""},
    {"with_the_leading_one_where_nothing_is_batched",
     R"({"max_batch_size": 0,
         "input": [{"name": "age", "data_type": "TYPE_FP32", "dims": [1, 1]},
                   {"name": "price", "data_type": "TYPE_FP32", "dims": [-1]}],
         "output": [{"name": "profile", "data_type": "TYPE_FP32", "dims": [1, 1, 2]}]})",
     ""},
    {"without_a_required_input_of_the_request",
     R"({"input": [{"name": "price", "data_type": "TYPE_FP32", "dims": [-1]}]})",
     "input 'age': missing (the package has no default for it)"},
    {"without_a_required_input_of_examples",
     R"({"input": [{"name": "age", "data_type": "TYPE_FP32", "dims": [1]},
                   {"name": "discount", "data_type": "TYPE_FP32", "dims": [-1]}]})",
     "input 'price': missing (the package has no default for it)"},
    {"outputs_alone", R"({"output": [{"name": "score", "data_type": "TYPE_FP32", "dims": [-1]}]})",
     "input 'age': missing (the package has no default for it)"},
    {"without_inputs_that_may_be_left_out",
     R"({"input": [{"name": "age", "data_type": "TYPE_FP32", "dims": [1]},
                   {"name": "price", "data_type": "TYPE_FP32", "dims": [-1]}],
         "output": [{"name": "score", "data_type": "TYPE_FP32", "dims": [-1]}]})",
     ""},
    {"packed_inputs_alone",
     R"({"input": [{"name": "REQUEST_DENSE", "data_type": "TYPE_FP32", "dims": [1]},
                   {"name": "DENSE", "data_type": "TYPE_FP32", "dims": [-1, 2]}]})",
     ""},
};

std::string NameOf(const testing::TestParamInfo<Case>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(, TensorsTest, testing::ValuesIn(kTensors), NameOf);

class FeaturesTest : public ::testing::TestWithParam<Case> {};

TEST_P(FeaturesTest, AreThoseOfTheBackend) {
  const auto config = nlohmann::json::parse(GetParam().config);
  EXPECT_EQ(CheckFeatures(config).message(), Expected(GetParam()));
}

const Case kFeatures[] = {
    {"a_response_cache", R"({"response_cache": {"enable": true}})",
     "response_cache: enable: expected false, got true: the cache looks at the inputs of a "
     "request, not at its parameters and outputs"},
    {"decoupled_responses", R"({"model_transaction_policy": {"decoupled": true}})",
     "model_transaction_policy: decoupled: expected false, got true: each request has one "
     "response"},
    {"sequences", R"({"sequence_batching": {}})",
     "sequence_batching: expected none: sequences of requests are not served"},
    {"none_of_them",
     R"({"response_cache": {"enable": false}, "model_transaction_policy": {"decoupled": false},
         "dynamic_batching": {}})",
     ""},
};

INSTANTIATE_TEST_SUITE_P(, FeaturesTest, testing::ValuesIn(kFeatures), NameOf);

}  // namespace
}  // namespace embershard::triton
