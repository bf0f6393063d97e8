#include "device/test_device.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "lookup/bag_sums.h"
#include "lookup/lookup_part.h"

namespace embershard::testing {

constexpr int kPoison = 0xFF;  // NaN as a float.

using StreamClock = std::map<size_t, uint64_t>;  // By stream: work up to that number is done.

void Join(StreamClock* clock, const StreamClock& other) {
  for (const auto& [stream, time] : other) (*clock)[stream] = std::max((*clock)[stream], time);
}

struct Access {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  size_t stream = 0;
  uint64_t time = 0;
  bool writes = false;

  bool Meets(const Access& other) const {
    return begin < other.end && other.begin < end && (writes || other.writes);
  }
  bool IsBefore(const StreamClock& clock) const {
    const auto entry = clock.find(stream);
    return entry != clock.end() && entry->second >= time;
  }
};

class TestDevices::State {
 public:
  explicit State(const TestDeviceOptions& options) : options(options) {}

  // Counts one operation, and returns the fault's status if this operation is to fail.
  Status Count(TestFault kind) {
    const std::lock_guard lock(mutex);
    if (lost) return Lost();
    if (!armed || options.fault != kind || fault_met || count++ != options.fault_at) return {};
    fault_met = true;
    switch (kind) {
      case TestFault::kMemory:
        return {StatusCode::kResourceExhausted, "test device: out of memory",
                StatusReason::kOutOfMemory};
      case TestFault::kLost:
        lost = true;
        return Lost();
      default:
        return Internal("test device: the operation failed");
    }
  }

  static Status Lost() {
    return {StatusCode::kUnavailable, "test device: lost", StatusReason::kDeviceLost};
  }

  // The clock of new work of a stream, and a check of what it uses.
  void Enter(size_t stream, std::span<const MemoryRange> reads,
             std::span<const MemoryRange> writes) {
    const std::lock_guard lock(mutex);
    StreamClock& clock = clocks[stream];
    Join(&clock, host[std::this_thread::get_id()]);
    const uint64_t time = ++clock[stream];
    for (const bool writing : {false, true}) {
      for (const MemoryRange& range : writing ? writes : reads) {
        if (range.bytes == 0) continue;
        const Access access{range.begin, range.begin + range.bytes, stream, time, writing};
        for (const Access& earlier : accesses) {
          const bool same_work = earlier.stream == stream && earlier.time == time;
          if (same_work || !access.Meets(earlier) || earlier.IsBefore(clock)) continue;
          if (disorder.empty()) {
            disorder = "stream " + std::to_string(stream) + (writing ? " writes" : " reads") +
                       " what stream " + std::to_string(earlier.stream) + " may still use";
          }
        }
        accesses.push_back(access);
      }
    }
  }

  void Synchronized(size_t stream) {
    const std::lock_guard lock(mutex);
    StreamClock& clock = host[std::this_thread::get_id()];
    Join(&clock, clocks[stream]);
    // The next work of this thread's slot comes after them.
    std::erase_if(accesses, [&](const Access& access) { return access.IsBefore(clock); });
  }

  void CheckUnused(const std::byte* begin, size_t bytes) {
    const std::lock_guard lock(mutex);
    const Access all{begin, begin + bytes, 0, 0, true};
    for (const Access& access : accesses) {
      if (access.Meets(all) && disorder.empty()) disorder = "memory is freed that work may use";
    }
  }

  // False: this wait is dropped.
  bool CountWait() {
    const std::lock_guard lock(mutex);
    if (!armed) return true;
    const size_t number = waits++ % options.waits;
    return options.dropped_wait != number;
  }

  const TestDeviceOptions options;
  std::mutex mutex;
  bool armed = false;
  bool lost = false;
  bool fault_met = false;
  size_t count = 0;
  size_t waits = 0;
  size_t streams = 0;
  std::string disorder;
  std::map<size_t, StreamClock> clocks;  // By stream.
  std::map<std::thread::id, StreamClock> host;
  std::vector<Access> accesses;
};

namespace {

using State = TestDevices::State;

class HostMemory final : public DeviceMemory {
 public:
  HostMemory(State* state, size_t bytes) : state_(state), bytes_(bytes) {
    std::memset(bytes_.data(), kPoison, bytes);
  }
  ~HostMemory() override { state_->CheckUnused(bytes_.data(), bytes_.size()); }
  std::byte* data() const override { return const_cast<std::byte*>(bytes_.data()); }
  size_t size_bytes() const override { return bytes_.size(); }

 private:
  State* const state_;
  std::vector<std::byte> bytes_;
};

class TestEvent final : public DeviceEvent {
 public:
  explicit TestEvent(State* state) : state_(state) {}

  Result<uint64_t> NanosecondsSince(const DeviceEvent&) const override {
    RETURN_IF_ERROR(state_->Count(TestFault::kLost));
    RETURN_IF_ERROR(state_->Count(TestFault::kTime));
    return uint64_t{1000};
  }

  // `reached`: how often the stream's thread has come to this event. `clock`: the work before it,
  // as of the last Record().
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t recorded = 0;
  uint64_t reached = 0;
  StreamClock clock;

 private:
  State* const state_;
};

// Plain loops, on packed rows.
class LoopKernels final : public DeviceKernels {
 public:
  LoopKernels(size_t position, const DeviceLayout& layout, const std::byte* weights,
              const Schema& schema)
      : shards_(layout.shards[position]), weights_(weights), schema_(schema) {}

  void Lookup(const LookupCall& call, const CallLists& lists, std::span<const ColumnCopy> copies,
              std::span<const DeviceMatrix> targets) override {
    const bool unpooled = call.mode == LookupMode::kUnpooled;
    const size_t bags = unpooled ? lists.ids : lists.bags;
    std::vector<float> result(bags * call.columns);
    const std::vector<int64_t> rows(lists.rows, lists.rows + lists.ids);
    std::vector<int64_t> offsets;
    if (unpooled) {
      for (size_t id = 0; id <= lists.ids; ++id) offsets.push_back(static_cast<int64_t>(id));
    } else {
      offsets.assign(lists.offsets, lists.offsets + call.tables.size() * bags + 1);
    }
    for (size_t i = 0; i < call.tables.size() && bags > 0; ++i) {
      const CallTable& table = call.tables[i];
      const PackedShard& shard = shards_[table.shard];
      const int64_t* table_offsets = offsets.data() + (unpooled ? 0 : i * bags);
      BagSumsCall sums{.table = weights_ + shard.offset,
                       .row_bytes = shard.row_bytes,
                       .columns = shard.columns,
                       .rows = rows.data(),
                       .offsets = table_offsets,
                       .weights = lists.weights,
                       .bags = bags,
                       .mean_offsets = call.mode == LookupMode::kMean ? table_offsets : nullptr,
                       .sums = result.data() + table.result_column,
                       .stride = call.columns};
      SumsOf(shard.weights)(sums);
    }
    const DeviceMatrix whole{reinterpret_cast<std::byte*>(result.data()), bags, call.columns};
    for (const ColumnCopy& copy : copies) Place(whole, copy, targets[copy.target]);
  }

  void Place(const DeviceMatrix& from, const ColumnCopy& copy, const DeviceMatrix& to) override {
    const auto* source = reinterpret_cast<const float*>(from.values);
    auto* target = reinterpret_cast<float*>(to.values);
    for (size_t row = 0; row < from.rows; ++row) {
      for (size_t column = 0; column < copy.columns; ++column) {
        const float value = source[row * from.columns + copy.from + column];
        float& cell = target[row * to.columns + copy.to + column];
        cell = copy.add ? cell + value : value;
      }
    }
  }

  // Each output is the sum of all values that it may depend on.
  void RunProgram(const DenseProgramInputs& inputs, float* outputs) override {
    for (const OutputSpec& output : schema_.outputs) {
      const bool shared = output.scope == Scope::kRequest;
      const size_t count = shared ? inputs.requests : inputs.examples;
      for (size_t i = 0; i < count; ++i) {
        const size_t request = shared ? i : static_cast<size_t>(inputs.request_of_example[i]);
        double sum = Sum(inputs.request_dense, request, schema_.request_dense_columns) +
                     Sum(inputs.request_pooled, request, schema_.request_pooled_columns);
        if (!shared) {
          sum += Sum(inputs.example_dense, i, schema_.example_dense_columns) +
                 Sum(inputs.example_pooled, i, schema_.example_pooled_columns);
        }
        for (size_t sequence = 0; sequence < schema_.sequences.size(); ++sequence) {
          const bool is_shared = schema_.sequences[sequence].scope == Scope::kRequest;
          if (shared && !is_shared) continue;
          const SequenceInput& lists = inputs.sequences[sequence];
          const size_t list = is_shared ? request : i;
          const auto dim = static_cast<size_t>(schema_.sequences[sequence].dim);
          for (int64_t id = lists.offsets[list]; id < lists.offsets[list + 1]; ++id) {
            sum += Sum(lists.values, static_cast<size_t>(id), dim);
          }
        }
        for (size_t value = 0; value < output.width; ++value) {
          *outputs++ = static_cast<float>(sum * static_cast<double>(value + 1));
        }
      }
    }
  }

 private:
  static void (*SumsOf(WeightType weights))(const BagSumsCall&) {
    switch (weights) {
      case WeightType::kInt8:
        return kScalarBagSums.int8;
      case WeightType::kInt4:
        return kScalarBagSums.int4;
      case WeightType::kFp16:
        return kScalarBagSums.fp16;
      case WeightType::kFp32:
        return kScalarBagSums.fp32;
    }
    return nullptr;
  }

  static double Sum(const float* matrix, size_t row, size_t columns) {
    double sum = 0;
    for (size_t i = 0; i < columns; ++i) {
      sum += static_cast<double>(matrix[row * columns + i]) * static_cast<double>(i % 7 + 1);
    }
    return sum;
  }

  const std::vector<PackedShard>& shards_;
  const std::byte* const weights_;
  const Schema schema_;
};

class TestStream final : public DeviceStream {
 public:
  TestStream(State* state, size_t number, const std::unique_ptr<DeviceKernels>* kernels)
      : state_(state),
        number_(number),
        kernels_(kernels),
        random_(state->options.seed + static_cast<uint32_t>(number)) {
    if (!state->options.immediate) thread_ = std::thread([this] { Work(); });
  }

  ~TestStream() override {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  Status CopyIn(std::byte* device, const std::byte* pinned, size_t bytes) override {
    return Copy(device, pinned, bytes);
  }
  Status CopyOut(std::byte* pinned, const std::byte* device, size_t bytes) override {
    // The destination holds poison until the copy runs: a host that reads too early gets it.
    std::memset(pinned, kPoison, bytes);
    until_synchronized_ = state_->options.immediate;
    Status copied = Copy(pinned, device, bytes);
    until_synchronized_ = false;
    return copied;
  }
  Status CopyAcross(std::byte* to, DeviceStream*, const std::byte* from, size_t bytes) override {
    return Copy(to, from, bytes);
  }

  Status Launch(std::span<const MemoryRange> reads, std::span<const MemoryRange> writes,
                std::function<void(DeviceKernels&)> work) override {
    RETURN_IF_ERROR(state_->Count(TestFault::kLost));
    RETURN_IF_ERROR(state_->Count(TestFault::kLaunch));
    state_->Enter(number_, reads, writes);
    Enqueue([this, work = std::move(work)] { work(**kernels_); });
    return {};
  }

  Status Record(DeviceEvent* event) override {
    auto* recorded = static_cast<TestEvent*>(event);
    uint64_t number = 0;
    {
      const std::lock_guard state(state_->mutex);
      const std::lock_guard lock(recorded->mutex);
      number = ++recorded->recorded;
      recorded->clock = state_->clocks[number_];
    }
    Enqueue([recorded, number] {
      const std::lock_guard lock(recorded->mutex);
      recorded->reached = number;
      recorded->changed.notify_all();
    });
    return {};
  }

  Status Wait(DeviceEvent* event) override {
    if (!state_->CountWait()) return {};
    auto* recorded = static_cast<TestEvent*>(event);
    uint64_t number = 0;
    {
      const std::lock_guard state(state_->mutex);
      const std::lock_guard lock(recorded->mutex);
      number = recorded->recorded;
      Join(&state_->clocks[number_], recorded->clock);
    }
    Enqueue([recorded, number] {
      std::unique_lock lock(recorded->mutex);
      recorded->changed.wait(lock, [&] { return recorded->reached >= number; });
    });
    return {};
  }

  Status Synchronize() override {
    if (!state_->CountWait()) return {};
    for (const std::function<void()>& copy : left_) copy();
    left_.clear();
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return work_.empty() && !busy_; });
    }
    state_->Synchronized(number_);
    const std::lock_guard lock(state_->mutex);
    return state_->lost ? State::Lost() : Status();
  }

 private:
  Status Copy(std::byte* to, const std::byte* from, size_t bytes) {
    RETURN_IF_ERROR(state_->Count(TestFault::kLost));
    RETURN_IF_ERROR(state_->Count(TestFault::kCopy));
    const MemoryRange read{from, bytes};
    const MemoryRange written{to, bytes};
    state_->Enter(number_, {&read, 1}, {&written, 1});
    Enqueue([to, from, bytes] {
      std::memset(to, kPoison, bytes);
      std::memcpy(to, from, bytes);
    });
    return {};
  }

  void Enqueue(std::function<void()> work) {
    if (until_synchronized_) return left_.push_back(std::move(work));
    if (state_->options.immediate) return work();
    {
      const std::lock_guard lock(mutex_);
      work_.push_back(std::move(work));
    }
    changed_.notify_all();
  }

  void Work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return ended_ || !work_.empty(); });
      if (work_.empty()) return;
      const std::function<void()> work = std::move(work_.front());
      work_.pop_front();
      busy_ = true;
      lock.unlock();
      if (random_() % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
      work();
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }

  State* const state_;
  const size_t number_;
  const std::unique_ptr<DeviceKernels>* const kernels_;
  std::minstd_rand random_;  // Only the stream's thread uses it.

  // Only without threads: copies to the host are left until the host synchronizes.
  bool until_synchronized_ = false;
  std::vector<std::function<void()>> left_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool busy_ = false;
  bool ended_ = false;
  std::thread thread_;
};

class TestDevice final : public Device {
 public:
  TestDevice(State* state, size_t position, const DeviceLayout& layout)
      : state_(state), position_(position), layout_(layout) {}

  Result<std::unique_ptr<DeviceMemory>> Allocate(size_t bytes) override {
    RETURN_IF_ERROR(state_->Count(TestFault::kMemory));
    return std::unique_ptr<DeviceMemory>(std::make_unique<HostMemory>(state_, bytes));
  }
  Result<std::unique_ptr<DeviceMemory>> AllocatePinned(size_t bytes) override {
    return Allocate(bytes);
  }
  Result<std::unique_ptr<DeviceStream>> MakeStream() override {
    size_t number = 0;
    {
      const std::lock_guard lock(state_->mutex);
      number = state_->streams++;
    }
    return std::unique_ptr<DeviceStream>(std::make_unique<TestStream>(state_, number, &kernels_));
  }
  Result<std::unique_ptr<DeviceEvent>> MakeEvent() override {
    return std::unique_ptr<DeviceEvent>(std::make_unique<TestEvent>(state_));
  }
  Status Load(const std::byte* weights, size_t, ProgramBytes, const Schema& schema) override {
    kernels_ = std::make_unique<LoopKernels>(position_, layout_, weights, schema);
    return {};
  }
  uint64_t memory_bytes_free() const override { return 0; }

 private:
  State* const state_;
  const size_t position_;
  const DeviceLayout& layout_;
  std::unique_ptr<DeviceKernels> kernels_;
};

}  // namespace

TestDevices::TestDevices(const TestDeviceOptions& options)
    : state_(std::make_unique<State>(options)) {}
TestDevices::~TestDevices() = default;

DeviceMaker TestDevices::maker() {
  return [state = state_.get()](const std::string&, size_t position,
                                const DeviceLayout& layout) -> Result<std::unique_ptr<Device>> {
    return std::unique_ptr<Device>(std::make_unique<TestDevice>(state, position, layout));
  };
}

void TestDevices::Arm() {
  const std::lock_guard lock(state_->mutex);
  state_->armed = true;
}

std::string TestDevices::disorder() const {
  const std::lock_guard lock(state_->mutex);
  return state_->disorder;
}

size_t TestDevices::waits() const {
  const std::lock_guard lock(state_->mutex);
  return state_->waits;
}

bool TestDevices::failed() const {
  const std::lock_guard lock(state_->mutex);
  return state_->fault_met;
}

}  // namespace embershard::testing
