#include "lookup/sharded_lookup.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <string>

#include "base/core_count.h"

namespace embershard {
namespace {

// Replicas count on each of their devices.
std::vector<uint64_t> DeviceBytes(const Package& package) {
  std::vector<uint64_t> bytes(package.plan().devices.size());
  for (const Shard& shard : package.plan().shards) {
    const TableSpec& table = package.manifest().tables[shard.table];
    const int64_t columns = shard.column_end - shard.column_begin;
    const auto row_bytes = static_cast<uint64_t>(table.row_bytes * columns / table.dim);
    const auto rows = static_cast<uint64_t>(shard.row_end - shard.row_begin);
    for (const size_t device : shard.devices) bytes[device] += rows * row_bytes;
  }
  return bytes;
}

// Devices that hold rows share the threads equally, with at least one each; the first ones take the
// remainder. A single thread, the caller's, counts for the first device with rows and works for all
// of them.
std::vector<size_t> DeviceThreads(const std::vector<uint64_t>& bytes, size_t threads) {
  if (threads == 1) {
    std::vector<size_t> device_threads(bytes.size());
    const auto own = std::ranges::find_if(bytes, [](uint64_t size) { return size > 0; });
    if (own != bytes.end()) device_threads[static_cast<size_t>(own - bytes.begin())] = 1;
    return device_threads;
  }
  const auto idle = static_cast<size_t>(std::ranges::count(bytes, 0U));
  const size_t sharing = std::max<size_t>(1, bytes.size() - idle);
  size_t remainder = threads > sharing ? threads % sharing : 0;
  std::vector<size_t> device_threads;
  for (const uint64_t size : bytes) {
    size_t count = size > 0 ? std::max<size_t>(1, threads / sharing) : 0;
    if (count > 0 && remainder > 0) {
      ++count;
      --remainder;
    }
    device_threads.push_back(count);
  }
  return device_threads;
}

}  // namespace

Result<std::unique_ptr<ShardedLookup>> ShardedLookup::Make(const Package& package,
                                                           const ShardedLookupOptions& options) {
  std::vector<LookupPart> parts = LookupPartsOf(package);
  const std::vector<uint64_t> bytes = DeviceBytes(package);
  const auto total = static_cast<size_t>(options.threads > 0 ? options.threads : CoreCount());
  const std::vector<size_t> threads = DeviceThreads(bytes, total);
  const uint64_t alone_bytes =
      total == 1 ? std::numeric_limits<uint64_t>::max() : options.alone_bytes;
  const auto own = static_cast<size_t>(
      std::ranges::find_if(threads, [](size_t count) { return count > 0; }) - threads.begin());
  const BagSumsKernel& kernel = options.kernel != nullptr ? *options.kernel : BestBagSums();
  try {
    std::vector<std::unique_ptr<LookupDevice>> devices;
    for (size_t i = 0; i < bytes.size(); ++i) {
      const bool uses_caller = i == own || threads[i] == 0;
      devices.push_back(std::make_unique<LookupDevice>(package.plan().devices[i], bytes[i],
                                                       std::max<size_t>(1, threads[i]),
                                                       uses_caller ? 1 : 0, kernel));
    }
    return std::make_unique<ShardedLookup>(package.schema().sequences, std::move(parts),
                                           std::move(devices), own, alone_bytes);
  } catch (const std::exception& error) {
    return Internal(std::string("lookup: ") + error.what());
  }
}

Status ShardedLookup::Run(std::span<const JaggedRows> sparse, const LookupMatrices& out) {
  matrices_.assign({out.request, out.example});
  matrices_.insert(matrices_.end(), out.sequences.begin(), out.sequences.end());
  size_t ids = 0;
  for (const LookupMatrix& sequence : out.sequences) ids = std::max(ids, sequence.bags);
  while (single_offsets_.size() <= ids) {
    single_offsets_.push_back(static_cast<int64_t>(single_offsets_.size()));
  }
  lists_.assign(sparse.begin(), sparse.end());
  for (const size_t input : sequence_inputs_) {
    lists_.push_back({.rows = sparse[input].rows, .offsets = single_offsets_.data()});
  }
  cut_.Cut(parts_, lists_, matrices_);
  if (further_.size() < cut_.further_size()) further_.resize(cut_.further_size());
  const LookupBatch batch{parts_, lists_, matrices_, &cut_, further_.data()};
  Status status = RunPhase(LookupPhase::kSum, batch);
  if (status.ok() && cut_.further_size() > 0) status = RunPhase(LookupPhase::kAdd, batch);
  return status;
}

std::vector<DeviceLoad> ShardedLookup::device_loads() const {
  std::vector<DeviceLoad> loads;
  for (const auto& device : devices_) {
    DeviceLoad load = device->load();
    if (load.table_bytes > 0) loads.push_back(std::move(load));
  }
  return loads;
}

Status ShardedLookup::RunPhase(LookupPhase phase, const LookupBatch& batch) {
  const bool alone = cut_.bytes() < alone_bytes_;
  for (size_t i = 0; i < devices_.size(); ++i) {
    devices_[i]->Begin(phase, batch, cut_.shares()[i]);
    if (!alone) devices_[i]->Wake(i == own_ ? 1 : 0);
  }
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (alone || i == own_) devices_[i]->Work(0);
  }
  Status first;
  for (const auto& device : devices_) {
    Status status = device->End();
    if (first.ok()) first = std::move(status);
  }
  return first;
}

}  // namespace embershard
