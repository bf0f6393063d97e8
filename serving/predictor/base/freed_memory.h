// Which memory the C library gives to this process's threads, and what becomes of it when freed.

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

// From now on each new thread has memory of its own to allocate from, however many there are. By
// default the C library has eight lots for each core, which threads beyond these share, each with
// a lock: on two cores a thread that loads and gives way to all others may be set aside for
// milliseconds while it holds one that a thread with a request waits for.
//
// What MALLOC_ARENA_MAX says of the C library holds as said. To be called before many threads have
// allocated, since glibc looks at its limit once. As above else.
void GiveThreadsOwnMemory();

}  // namespace embershard

#endif  // EMBERSHARD_BASE_FREED_MEMORY_H_
