// How many threads a library may use for the work of one thread.

#ifndef EMBERSHARD_BASE_THREAD_COUNT_H_
#define EMBERSHARD_BASE_THREAD_COUNT_H_

namespace embershard {

// For libraries such as torch, which keep one count for each thread and one for threads to
// come, and where setting the first sets the second too. Sets the calling thread's count and
// leaves the other as it was, also where several threads do so at once. Cheap where nothing
// changes: may be called before each piece of work.
//
// `get` and `set` are the library's; nothing else in the process should call `set`
// meanwhile.
void UseThreads(int threads, int (*get)(), void (*set)(int));

}  // namespace embershard

#endif  // EMBERSHARD_BASE_THREAD_COUNT_H_
