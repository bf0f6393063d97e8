// A model of a few lines, and requests for it whose answers can be added up by hand.
//
//   inputs   scope    kind and policy
//   age      request  dense, required
//   price    example  dense, required
//   discount example  dense, default 0.25
//   user     request  sparse, ids 0..9, reject
//   item     example  sparse, ids 0..1999, reject
//   history  request  sparse, ids 0..99, zero, at most 3 ids, keep last
//   genre    example  sparse, ids 0..48, oov row 49, weighted
//   tag      example  sparse, ids 0..9, reject, at most 2 ids, keep reject
//
//   score[b]      example; the sum of its dense inputs and (weighted) rows, of both scopes
//   profile[r]    request; {its dense inputs' sum, how many rows its lists hold}

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "batching/request.h"
#include "model/model.h"

namespace embershard {

// Ids 0..known-1 are their rows.
class FakeIdMap final : public IdMap {
 public:
  FakeIdMap(const IdMapSpec& spec, int64_t known)
      : IdMap(spec.unknown == UnknownIds::kReject), spec_(spec), known_(known) {}

  size_t Map(Unaligned<int64_t> ids, int64_t* rows) const override {
    size_t unknown = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      rows[i] = Knows(ids[i]) ? ids[i] : spec_.oov_row;  // kZeroRow where there is none.
      unknown += Knows(ids[i]) ? 0 : 1;
    }
    return unknown;
  }

 private:
  bool Knows(int64_t id) const { return id >= 0 && id < known_; }

  const IdMapSpec spec_;
  const int64_t known_;
};

inline SparseInput FakeSparse(const char* name, Scope scope, int64_t rows, UnknownIds unknown) {
  SparseInput input;
  input.name = name;
  input.scope = scope;
  input.ids.rows = rows;
  input.ids.unknown = unknown;
  if (unknown == UnknownIds::kOov) input.ids.oov_row = rows - 1;
  return input;
}

inline Manifest FakeManifest() {
  Manifest manifest;
  manifest.model = "fake";
  manifest.version = 3;
  manifest.limits = {.max_examples = 8, .max_ids = 20};
  manifest.samples = "samples.safetensors";
  Schema& schema = manifest.schema;
  schema.dense = {{"age", Scope::kRequest, {}, 0},
                  {"price", Scope::kExample, {}, 0},
                  {"discount", Scope::kExample, 0.25F, 1}};
  schema.sparse = {FakeSparse("user", Scope::kRequest, 10, UnknownIds::kReject),
                   FakeSparse("item", Scope::kExample, 2000, UnknownIds::kReject),
                   FakeSparse("history", Scope::kRequest, 100, UnknownIds::kZero),
                   FakeSparse("genre", Scope::kExample, 50, UnknownIds::kOov),
                   FakeSparse("tag", Scope::kExample, 10, UnknownIds::kReject)};
  schema.sparse[2].max_ids = 3;
  schema.sparse[2].keep = Keep::kLast;
  schema.sparse[3].weighted = true;
  schema.sparse[4].max_ids = 2;
  schema.outputs = {{"score", Scope::kExample, {}, 1}, {"profile", Scope::kRequest, {2}, 2}};
  schema.fingerprint = 0x9f86d081884c7d65;
  schema.request_dense_columns = 1;
  schema.example_dense_columns = 2;
  return manifest;
}

class FakeModel final : public Model {
 public:
  explicit FakeModel(Manifest manifest = FakeManifest(), std::vector<SampleRequest> samples = {})
      : manifest_(std::move(manifest)), samples_(std::move(samples)) {
    for (const SparseInput& input : manifest_.schema.sparse) {
      const bool oov = input.ids.unknown == UnknownIds::kOov;
      id_maps_.emplace_back(input.ids, input.ids.rows - (oov ? 1 : 0));
    }
  }

  // Called at the beginning of each run; an error that it returns becomes the run's.
  std::function<Status(const Slot&)> before_run = [](const Slot&) { return Status(); };
  // Called at the end of each run.
  std::function<void(Slot*)> after_run = [](Slot*) {};
  const ProgramReport report = {.target = "cpu", .why = "no other fits"};

  // Result of rounds_elsewhere().
  bool rounds = false;
  // Result of is_on_gpus().
  bool on_gpus = false;
  // Result of slots().
  size_t num_slots = 1;
  // Result of device_loads().
  std::function<std::vector<DeviceLoad>()> loads = [] { return std::vector<DeviceLoad>(); };

  const Manifest& manifest() const override { return manifest_; }
  const IdMap& id_map(size_t sparse_input) const override { return id_maps_[sparse_input]; }
  const std::vector<SampleRequest>& samples() const override { return samples_; }

  bool rounds_elsewhere() const override { return rounds; }
  bool is_on_gpus() const override { return on_gpus; }
  const ProgramReport& program() const override { return report; }
  size_t slots() const override { return num_slots; }
  std::vector<DeviceLoad> device_loads() const override { return loads(); }

  Status Run(Slot& slot) override {
    if (Status status = before_run(slot); !status.ok()) return status;
    std::vector<float> of_request(slot.requests);
    slot.outputs.resize(2);
    slot.outputs[0].assign(slot.examples, 0);
    slot.outputs[1].assign(slot.requests * 2, 0);
    for (size_t r = 0; r < slot.requests; ++r) {
      const float age = slot.request_dense[r];
      const float rows = SumBag(slot.sparse[0], r) + SumBag(slot.sparse[2], r);
      of_request[r] = age + rows;
      slot.outputs[1][2 * r] = age;
      slot.outputs[1][2 * r + 1] = BagSize(slot.sparse[0], r) + BagSize(slot.sparse[2], r);
    }
    for (size_t b = 0; b < slot.examples; ++b) {
      slot.outputs[0][b] = of_request[static_cast<size_t>(slot.request_of_example[b])] +
                           slot.example_dense[2 * b] + slot.example_dense[2 * b + 1] +
                           SumBag(slot.sparse[1], b) + SumBag(slot.sparse[3], b) +
                           SumBag(slot.sparse[4], b);
    }
    slot.lookup_us = 11;
    slot.dense_us = 22;
    after_run(&slot);
    return {};
  }

 private:
  static float BagSize(const SlotSparse& sparse, size_t bag) {
    return static_cast<float>(sparse.offsets[bag + 1] - sparse.offsets[bag]);
  }

  static float SumBag(const SlotSparse& sparse, size_t bag) {
    float sum = 0;
    for (auto i = static_cast<size_t>(sparse.offsets[bag]);
         i < static_cast<size_t>(sparse.offsets[bag + 1]); ++i) {
      const auto row = static_cast<float>(sparse.rows[i] == kZeroRow ? 0 : sparse.rows[i]);
      sum += sparse.weights.empty() ? row : sparse.weights[i] * row;
    }
    return sum;
  }

  const Manifest manifest_;
  const std::vector<SampleRequest> samples_;
  std::vector<FakeIdMap> id_maps_;
};

// The lists of one sparse input, as a client has them.
struct FakeLists {
  std::vector<int32_t> lengths;
  std::vector<int64_t> values;
  std::vector<float> weights;
};

struct FakeInputs {
  uint32_t num_examples = 0;
  std::vector<std::vector<float>> dense;
  std::vector<FakeLists> sparse;
  std::vector<size_t> outputs_wanted = {0, 1};
};

// A request for two examples with an unknown genre. Its answer by hand:
//   both examples: age 30 + user 7 + history 3 + 9          =  49
//   score[0] = 49 + 1.5 + 0.25 + item 101 + 0.5 * 4 + 2 * 49 = 251.75
//   score[1] = 49 + 2.5 + 0.25 + item 205                    = 256.75
//   profile  = {30, 1 + 2}
inline FakeInputs GoodInputs() {
  return {.num_examples = 2,
          .dense = {{30}, {1.5, 2.5}, {}},
          .sparse = {{{1}, {7}, {}},
                     {{1, 1}, {101, 205}, {}},
                     {{2}, {3, 9}, {}},
                     {{2, 0}, {4, 1000}, {0.5, 2}},
                     {}},
          .outputs_wanted = {0, 1}};
}

inline const std::vector<float> kGoodScores = {251.75, 256.75};
inline const std::vector<float> kGoodProfile = {30, 3};

// The same, with the packed form's arrays and the outputs it must give.
inline SampleRequest GoodSample() {
  return {.num_examples = 2,
          .request_dense = {30},
          .example_dense = {1.5, 0.25, 2.5, 0.25},
          .lengths = {1, 1, 1, 2, 2, 0, 0, 0},
          .values = {7, 101, 205, 3, 9, 4, 1000},
          .weights = {0.5, 2},
          .outputs = {kGoodScores, kGoodProfile}};
}

// A request whose views lie over a copy of `inputs` that it keeps alive.
inline std::unique_ptr<Request> FakeRequest(const FakeInputs& inputs) {
  const auto kept = std::make_shared<const FakeInputs>(inputs);
  auto request = std::make_unique<Request>();
  request->num_examples = kept->num_examples;
  for (const auto& values : kept->dense) request->dense.push_back({ViewOf(values), 1});
  for (const FakeLists& lists : kept->sparse) {
    request->sparse.push_back({ViewOf(lists.lengths), ViewOf(lists.values), ViewOf(lists.weights)});
  }
  request->outputs_wanted = kept->outputs_wanted;
  request->arrival = Clock::now();
  request->bytes = kept;
  request->answer = [](Status, Response) {};
  return request;
}

}  // namespace embershard
