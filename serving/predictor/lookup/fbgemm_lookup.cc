#include "lookup/fbgemm_lookup.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <exception>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/thread_count.h"
#include "lookup/device_thread.h"
#include "lookup/fbgemm_call.h"

namespace embershard {
namespace {

struct LookupBatch {
  std::span<const JaggedRows> sparse;
  PooledMatrix request;
  PooledMatrix example;
};

// The tables of one device and the thread that reads them.
class Device {
 public:
  Device(std::string name, uint64_t table_bytes, std::vector<FbgemmCall> calls)
      : name_(std::move(name)),
        table_bytes_(table_bytes),
        calls_(std::move(calls)),
        thread_([this] { status_ = RunTimed(); }) {}

  // REQUIRES: `batch` lives until Wait() has returned.
  void Start(const LookupBatch& batch) {
    batch_ = &batch;
    thread_.Start();
  }

  Status Wait() {
    thread_.Wait();
    return std::move(status_);
  }

  DeviceLoad load() const {
    return {.name = name_,
            .table_bytes = table_bytes_,
            .lookup_ns = lookup_ns_,
            .batches = batches_,
            .rows = rows_};
  }

 private:
  Status RunTimed() {
    const Clock::time_point start = Clock::now();
    Status status = RunAll();
    const std::chrono::nanoseconds elapsed = Clock::now() - start;
    lookup_ns_.fetch_add(static_cast<uint64_t>(elapsed.count()), std::memory_order_relaxed);
    batches_.fetch_add(1, std::memory_order_relaxed);
    if (!status.ok()) return status;
    for (const FbgemmCall& call : calls_) {
      rows_.fetch_add(call.rows(), std::memory_order_relaxed);
    }
    return status;
  }

  Status RunAll() {
    try {
      // The device's lookups are the unit of parallel work: a team inside torch would only
      // take the other devices' cores.
      UseThreads(1, at::get_num_threads, at::set_num_threads);
      const c10::InferenceMode no_gradients;
      for (FbgemmCall& call : calls_) {
        Status status = call.Run(batch_->sparse, batch_->request, batch_->example);
        if (!status.ok()) return status;
      }
      return {};
    } catch (const c10::Error& error) {
      return Internal("lookup on device '" + name_ + "': " + error.what_without_backtrace());
    } catch (const std::exception& error) {
      return Internal("lookup on device '" + name_ + "': " + error.what());
    }
  }

  const std::string name_;
  const uint64_t table_bytes_;

  // Sums over batches.
  std::atomic<uint64_t> lookup_ns_ = 0;
  std::atomic<uint64_t> batches_ = 0;
  std::atomic<uint64_t> rows_ = 0;

  // Used by the thread between Start() and Wait().
  std::vector<FbgemmCall> calls_;
  const LookupBatch* batch_ = nullptr;
  Status status_;

  DeviceThread thread_;  // Last: it uses the fields above.
};

class FbgemmLookup final : public Lookup {
 public:
  explicit FbgemmLookup(std::vector<std::unique_ptr<Device>> devices)
      : devices_(std::move(devices)) {}

  Status Run(std::span<const JaggedRows> sparse, PooledMatrix request,
             PooledMatrix example) override {
    const LookupBatch batch{sparse, request, example};
    for (const auto& device : devices_) device->Start(batch);
    Status first;
    for (const auto& device : devices_) {
      Status status = device->Wait();
      if (first.ok()) first = std::move(status);
    }
    return first;
  }

  std::vector<DeviceLoad> device_loads() const override {
    std::vector<DeviceLoad> loads;
    for (const auto& device : devices_) loads.push_back(device->load());
    return loads;
  }

 private:
  std::vector<std::unique_ptr<Device>> devices_;
};

Status Refuse(const Plan& plan, const std::string& table, const std::string& got) {
  return BadPackage("plans/" + plan.name + ".json: table '" + table +
                    "': expected the whole table on one cpu device, got " + got);
}

// The one device of each table.
Result<std::vector<size_t>> DeviceOfTable(const Package& package) {
  const Plan& plan = package.plan();
  std::vector<size_t> devices(package.manifest().tables.size());
  for (const Shard& shard : plan.shards) {
    const TableSpec& table = package.manifest().tables[shard.table];
    if (shard.row_begin != 0 || shard.row_end != table.rows) {
      return Refuse(plan, table.name,
                    "rows " + std::to_string(shard.row_begin) + ".." +
                        std::to_string(shard.row_end) + " of " + std::to_string(table.rows));
    }
    if (shard.column_begin != 0 || shard.column_end != table.dim) {
      return Refuse(plan, table.name,
                    "columns " + std::to_string(shard.column_begin) + ".." +
                        std::to_string(shard.column_end) + " of " + std::to_string(table.dim));
    }
    if (shard.devices.size() != 1) {
      return Refuse(plan, table.name, std::to_string(shard.devices.size()) + " replicas");
    }
    const std::string& device = plan.devices[shard.devices[0]];
    if (!device.starts_with("cpu:")) {
      return Refuse(plan, table.name, "device '" + device + "'");
    }
    devices[shard.table] = shard.devices[0];
  }
  return devices;
}

// The bytes of the rows on each device.
std::vector<uint64_t> BytesOfDevices(const Package& package,
                                     const std::vector<size_t>& device_of_table) {
  std::vector<uint64_t> bytes(package.plan().devices.size());
  for (size_t i = 0; i < device_of_table.size(); ++i) {
    const TableSpec& table = package.manifest().tables[i];
    bytes[device_of_table[i]] += static_cast<uint64_t>(table.rows * table.row_bytes);
  }
  return bytes;
}

using Calls = std::map<FbgemmCallKind, std::vector<FbgemmLookupPart>>;

// The calls of each device.
std::vector<Calls> CallsOfDevices(const Package& package,
                                  const std::vector<size_t>& device_of_table) {
  std::vector<Calls> calls(package.plan().devices.size());
  for (size_t i = 0; i < package.schema().sparse.size(); ++i) {
    const SparseInput& input = package.schema().sparse[i];
    for (const LookupSpec& lookup : input.lookups) {
      const TableSpec& table = package.manifest().tables[lookup.table];
      const FbgemmCallKind kind{input.scope, input.weighted};
      calls[device_of_table[lookup.table]][kind].push_back({
          .sparse_input = i,
          .input = input.name,
          .table = table.name,
          .table_rows = table.rows,
          .dim = table.dim,
          .weights = table.weights,
          .offset_bytes = package.tables().offset_bytes(lookup.table),
          .pooling = lookup.pooling,
          .column = lookup.column,
      });
    }
  }
  return calls;
}

}  // namespace

Result<std::unique_ptr<Lookup>> MakeFbgemmLookup(const Package& package) {
  Result<std::vector<size_t>> device_of_table = DeviceOfTable(package);
  if (!device_of_table.ok()) return device_of_table.status();
  std::vector<std::unique_ptr<Device>> devices;
  try {
    std::vector<Calls> calls = CallsOfDevices(package, *device_of_table);
    const std::vector<uint64_t> bytes = BytesOfDevices(package, *device_of_table);
    for (size_t device = 0; device < calls.size(); ++device) {
      if (calls[device].empty()) continue;
      std::vector<FbgemmCall> device_calls;
      for (auto& [kind, parts] : calls[device]) {
        device_calls.emplace_back(kind, package.tables(), std::move(parts));
      }
      devices.push_back(std::make_unique<Device>(package.plan().devices[device], bytes[device],
                                                 std::move(device_calls)));
    }
  } catch (const c10::Error& error) {
    return Internal(std::string("lookup: ") + error.what_without_backtrace());
  } catch (const std::exception& error) {
    return Internal(std::string("lookup: ") + error.what());
  }
  return std::unique_ptr<Lookup>(std::make_unique<FbgemmLookup>(std::move(devices)));
}

}  // namespace embershard
