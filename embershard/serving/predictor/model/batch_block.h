// A batch in one block of pinned memory, with a section for each device. Each section is moved by
// one copy.
//
//   section of the home:    dense inputs, request of each example, offsets of sequences, its calls
//   other sections:         calls of the device
//   a call:                 offsets [tables * bags + 1], rows [ids], weights [ids]
//
// Every array begins at a multiple of 16 bytes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/device.h"
#include "device/device_layout.h"
#include "model/slot.h"
#include "package/manifest.h"

namespace embershard {

struct BlockSection {
  size_t begin = 0;  // Offset in the block.
  size_t bytes = 0;
};

class BatchBlock {
 public:
  BatchBlock(const DeviceLayout& layout, const Schema& schema)
      : layout_(layout), schema_(schema), sections_(layout.homes.size()) {}

  // Upper limit of the bytes that Fill() writes.
  size_t BytesMax(const Slot& slot, size_t home) const;

  void Fill(const Slot& slot, size_t home, std::byte* memory);

  const std::vector<BlockSection>& sections() const { return sections_; }

  // `section` is the address of the call's device's section.
  CallLists ListsOf(size_t call, const std::byte* section) const;

  // Sets the inputs that are in the block. `section` is the address of the home's section.
  void SetInputs(std::byte* section, DenseProgramInputs* inputs,
                 std::vector<SequenceInput>* sequences) const;

 private:
  // `rows`, `offsets` and `weights` are bytes from the begin of the section.
  struct CallPlace {
    size_t bags = 0;
    size_t ids = 0;
    size_t rows = 0;
    size_t offsets = 0;
    size_t weights = 0;
    bool weighted = false;
  };

  CallPlace FillCall(const LookupCall& call, const Slot& slot, std::byte* memory);

  // Returns the array's offset in the section that is being written.
  template <class T>
  size_t Append(const std::vector<T>& values, std::byte* memory);

  const DeviceLayout& layout_;
  const Schema& schema_;

  size_t requests_ = 0;
  size_t examples_ = 0;
  size_t end_ = 0;            // Bytes written so far.
  size_t section_begin_ = 0;  // Begin of the section that is being written.
  std::vector<BlockSection> sections_;
  std::vector<CallPlace> calls_;  // One per call of the home's layout.
  size_t request_dense_ = 0;
  size_t example_dense_ = 0;
  size_t request_of_example_ = 0;
  std::vector<size_t> sequence_offsets_;
};

}  // namespace embershard
