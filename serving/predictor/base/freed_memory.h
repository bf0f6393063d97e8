// What becomes of memory that this process frees.

#ifndef EMBERSHARD_BASE_FREED_MEMORY_H_
#define EMBERSHARD_BASE_FREED_MEMORY_H_

namespace embershard {

// From now on the C library keeps what is freed for what is allocated next, for each thread up to
// about 64 MiB. By default it gives memory back as soon as a batch has run, and the system clears
// every page again for the next one. Once memory has grown to what the largest batch needs it
// stays so.
//
// What MALLOC_MMAP_THRESHOLD_ or MALLOC_TRIM_THRESHOLD_ say of the C library holds as said. For
// processes that do nothing but serve. Does nothing without glibc.
void KeepFreedMemory();

}  // namespace embershard

#endif  // EMBERSHARD_BASE_FREED_MEMORY_H_
