#include "model/device_model.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <utility>

#include "base/divide_up.h"
#include "base/mutex.h"
#include "lookup/lookup_part.h"
#include "model/device_lane.h"

namespace embershard {
namespace {

// Bytes of rows that are packed at a time when a model is loaded.
constexpr size_t kPackBytes = size_t{64} << 20;

class DeviceModel final : public Model {
 public:
  DeviceModel(std::shared_ptr<const Package> package, const DeviceModelOptions& options)
      : package_(std::move(package)), options_(options) {
    report_.target = std::string(kTorchScriptTarget);
    report_.why = "the plan's devices";
  }

  ~DeviceModel() override {
    if (lost_) {
      // The memory of a lost GPU is never freed. Otherwise torch would throw in destructors, which
      // ends the process.
      using Lost = std::pair<decltype(lanes_), decltype(devices_)>;
      static auto* const kept = new std::vector<Lost>();
      static Mutex mutex;
      const MutexLock lock(mutex);
      kept->emplace_back(std::move(lanes_), std::move(devices_));
      return;
    }
    // Streams must finish before the memory that they use is freed.
    for (auto& lane : lanes_) {
      for (DeviceLane& device : lane->devices) (void)device.stream->Synchronize();
    }
  }

  Status Load(const DeviceMaker& make_device) {
    ASSIGN_OR_RETURN(layout_, MakeDeviceLayout(*package_));
    const std::vector<std::string>& names = package_->plan().devices;
    const ProgramSpec& spec = package_->manifest().program;
    ASSIGN_OR_RETURN(const std::string program, package_->ReadFile(spec.file, options_.control));
    for (size_t i = 0; i < names.size(); ++i) {
      devices_.push_back(std::make_unique<LoadedDevice>());
      devices_[i]->name = names[i];
      ASSIGN_OR_RETURN(devices_[i]->device, make_device(names[i], i, layout_));
      RETURN_IF_ERROR(LoadDevice(i, {.name = spec.file, .bytes = program}));
    }
    for (size_t slot = 0; slot < options_.slots; ++slot) RETURN_IF_ERROR(AddLane());
    return {};
  }

  const Manifest& manifest() const override { return package_->manifest(); }
  const IdMap& id_map(size_t sparse_input) const override { return package_->id_map(sparse_input); }
  const std::vector<SampleRequest>& samples() const override { return package_->samples(); }
  const ProgramReport& program() const override { return report_; }

  // On GPUs FBGEMM reads int8 and int4 rows in float16. Half transfers round vectors to float16.
  bool rounds_elsewhere() const override { return is_on_gpus() || options_.half_transfers; }
  bool is_on_gpus() const override { return devices_[0]->name.starts_with("cuda:"); }
  size_t slots() const override { return lanes_.size(); }

  Status Run(Slot& slot) override {
    if (lost_) return LostStatus();
    Lane& lane = *lanes_[slot.number];
    try {
      const size_t home = next_home_.fetch_add(1, std::memory_order_relaxed) % devices_.size();
      Status status = Enqueue(slot, home, &lane);
      // The home's stream waits for the other devices.
      if (status.ok()) status = lane.devices[home].stream->Synchronize();
      if (!status.ok()) return EndFailedBatch(lane, std::move(status));
      TakeOutputs(lane, &slot);
      CountTimes(lane, home, &slot);
      return {};
    } catch (const std::bad_alloc&) {
      return EndFailedBatch(lane, OutOfMemory());
    } catch (const std::exception& error) {
      return EndFailedBatch(lane, Internal("model: ", error.what()));
    }
  }

  std::vector<DeviceLoad> device_loads() const override {
    std::vector<DeviceLoad> loads;
    for (size_t i = 0; i < devices_.size(); ++i) {
      loads.push_back({.name = devices_[i]->name,
                       .table_bytes = layout_.weight_bytes[i],
                       .lookup_ns = devices_[i]->lookup_ns,
                       .batches = devices_[i]->batches,
                       .rows = devices_[i]->rows,
                       .dense_ns = devices_[i]->dense_ns,
                       .copied_bytes = devices_[i]->copied_bytes,
                       .memory_bytes = devices_[i]->memory_bytes});
    }
    return loads;
  }

 private:
  Status LostStatus() const {
    const MutexLock lock(lost_mutex_);
    return {StatusCode::kUnavailable, "a device is lost: " + lost_message_,
            StatusReason::kDeviceLost};
  }

  // Waits for the batch's enqueued work, which uses the slot's memory. Returns the error to report.
  Status EndFailedBatch(const Lane& lane, Status status) {
    for (const DeviceLane& device : lane.devices) {
      const Status ended = device.stream->Synchronize();
      const bool is_lost = ended.reason() == StatusReason::kDeviceLost;
      if (is_lost || status.reason() == StatusReason::kDeviceLost) {
        const MutexLock lock(lost_mutex_);
        if (!lost_) lost_message_ = status.message();  // Keep the first failure.
        lost_ = true;
      }
    }
    return lost_ ? LostStatus() : status;
  }

  Status LoadDevice(size_t position, ProgramBytes program) {
    LoadedDevice& loaded = *devices_[position];
    const size_t bytes = std::max<size_t>(layout_.weight_bytes[position], kDeviceRowAlignment);
    auto weights = loaded.device->Allocate(bytes);
    if (!weights.ok()) return TooSmall(position, bytes, weights.status());
    loaded.weights = std::move(*weights);
    loaded.memory_bytes += bytes;
    const size_t packed_bytes = std::min(bytes, kPackBytes);
    ASSIGN_OR_RETURN(const auto pinned, loaded.device->AllocatePinned(packed_bytes));
    ASSIGN_OR_RETURN(const auto stream, loaded.device->MakeStream());
    for (const PackedShard& shard : layout_.shards[position]) {
      const auto rows_at_once = static_cast<int64_t>(packed_bytes / shard.row_bytes);
      for (int64_t row = 0; row <= shard.zero_row(); row += rows_at_once) {
        const int64_t end = std::min(row + rows_at_once, shard.zero_row() + 1);
        RETURN_IF_ERROR(PackRows(*package_, shard, row, end, pinned->data()));
        const size_t offset = shard.offset + static_cast<size_t>(row) * shard.row_bytes;
        RETURN_IF_ERROR(stream->CopyIn(loaded.weights->data() + offset, pinned->data(),
                                       static_cast<size_t>(end - row) * shard.row_bytes));
        RETURN_IF_ERROR(stream->Synchronize());
        if (options_.control != nullptr) RETURN_IF_ERROR(options_.control->Advance());
      }
    }
    return loaded.device->Load(loaded.weights->data(), bytes, std::move(program),
                               package_->schema());
  }

  // A plan's shards do not fit into a device's memory. The error names the largest tables.
  Status TooSmall(size_t position, size_t bytes, const Status& status) const {
    if (status.code() != StatusCode::kResourceExhausted) return status;
    std::vector<const PackedShard*> shards;
    for (const PackedShard& shard : layout_.shards[position]) shards.push_back(&shard);
    std::ranges::sort(shards, std::ranges::greater{},
                      [](const PackedShard* shard) { return shard->size_bytes(); });
    std::string largest;
    for (size_t i = 0; i < std::min<size_t>(shards.size(), 3); ++i) {
      largest += StrCat(i == 0 ? "" : ", ", "'", package_->manifest().tables[shards[i]->table].name,
                        "' ", shards[i]->size_bytes());
    }
    return {StatusCode::kBadPackage,
            StrCat("plans/", package_->plan().name, ".json: device ",
                   package_->plan().devices[position], ": expected ", bytes,
                   " bytes of free memory for its shards, got ",
                   devices_[position]->device->memory_bytes_free(), "; largest: ", largest),
            StatusReason::kOtherDevices};
  }

  Status AddLane() {
    auto lane = std::make_unique<Lane>(layout_, package_->schema());
    for (const auto& loaded : devices_) {
      DeviceLane& device = lane->devices.emplace_back();
      ASSIGN_OR_RETURN(device.stream, loaded->device->MakeStream());
      ASSIGN_OR_RETURN(device.begun, loaded->device->MakeEvent());
      ASSIGN_OR_RETURN(device.looked_up, loaded->device->MakeEvent());
      ASSIGN_OR_RETURN(device.placed, loaded->device->MakeEvent());
      ASSIGN_OR_RETURN(device.finished, loaded->device->MakeEvent());
    }
    lanes_.push_back(std::move(lane));
    return {};
  }

  Status Enqueue(const Slot& slot, size_t home, Lane* lane) {
    RETURN_IF_ERROR(FillBlock(slot, home, lane));
    RETURN_IF_ERROR(PlaceResults(slot, home, lane));
    for (size_t device = 0; device < devices_.size(); ++device) {
      if (device != home) RETURN_IF_ERROR(EnqueueLookups(home, device, lane));
    }
    RETURN_IF_ERROR(EnqueueLookups(home, home, lane));
    RETURN_IF_ERROR(EnqueueTransfers(home, lane));
    RETURN_IF_ERROR(EnqueuePlacement(home, lane));
    return EnqueueProgram(home, lane);
  }

  Status FillBlock(const Slot& slot, size_t home, Lane* lane) {
    RETURN_IF_ERROR(lane->pinned.Reserve(lane->block.BytesMax(slot, home), [&](size_t bytes) {
      return devices_[0]->device->AllocatePinned(bytes);
    }));
    lane->block.Fill(slot, home, lane->pinned.data());
    return {};
  }

  // Sets the addresses of results on the home and the other devices.
  Status PlaceResults(const Slot& slot, size_t home, Lane* lane) {
    const Schema& schema = package_->schema();
    const std::vector<LookupCall>& calls = layout_.homes[home].calls;
    MatrixPlacer at_home;
    lane->matrices.assign({{.rows = slot.requests, .columns = schema.request_pooled_columns},
                           {.rows = slot.examples, .columns = schema.example_pooled_columns}});
    for (const SequenceSpec& sequence : schema.sequences) {
      lane->matrices.push_back({.rows = slot.sparse[sequence.sparse_input].rows.size(),
                                .columns = static_cast<size_t>(sequence.dim)});
    }
    std::vector<size_t> matrices_at;
    for (const DeviceMatrix& matrix : lane->matrices) matrices_at.push_back(at_home.Add(matrix));

    lane->staged.assign(calls.size(), {});
    std::vector<MatrixPlacer> elsewhere(devices_.size());
    std::vector<size_t> staged_at(calls.size());
    std::vector<size_t> arrived_at(calls.size());
    for (size_t i = 0; i < calls.size(); ++i) {
      if (!calls[i].staged) continue;
      const CallLists lists = lane->block.ListsOf(i, nullptr);
      const bool across = calls[i].device != home;
      lane->staged[i] = {.rows = calls[i].mode == LookupMode::kUnpooled ? lists.ids : lists.bags,
                         .columns = calls[i].columns,
                         .half = across && options_.half_transfers};
      arrived_at[i] = at_home.Add(lane->staged[i]);
      if (across) staged_at[i] = elsewhere[calls[i].device].Add(lane->staged[i]);
    }
    lane->device_outputs = {.rows = 1, .columns = OutputValues(slot)};
    const size_t outputs_at = at_home.Add(lane->device_outputs);

    for (size_t device = 0; device < devices_.size(); ++device) {
      const size_t bytes = device == home ? at_home.bytes() : elsewhere[device].bytes();
      RETURN_IF_ERROR(Reserve(device, bytes, &lane->devices[device].results));
    }
    std::byte* const begin = lane->devices[home].results.data();
    for (size_t i = 0; i < lane->matrices.size(); ++i) {
      lane->matrices[i].values = begin + matrices_at[i];
    }
    lane->arrived = lane->staged;
    for (size_t i = 0; i < calls.size(); ++i) {
      if (!calls[i].staged) continue;
      lane->arrived[i].values = begin + arrived_at[i];
      lane->staged[i].values = calls[i].device == home
                                   ? lane->arrived[i].values
                                   : lane->devices[calls[i].device].results.data() + staged_at[i];
    }
    lane->device_outputs.values = begin + outputs_at;
    return {};
  }

  // Grows the memory to at least `bytes`, and updates the device's memory_bytes.
  Status Reserve(size_t device, size_t bytes, GrowingMemory* memory) {
    LoadedDevice& loaded = *devices_[device];
    const size_t before = memory->size_bytes();
    const Status reserved =
        memory->Reserve(bytes, [&loaded](size_t size) { return loaded.device->Allocate(size); });
    loaded.memory_bytes += memory->size_bytes() - before;
    return reserved;
  }

  Status EnqueueLookups(size_t home, size_t device, Lane* lane) {
    DeviceLane& on_device = lane->devices[device];
    const BlockSection& section = lane->block.sections()[device];
    on_device.in_use = section.bytes > 0;
    if (!on_device.in_use) return {};
    DeviceStream& stream = *on_device.stream;
    RETURN_IF_ERROR(Reserve(device, section.bytes, &on_device.section));
    RETURN_IF_ERROR(stream.Record(on_device.begun.get()));
    RETURN_IF_ERROR(stream.CopyIn(on_device.section.data(), lane->pinned.data() + section.begin,
                                  section.bytes));
    devices_[device]->copied_bytes += section.bytes;
    const std::vector<LookupCall>& calls = layout_.homes[home].calls;
    for (size_t i = 0; i < calls.size(); ++i) {
      if (calls[i].device == device) RETURN_IF_ERROR(EnqueueCall(calls[i], i, lane));
    }
    return stream.Record(on_device.looked_up.get());
  }

  Status EnqueueCall(const LookupCall& call, size_t index, Lane* lane) {
    const DeviceLane& on_device = lane->devices[call.device];
    const CallLists lists = lane->block.ListsOf(index, on_device.section.data());
    LoadedDevice& loaded = *devices_[call.device];
    loaded.rows += lists.ids;
    lane->reads.assign({{on_device.section.data(), lane->block.sections()[call.device].bytes}});
    lane->writes.clear();
    if (call.staged) {
      const DeviceMatrix& staged = lane->staged[index];
      lane->writes.push_back(staged.range());
      return on_device.stream->Launch(lane->reads, lane->writes,
                                      [&call, lists, staged](DeviceKernels& kernels) {
                                        const ColumnCopy whole{.columns = call.columns};
                                        kernels.Lookup(call, lists, {&whole, 1}, {&staged, 1});
                                      });
    }
    for (const ColumnCopy& copy : call.direct) {
      lane->writes.push_back(lane->matrices[copy.target].range());
    }
    return on_device.stream->Launch(lane->reads, lane->writes,
                                    [&call, lists, lane](DeviceKernels& kernels) {
                                      kernels.Lookup(call, lists, call.direct, lane->matrices);
                                    });
  }

  Status EnqueueTransfers(size_t home, Lane* lane) {
    const std::vector<LookupCall>& calls = layout_.homes[home].calls;
    DeviceStream& stream = *lane->devices[home].stream;
    size_t waited_for = home;
    for (size_t i = 0; i < calls.size(); ++i) {  // Calls are ordered by device.
      const size_t device = calls[i].device;
      if (device == home) continue;
      if (device != waited_for) {
        RETURN_IF_ERROR(stream.Wait(lane->devices[device].looked_up.get()));
      }
      waited_for = device;
      const size_t bytes = lane->staged[i].size_bytes();
      RETURN_IF_ERROR(stream.CopyAcross(lane->arrived[i].values, lane->devices[device].stream.get(),
                                        lane->staged[i].values, bytes));
      devices_[home]->copied_bytes += bytes;
    }
    return {};
  }

  // Copies the staged parts with row 0 to the program's inputs, then adds the others.
  Status EnqueuePlacement(size_t home, Lane* lane) {
    DeviceLane& at_home = lane->devices[home];
    const std::vector<StagedCopy>& placed = layout_.homes[home].placed;
    if (!placed.empty()) {
      lane->reads.clear();
      for (const DeviceMatrix& matrix : lane->arrived) {
        if (matrix.values != nullptr) lane->reads.push_back(matrix.range());
      }
      lane->writes.clear();
      for (const DeviceMatrix& matrix : lane->matrices) lane->writes.push_back(matrix.range());
      RETURN_IF_ERROR(at_home.stream->Launch(
          lane->reads, lane->writes, [&placed, lane](DeviceKernels& kernels) {
            for (const auto& [call, copy] : placed) {
              kernels.Place(lane->arrived[call], copy, lane->matrices[copy.target]);
            }
          }));
    }
    return at_home.stream->Record(at_home.placed.get());
  }

  Status EnqueueProgram(size_t home, Lane* lane) {
    DeviceLane& at_home = lane->devices[home];
    const size_t bytes = lane->device_outputs.size_bytes();
    RETURN_IF_ERROR(lane->outputs.Reserve(
        bytes, [&](size_t size) { return devices_[home]->device->AllocatePinned(size); }));
    DenseProgramInputs inputs;
    lane->sequences.assign(package_->schema().sequences.size(), {});
    for (size_t i = 0; i < lane->sequences.size(); ++i) {
      const DeviceMatrix& vectors = lane->matrices[kFirstSequence + i];
      lane->sequences[i].values = reinterpret_cast<float*>(vectors.values);
      lane->sequences[i].ids = vectors.rows;
    }
    lane->block.SetInputs(at_home.section.data(), &inputs, &lane->sequences);
    inputs.request_pooled = reinterpret_cast<float*>(lane->matrices[0].values);
    inputs.example_pooled = reinterpret_cast<float*>(lane->matrices[1].values);
    inputs.sequences = lane->sequences;
    lane->reads.assign({{at_home.section.data(), lane->block.sections()[home].bytes}});
    for (const DeviceMatrix& matrix : lane->matrices) lane->reads.push_back(matrix.range());
    lane->writes.assign({lane->device_outputs.range()});
    auto* const outputs = reinterpret_cast<float*>(lane->device_outputs.values);
    RETURN_IF_ERROR(at_home.stream->Launch(
        lane->reads, lane->writes,
        [inputs, outputs](DeviceKernels& kernels) { kernels.RunProgram(inputs, outputs); }));
    RETURN_IF_ERROR(
        at_home.stream->CopyOut(lane->outputs.data(), lane->device_outputs.values, bytes));
    devices_[home]->copied_bytes += bytes;
    return at_home.stream->Record(at_home.finished.get());
  }

  size_t OutputValues(const Slot& slot) const {
    size_t values = 0;
    for (const OutputSpec& output : package_->schema().outputs) values += ValuesOf(output, slot);
    return values;
  }

  static size_t ValuesOf(const OutputSpec& output, const Slot& slot) {
    return (output.scope == Scope::kRequest ? slot.requests : slot.examples) * output.width;
  }

  void TakeOutputs(const Lane& lane, Slot* slot) const {
    const std::vector<OutputSpec>& specs = package_->schema().outputs;
    slot->outputs.resize(specs.size());
    const auto* values = reinterpret_cast<const float*>(lane.outputs.data());
    for (size_t i = 0; i < specs.size(); ++i) {
      const size_t count = ValuesOf(specs[i], *slot);
      slot->outputs[i].assign(values, values + count);
      values += count;
    }
  }

  // Ignores times that cannot be read; if a device is lost, the next batch reports it. REQUIRES:
  // the batch has ended without an error.
  void CountTimes(const Lane& lane, size_t home, Slot* slot) {
    for (size_t i = 0; i < devices_.size(); ++i) {
      const DeviceLane& device = lane.devices[i];
      if (!device.in_use) continue;
      const Result<uint64_t> nanoseconds = device.looked_up->NanosecondsSince(*device.begun);
      if (!nanoseconds.ok()) continue;
      devices_[i]->lookup_ns += *nanoseconds;
      ++devices_[i]->batches;
      if (i == home) slot->lookup_us = static_cast<uint32_t>(*nanoseconds / 1000);
    }
    const DeviceLane& at_home = lane.devices[home];
    const Result<uint64_t> nanoseconds = at_home.finished->NanosecondsSince(*at_home.placed);
    if (!nanoseconds.ok()) return;
    devices_[home]->dense_ns += *nanoseconds;
    slot->dense_us = static_cast<uint32_t>(*nanoseconds / 1000);
  }

  const std::shared_ptr<const Package> package_;
  const DeviceModelOptions options_;
  ProgramReport report_;
  DeviceLayout layout_;
  std::vector<std::unique_ptr<LoadedDevice>> devices_;  // In the order of the plan.
  std::vector<std::unique_ptr<Lane>> lanes_;  // One per slot; destroyed before the devices.
  std::atomic<size_t> next_home_ = 0;
  std::atomic<bool> lost_ = false;
  mutable Mutex lost_mutex_;
  std::string lost_message_ GUARDED_BY(lost_mutex_);
};

}  // namespace

Result<std::unique_ptr<Model>> MakeDeviceModel(std::shared_ptr<const Package> package,
                                               const DeviceMaker& make_device,
                                               const DeviceModelOptions& options) {
  auto model = std::make_unique<DeviceModel>(std::move(package), options);
  RETURN_IF_ERROR(model->Load(make_device));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace embershard
