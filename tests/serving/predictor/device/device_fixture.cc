#include "device/device_fixture.h"

namespace embershard::testing {

nlohmann::json CutShards(size_t devices) {
  nlohmann::json shards = nlohmann::json::array();
  std::vector<size_t> all;
  for (size_t device = 0; device < devices; ++device) all.push_back(device);
  size_t way = 0;
  for (const TestTable& table : EveryKindOfTable()) {
    const int64_t rows = table.rows;
    const int64_t dim = table.dim;
    const size_t first = way % devices;
    const size_t second = (way + 1) % devices;
    if (way == 2) {
      shards.push_back(ShardOf(table.name, 0, rows, 0, dim, all));
    } else if (dim < 8 || way == 4) {
      shards.push_back(ShardOf(table.name, 0, rows / 3, 0, dim, {first}));
      shards.push_back(ShardOf(table.name, rows / 3, rows, 0, dim, {second}));
    } else if (way == 0) {
      shards.push_back(ShardOf(table.name, 0, rows / 2, 0, 8, {first}));
      shards.push_back(ShardOf(table.name, rows / 2, rows, 0, 8, {second}));
      shards.push_back(ShardOf(table.name, 0, rows, 8, dim, {second}));
    } else if (way == 1) {
      shards.push_back(ShardOf(table.name, 0, rows, 0, 4, {first}));
      shards.push_back(ShardOf(table.name, 0, rows, 4, dim, {second}));
    } else {
      shards.push_back(ShardOf(table.name, 0, rows, 0, dim, {first}));
    }
    ++way;
  }
  return shards;
}

std::vector<std::string> DeviceNames(const std::string& kind, size_t devices) {
  std::vector<std::string> names;
  for (size_t i = 0; i < devices; ++i) names.push_back(kind + ":" + std::to_string(i));
  return names;
}

void FillSlot(const Schema& schema, size_t longest_max, std::mt19937* random, Slot* slot) {
  slot->requests = 1 + (*random)() % 3;
  slot->examples = slot->requests + (*random)() % 6;
  const size_t longest = (*random)() % (longest_max + 1);
  const Bags bags = RandomBags(schema, slot->requests, slot->examples, longest, random);
  const auto values = [random](size_t count) {
    std::vector<float> made(count);
    for (float& value : made) value = static_cast<float>((*random)() % 100);
    return made;
  };
  slot->request_dense = values(slot->requests * schema.request_dense_columns);
  slot->example_dense = values(slot->examples * schema.example_dense_columns);
  slot->request_of_example.clear();
  for (size_t example = 0; example < slot->examples; ++example) {
    slot->request_of_example.push_back(
        static_cast<int64_t>(example * slot->requests / slot->examples));
  }
  slot->sparse.assign(schema.sparse.size(), {});
  for (size_t i = 0; i < schema.sparse.size(); ++i) {
    SlotSparse& input = slot->sparse[i];
    input.offsets.assign(1, 0);
    for (const Bag& bag : bags.inputs[i]) {
      input.rows.insert(input.rows.end(), bag.rows.begin(), bag.rows.end());
      input.weights.insert(input.weights.end(), bag.weights.begin(), bag.weights.end());
      input.offsets.push_back(static_cast<int64_t>(input.rows.size()));
    }
  }
}

void CopyInputs(const Slot& from, Slot* to) {
  to->requests = from.requests;
  to->examples = from.examples;
  to->request_dense = from.request_dense;
  to->example_dense = from.example_dense;
  to->sparse = from.sparse;
  to->request_of_example = from.request_of_example;
}

}  // namespace embershard::testing
